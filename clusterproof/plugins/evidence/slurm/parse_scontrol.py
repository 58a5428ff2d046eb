"""Parses `scontrol show node`, with and without -o, even if a terminal or a mail has wrapped it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from clusterproof.plugins.evidence.parsing import CaptureError, short

MAX_NODES = 16_384
LONGEST_RECORD = 8_000
NARROWEST = 20  # characters of a terminal's line

# A line of slurm.conf begins like a record, but has none of these keys.
_ITS_OWN = re.compile(
    r"\s(?:Arch|CPU(?:Alloc|Efctv|Err|Tot|Load)|AllocCPUs|(?:Available|Active)Features|OS|FreeMem|AllocMem|Partitions"
    r"|MCS_label|BootTime|SlurmdStartTime|LastBusyTime|(?:Cfg|Alloc)TRES)="
)
_VALUES = {
    "name": re.compile(r"NodeName=(\S{1,253})"),
    "host": re.compile(r"\sNodeHostName=(\S{1,253})"),
    "state": re.compile(r"\sState=(\S{1,200})"),
    "gres": re.compile(r"\sGres=(\S{1,1000})"),
    "partitions": re.compile(r"\sPartitions=(\S{1,1000})"),
}
_REASON = re.compile(r"\sReason=")
_STAMP = re.compile(  # who set a reason and when, after its text; comments may follow
    r"\s\[([^\[\]]{1,64})@(\d[\d:T.-]{4,30}|Unknown)\]\s*(?:$|\n|\s[A-Z][A-Za-z]{2,30}=)"
)
_NEXT = re.compile(r"\n|\s[A-Z][A-Za-z]{2,30}=")
# The keys that follow a node's name in a record, as in Slurm's node_info.c; at the margin others have keys too.
_KEYS = (
    r"(?:Arch|CoresPerSocket|CPU(?:Alloc|Efctv|Err|Tot|Load|SpecList)|AllocCPUs|(?:Available|Active)?Features"
    r"|Gres(?:Drain|Used)?|Node(?:Addr|HostName)|BcastAddr|Port|Version|OS|(?:Real|Free)Memory|(?:Alloc|Free)Mem"
    r"|Sockets(?:PerBoard)?|Boards|CoreSpecCount|MemSpecLimit|(?:Next)?State|ThreadsPerCore|TmpDisk|Weight|Owner"
    r"|MCS_label|Partitions|BootTime|SlurmdStartTime|LastBusyTime|ResumeAfterTime|(?:Cfg|Alloc)TRES"
    r"|(?:Cap|Current|Ave)Watts|(?:Lowest|Consumed)Joules|ExtSensors[A-Z][a-z]{1,20}|Reason|Comment|Extra"
    r"|Instance(?:Id|Type))="
)
_OWN = re.compile(rf"[ \t]{{1,80}}[A-Z]\w{{1,40}}=|{_KEYS}")  # how a line of a record begins
_WITHIN = re.compile(rf"\s{_KEYS}")
_STAMPS_END = re.compile(r"(?:.{0,300}@)?[\dT:-]{0,30}\]")
_ANOTHER = re.compile(  # how the record of the next node, or something else, begins
    r"(?:Node|Partition|Reservation|Frontend|Switch|Block|License|User)Name=|(?:Job|Step)Id="
)


def is_scontrol(text: str) -> bool:
    """Whether the text has a record of `scontrol show node`, complete or cut."""
    return "NodeName=" in text and bool(records_in(text)[0])


def read_scontrol(text: str) -> Mapping[str, object]:
    """The collector `slurm_node`. Raises CaptureError."""
    nodes = [node_of(record) for record in records_in(text)[0]]
    if not nodes:
        raise CaptureError("scontrol show node names no node")
    return {"slurm_node": {"nodes": nodes}}


def without_state(text: str) -> list[str]:
    """A line for each record that is cut before the node's state."""
    names = [node.get("name") for node in map(node_of, records_in(text)[0]) if "state" not in node]
    expected = f"expected whole records, in lines of {NARROWEST} characters and more"
    return [f"scontrol's record of {name!s:.80} has no State; {expected}" for name in names]


def node_of(record: str) -> dict[str, object]:
    """One node; a value that scontrol writes as (null) is empty, a missing one is left out."""
    node: dict[str, object] = {}
    values, reason = [*_REASON.split(record, 1), ""][:2]  # the text of a reason may look like any value
    for name, form in _VALUES.items():
        if match := form.search(values):
            node[name] = "" if match[1] == "(null)" else match[1]
    if not reason:
        return node
    stamp = _STAMP.search(reason)
    node["reason"] = short((reason[: stamp.start()] if stamp else _NEXT.split(reason)[0]).strip())
    node["reason_user"], node["reason_time"] = stamp.groups() if stamp else ("", "")
    return node


def records_in(text: str) -> tuple[list[str], str]:
    """The records of nodes, however their lines were wrapped, and all lines that belong to none."""
    records: list[str] = []
    rest: list[str] = []
    lines = text.split("\n")
    begin = 0
    while begin < len(lines):
        end = begin + 1
        if lines[begin].startswith("NodeName="):
            while end < len(lines) and _is_further(lines, end):
                end += 1
            record = _unwrapped([line for line in lines[begin:end] if line])[:LONGEST_RECORD]
            if _ITS_OWN.search(record):
                records.append(record)
            else:
                rest += lines[begin:end]
        else:
            rest.append(lines[begin])
        begin = end
    return records[:MAX_NODES], "\n".join(rest)


def _is_further(lines: Sequence[str], index: int) -> bool:
    """Whether a line continues the record before it: it begins with a key, or is the rest of a wrapped line.

    Such a rest is followed by a key of the same record, or ends the stamp of a reason.
    """
    if not lines[index]:
        return index + 1 < len(lines) and bool(_OWN.match(lines[index + 1]))
    for before, line in itertools.pairwise(lines[index - 1 : index + 20]):
        if _OWN.match(line):
            return True
        if not line or len(before) < NARROWEST or _ANOTHER.match(line):
            return False
        if _WITHIN.search(line) or _STAMPS_END.fullmatch(line):
            return True
    return False


def _unwrapped(lines: Sequence[str]) -> str:
    """A record with lines that begin with keys. A terminal cuts lines at its width; wrapping at blanks does not."""
    pairs = list(itertools.pairwise(lines))
    width = max(map(len, lines))
    cut = [len(before) for before, line in pairs if not _OWN.match(line)]
    is_at_blanks = any(length < width - 1 for length in cut)  # the blank at which a line was cut, which is lost
    record = [lines[0]]
    for before, line in pairs:
        is_torn = len(before) == width and not is_at_blanks
        record += ["\n" if _OWN.match(line) else "" if is_torn else " ", line]
    return "".join(record)
