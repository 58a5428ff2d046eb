"""What a file's name says of the node whose output it has: before the name of the output, or behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"[0-9]+")
# Words that begin the part of a file name that says which output it holds: the text before is a node's name.
_OUTPUTS = re.compile(
    r"(?:nvidia[-_]?(?:smi|bug|q|l|nvlink|topo|table|xml|query|fabric)|nvsmi|smi|nvlink|topo|nv-fabricmanager|"
    r"fabricmanager|dcgmi?|dmesg|kern|kernel|kmsg|journal(?:ctl)?|syslog|messages|lspci|lscpu|lsblk|lsmod|ibstat(?:us)?|"
    r"ibv|ibdev|rdma|efa|fi_info|fi|libfabric|proc|df|mounts?|mountinfo|findmnt|fstab|free|meminfo|cpuinfo|uptime|uname|"
    r"ulimit|limits|systemctl|services|sinfo|scontrol|sacct|squeue|slurm|lfs|lctl|lnet|lustre|nccl|nccom|neuron|numactl|"
    r"numa|ps|top|ethtool|sysctl|chronyc?|timedatectl|dmidecode|kubectl|os-release|xid|ecc|query)(?=[._-]|$)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_KIND = re.compile(r"\.(?:txt|log|csv|xml|json|out|gz)$", re.IGNORECASE)
_SEPARATORS = "._-"
_OPTION = re.compile(  # of the command, or what it prints
    r"(?:[qxselmnvtkahrpi]|nn|vvv?|all|out(?:put)?|report|log|diag|health|test|devinfo|devices|failed|status|list)"
    r"(?=[._-]|$)",
    re.IGNORECASE,
)
_OF_NODE = re.compile(r"(?=[\w.-]*\d)[A-Za-z][\w.-]{0,252}", re.ASCII)
OF_DEVICE = re.compile(r"GPU\d+|mlx\d_\d+|nvme\d+(?:n\d+)?|(?:eth|ib|bond)\d+|en[ops]\w+|rdmap\d+s\d+")
_OF_RUN = re.compile(  # runs and parts of one node; and amounts at the end, as `allreduce-16g`
    r"(?:run|test|boot|day|try|attempt|job|part|step|pass|iter|round|rank|port|link|level|b|r|t|v)[_-]?\d+"
    r"|.*\d[a-z]{1,5}",
    re.IGNORECASE,
)
_FROM_ZERO = re.compile(r"[A-Za-z]{1,40}[_-]?0")  # what is counted like this are devices


def without_number(name: str) -> str:
    """The same for names that differ only in numbers."""
    return _NUMBER.sub("0", name)


def begins_with_output(name: str) -> bool:
    """Whether a file name begins with that of an output."""
    return bool(_OUTPUTS.match(name))


def are_of_nodes(names: Iterable[str], least: int = 2) -> bool:
    """Whether these, of which there are at least so many, differ only in numbers, and are no other things' names."""
    names = set(names)
    is_alike = len({without_number(name) for name in names}) == 1
    return is_alike and len(names) >= least and all(map(_may_be_of_node, names))


def _may_be_of_node(name: str) -> bool:
    """Whether it is no number or version, of no run or part, and not the first of what is counted from 0."""
    is_other = _OF_RUN.fullmatch(name) or _FROM_ZERO.fullmatch(name)
    return bool(_OF_NODE.fullmatch(name) or _ADDRESS.fullmatch(name)) and not is_other


def prefix(name: str) -> str:
    """The node name that a file name begins with; empty if it begins with the output's name."""
    address = _ADDRESS.match(name)
    if address:
        return address[0]
    starts = [0, *(index + 1 for index, sign in enumerate(name) if sign in _SEPARATORS)]
    output = next((start for start in starts if _OUTPUTS.match(name, start)), None)
    if output is not None:
        return name[:output].rstrip(_SEPARATORS)
    first = re.split(r"[._]", name, maxsplit=1)[0]
    return first if any(char.isdecimal() for char in first) else ""


def suffix(name: str) -> str:
    """The node's name behind that of the output and its options (`dmesg_gpu001.txt`); empty if there is none."""
    while (shorter := _KIND.sub("", name)) != name:
        name = shorter
    word, at = _OUTPUTS.match(name), 0
    while word:
        at = word.end() + 1
        word = _OUTPUTS.match(name, at) or _OPTION.match(name, at)
    rest = name[at:] if at else ""
    is_other = OF_DEVICE.fullmatch(rest) or _OF_RUN.fullmatch(rest)
    return rest if _OF_NODE.fullmatch(rest) and not is_other else ""


def stem(name: str) -> str:
    """The node of a single file: its prefix, or its name without the word for its kind."""
    owner = prefix(name)
    while not owner and (shorter := _KIND.sub("", name)) != name:
        name = shorter
    return owner or name
