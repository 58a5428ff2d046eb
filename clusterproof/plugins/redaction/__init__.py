"""What `--redact` keeps: values of kinds known to be harmless. Everything else is replaced by a placeholder.

This module: words that identify nothing, from the suite, drivers and tools; and harmless forms of text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
FOLDERS = ("plugins", "checks", "reports")
# Names in examples in the suite's own docstrings.
_NAMES = frozenset(
    ("oyuutbev", "abcdefgh", "abcdef", "abcde", "hydra", "hodges", "lehmann", "sunilpp", "ville", "adai", "nebius")
)
_WORD = re.compile(r"[A-Za-z]{2,}")
_PARTS = re.compile(r"(?<![\w.@/:-])[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+(?![\w@-])")
_PATH = re.compile(r"(?<![\w.<)\]}])(?:/[A-Za-z_][\w.+-]*)+")
_CATALOGUED = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[.-][A-Za-z0-9]+)*")  # of products: H100, p5.48xlarge
_DIGITS = re.compile(r"\d{2}|\d.*\d")  # as many digits as a host name in an example


@cache
def known_words() -> frozenset[str]:
    """Every word, in lower case; also hyphenated ones that are known as a whole, such as `nvidia-smi`."""
    _, single, several, *_ = _listed()
    listed_words = [*single.split(), *several.split()]
    text = _sources()
    of_parts = {word.lower() for word in _PARTS.findall(text) if not _DIGITS.search(word)}
    listed = {word.lower() for word in _CATALOGUED.findall(_catalogue())}
    return frozenset({*listed_words, *(word.lower() for word in _WORD.findall(text)), *of_parts, *listed} - _NAMES)


@cache
def folders() -> frozenset[str]:
    """The components of every path in the suite's own files: `/opt/amazon/efa` has three."""
    parts = {part for path in _PATH.findall(_sources()) for part in path.split("/")}
    parts.update(_listed()[3].split())
    return frozenset(part.rstrip(".") for part in parts if not re.search(r"\d{3}", part)) - _NAMES


def _catalogue() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted((PACKAGE / "plugins/catalog").glob("*.toml")))


@cache
def accounts() -> frozenset[str]:
    """Accounts and programs with the same name everywhere."""
    return frozenset(_listed()[4].split())


@cache
def _sources() -> str:
    """What stands between spaces in the suite's own files, each once: a third of their text."""
    files = (path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*") if path.suffix in (".py", ".toml"))
    return "\n".join({word for path in files for word in path.read_text(encoding="utf-8").split()})


def _listed() -> list[str]:
    return Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split("\n\n")


# Complete kernel expressions whose numbers would not be kept by themselves.
FORMS = re.compile(
    r"\b(?:Bank \d{1,4}|TSC|ADDR|MISC|SYND|IPID|STATUS|TIME):? (?:0x)?[0-9a-f]{1,16}\b"
    r"|\bsegfault at [0-9a-f]{1,16} ip [0-9a-f]{1,16} sp [0-9a-f]{1,16} error [0-9a-f]{1,8}\b"
    r"|\bCPU_SrcID#\d{1,2}_(?:Ha|MC)#\d{1,2}_Chan#\d{1,2}_DIMM#\d{1,2}\b"
    r"|\bip:[0-9a-f]{1,16} sp:[0-9a-f]{1,16} error:[0-9a-f]{1,8}\b"
    r"|\[0x[0-9a-f]{2}:0x[0-9a-f]{2}\.[0-7]\]|(?<=[0-7]):pcie\d{1,3}(?=:)|\b15[bc]-[0-9a-f](?=: MGC)"
)
UNIT = re.compile(r"(.+?)(\.(?:service|timer|socket|mount|target|scope|slice|automount|swap))")
VERSION = re.compile(r"v?\d{1,9}[.~-](?=[\w.~-]*\d)|v?\d{1,3}\.\d", re.IGNORECASE)

_UNITS = (
    r"%|[kKMGTP]?i?[bB](?:/s|ps|it)?|[kKMGT]?bit|[kMG]?Hz|[nmuµ]?s(?:ec)?|[mh]|min|[mk]?W|m?V|m?A|C|F|rpm|pages?|"
    r"GT|[GT]?FLOPS|[kKMGT]|th|st|nd|rd|x|d|g|years?|days?|hours?"
)
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,7}|\d{1,9}\.\d{1,17}|\d{1,7}(?:\.\d{1,3})?e[+-]?\d{1,3}"
    rf"|\d{{1,9}}(?:\.\d{{1,9}})?(?:{_UNITS})|\d{{1,15}}(?:[kKMGTP]?i?[bB](?:/s|ps)?|Hz|[nmuµ]s(?:ec)?))",
    re.IGNORECASE,
)
_HEXADECIMAL = re.compile(  # of at most 32 bits, and addresses in the kernel's own memory
    r"0x0*_?(?:[0-9a-f]{1,4}_)?[0-9a-f]{1,8}|0xffff[0-9a-f]{12}|0{3}[0-9a-f]{5}|0{8,9}[0-9a-f]{7,8}|ffff[89a-f][0-9a-f]{11}",
    re.IGNORECASE,
)
_BUS = r"(?:(?:[0-9a-f]{4}|0000[0-9a-f]{4}):)"
_PLACE = re.compile(  # PCI addresses as written by sysfs, NVML and the driver, and hidden ones
    r"(?:PCI:)?(?:x{4}:)?x{2}:[0-9a-fx]{2}(?:\.[0-7x])?|PCI:x{2,12}|"
    rf"(?:PCI:)?{_BUS}?[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]|(?:PCI:)?{_BUS}[0-9a-f]{{2}}:[0-9a-f]{{2}}|pci[0-9a-f]{{4}}:[0-9a-f]{{2}}",
    re.IGNORECASE,
)
_DEVICES = (
    r"nvme\d{1,3}(?:[nc]\d{1,3}){0,2}(?:p\d{1,3})?|[svx]v?d[a-z]{1,2}\d{0,3}|(?:dm-|md|loop|sr|zram)\d{1,3}|mmcblk\d(?:p\d)?",
    r"rdmap\d{1,3}s\d{1,2}f?\d?|efa_?\d{1,3}|mlx\d_(?:bond_)?\d{1,3}|(?:irdma|bnxt_re|hfi\d_|rxe|siw|roce|qedr)\d{0,3}",
    r"(?:uverbs|umad|issm)\d{1,3}",
    r"(?:eth|ib|bond|br|docker|veth|wlan|team|tun|tap|lan|dummy|virbr|cni|flannel\.|vxlan\.)\d{1,3}|lo",
    r"en[opsx]?\d{1,3}(?:n?[spfnd]\d{1,4}){0,4}|en(?:P\d{1,5})?p\d{1,3}(?:s\d{1,3})?(?:[fd]\d{1,3})?(?:n?p\d{1,3})?",
    r"ib(?:P\d{1,5})?[ps]\d{1,3}(?:[spfd]\d{1,3}){0,3}",
    r"nvidia\d{1,2}|nvidia-nvswitch\d{0,2}|nvswitch\d{1,2}|neuron\d{1,2}|nd\d{1,2}(?:nc\d)?",
    r"(?:cpu|policy)\d{1,4}|(?:mc|csrow|channel)\d{1,3}|tty[SU]?\d{0,3}|input\d{1,3}|(?:hid|usb|ptp|rtc)\d",
    r"ivhd\d{1,3}|mpt[23]sas_cm\d{1,3}",
    r"C\d[ECS]?|(?:xc|i|pid|gpu|pp|bar)\d|(?:ce|fbpa|gpc|tpc|port|link)\d{1,2}|kworker",
    r"(?:OST|MDT|OSS|MDS|MGS)[0-9a-f]{4}(?:-(?:osc|mdc|lwp|osp))?(?:-ffff[0-9a-f]{4,12})?",
)
_DEVICE = re.compile(rf"(?:{'|'.join(_DEVICES)})(?:-rdm|-dgrm|-ib\d|_efa|\.service)?", re.IGNORECASE)
_COUNTED = re.compile(
    r"(?:uid|job|step|pid|task|user|session|pod)[_-]?\d{1,7}(?:\.(?:slice|scope))?|user@\d{1,7}(?:\.service)?"
    r"|(?:Prolog|Epilog|HealthCheck|Topology|SLURM_)\w{0,30}(?:\[\d+\])?"
)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?|\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?|\d{4}/\d\d/\d\d"
)
_RANGE = re.compile(r"\d{1,5}-\d{1,5}|\d{1,5}/\d{1,5}")
_PLACE_OF_AWS = re.compile(
    r"[a-z]{2}(?:-gov|-isob?)?-(?:north|south|east|west|central|northeast|northwest|southeast|southwest)-\d[a-z]?"
    r"|[a-z]{3}\d-az\d"
)
TYPE = re.compile(
    r"(?:ml\.)?[a-z]{1,4}\d{1,2}[a-z]{0,4}(?:-[a-z0-9]{1,8})?"
    r"\.(?:nano|micro|small|medium|large|\d{0,3}xlarge|metal(?:-\d{1,3}xl)?)"
)
_DOMAIN_OF_AWS = re.compile(
    r"(?:(?:fsx|efs|s3|ec2|ssm|sts|sagemaker|logs|compute)\.)?(?:[a-z]{2}(?:-[a-z]{3,4})?-[a-z]{4,9}-\d\.)?"
    r"amazonaws\.com(?:\.cn)?"
)
_LIBRARY = re.compile(
    r"lib(?:c|m|dl|pthread|cuda|cudart|cublas(?:Lt)?|cudnn|nccl(?:-net|-tuner)?|nvidia-ml|efa|fabric|ibverbs|gdrapi|nrt|mpi"
    r"|torch(?:_cuda|_cpu|_python)?|python\d\.\d{1,2})\.so(?:\.\d{1,4}){0,4}"
)
_OF_CPUS = r"\d{1,5}(?:-\d{1,5})?"
HARDWARE = re.compile(  # ids of PCI, microcode, VBIOS and firmware, module taints, CPU lists
    rf"(?i:[0-9a-f]{{4}}|[0-9a-f]{{6}}|efa\d?|0x[0-9a-f]{{1,8}}|[0-9a-f]{{2}}(?:\.[0-9a-f]{{2}}){{4}})"
    rf"|[A-Z]{{1,5}}|{_OF_CPUS}(?:,{_OF_CPUS}){{0,127}}|\d{{1,4}}(?:\.\d{{1,5}}){{1,2}}"
)
_ACCOUNT_DIGITS = 12  # of an AWS account's id
_LARGE_PART = 100  # of an IP address, but of no four-part version
_LONGEST_SIZE = 16  # digits
_LOCAL = frozenset({"127.0.0.1", "0.0.0.0", "::1", "::", "localhost"})  # noqa: S104 - identify nothing
_ZEROS = re.compile(r"[0-]{8,36}|00(?::00){5,19}|169\.254(?:\.\d{1,3}){2}")
_ROMAN = re.compile(r"[A-Za-z]|[A-Z]{1,2}\d{1,2}")

_NUMBERED = re.compile(
    r"(?:python|kworker/|ptlrpcd_|ldlm_|nfsd|kswapd|migration/|ksoftirqd/|rcu_)[\w./:+-]{0,24}|#?\d{1,7}"
)


_AWS_HOST = re.compile(r"(?:ip|ec2)(?:-\d{1,3}){4}(?!\d)")


def is_harmless(word: str) -> bool:
    """Whether a word without blanks has a form that identifies nothing."""
    if any(shape.fullmatch(word) for shape in _SHAPES) or word in _LOCAL:
        return True
    return word.isascii() and word.isdecimal() and len(word) <= _LONGEST_SIZE and not int(word) % 65536


def is_device(word: str) -> bool:
    """Whether it is a device name that kernels assign by themselves."""
    return bool(_DEVICE.fullmatch(word) or _PLACE.fullmatch(word) or TYPE.fullmatch(word))


def is_unambiguous_address(text: str) -> bool:
    """Whether it is an address even where a version is expected: an AWS host name, or four numbers with large parts."""
    if _AWS_HOST.match(text):
        return True
    if not re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", text):
        return False
    return max(map(int, text.split("."))) >= _LARGE_PART or text.startswith(("10.", "172."))


def is_common(name: str) -> bool:
    """Whether an account or a program has this name everywhere."""
    return name.strip("<>").lower() in accounts() or bool(_NUMBERED.fullmatch(name))


def is_of_version(part: str) -> bool:
    """Whether a component of a version is harmless."""
    return bool(_OF_VERSION.fullmatch(part)) and not _MAC.fullmatch(part)


def is_of_capitals(word: str, known: Collection[str]) -> bool:
    """Whether it is a driver's constant: HUBCLIENT_CE0, FBPA12, consisting of known words."""
    if not word.isupper():
        return False
    parts = re.split(r"[_.-]", word)
    return all(
        _ROMAN.fullmatch(part) or (part.isdecimal() and len(part) < 5) or _named(part).lower() in known
        for part in parts
    )


def _named(part: str) -> str:
    name = part.rstrip("0123456789")
    return name if (len(part) - len(name) < 3 and name not in ("NODE", "HOST")) or name == part else ""


def kind_of(name: str) -> str:
    """The placeholder's kind for a name that stands by itself in a text."""
    if name.isdecimal():
        return "account" if len(name) == _ACCOUNT_DIGITS else "number"
    if _HEX.fullmatch(name):
        return "hex"
    return "name"


_HEX = re.compile(r"(?:0x)?(?=[\da-f_]*\d)[\da-f_]{5,32}", re.IGNORECASE)
_MAC = re.compile(r"[0-9a-f]{12}", re.IGNORECASE)
_FLAVOURS = (  # of kernels, distributions, drivers and their states: the only words in versions
    *("aarch64", "aws", "amzn", "amazon", "azure", "cloud", "common", "default", "fips", "gcp", "generic", "gke"),
    *("hwe", "ibm", "lowlatency", "lts", "noarch", "oracle", "realtime", "rt", "server", "tegra", "x86_64"),
    *("centos", "debian", "el", "fc", "linux", "rhel", "rocky", "sles", "suse", "ubuntu"),
    *("core", "cuda", "efa", "kernel", "libfabric", "mlnx", "module", "nccl", "nvidia", "ofed", "open", "rdma"),
    *("alpha", "beta", "build", "debug", "dev", "dirty", "git", "rc", "release", "version"),
)
_OF_VERSION = re.compile(
    r"v?\d{1,8}"
    r"|\d{1,6}(?:[a-z]|rc|alpha|beta|git|amzn|ubuntu|build|deb|dev|post|p|r|el|fc|bpo|mlnx|ga|u|dfsg)\d{0,6}"
    r"|(?:amzn|rc|el|fc|deb|ubuntu|cuda|git|u|r|p|build|gcc)\d{1,6}(?:u\d{1,3})?"
    rf"|[a-z]|x86|(?:amd|arm)?64k?|{'|'.join(_FLAVOURS)}",
    re.IGNORECASE,
)
_SHAPES = (
    _NUMBER,
    _HEXADECIMAL,
    _PLACE,
    _DEVICE,
    _TIME,
    _COUNTED,
    _RANGE,
    _PLACE_OF_AWS,
    TYPE,
    _DOMAIN_OF_AWS,
    _LIBRARY,
    _ZEROS,
    _ROMAN,
)
