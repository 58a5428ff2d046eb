"""What Slurm says of its nodes: `scontrol show node`, with and without -o, and `sinfo`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.evidence.parsing import CaptureError, Form, sections, short

MAX_NODES = 16_384
LONGEST_RECORD = 8_000

_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_VALUES = {
    "name": re.compile(r"NodeName=(\S{1,253})"),
    "host": re.compile(r"\sNodeHostName=(\S{1,253})"),
    "state": re.compile(r"\sState=(\S{1,200})"),
    "gres": re.compile(r"\sGres=(\S{1,1000})"),
    "partitions": re.compile(r"\sPartitions=(\S{1,1000})"),
}
_REASON = re.compile(
    r"\sReason=(.{0,600}?)(?:\s\[([^\[\]@]{1,64})@([^\[\]]{1,40})\])?\s*(?:$|\n|\s[A-Z][A-Za-z]{2,30}=)"
)
_SINFO = re.compile(r"^PARTITION\s{1,40}AVAIL\s{1,40}TIMELIMIT\s{1,40}NODES\s{1,40}STATE\s{1,40}NODELIST", re.MULTILINE)
_SUFFIXES = "*~#!%$@^-"  # of a state in sinfo; only * is kept: the node does not answer


def is_scontrol(text: str) -> bool:
    """Whether it is what `scontrol show node` prints, whole or cut; slurm.conf has NodeName= too, and not its CPUs."""
    return bool(_RECORD.search(text)) and any(word in text for word in ("CPUAlloc=", "AllocCPUs=", "CPUTot="))


def read_scontrol(text: str) -> Mapping[str, object]:
    """The collector `slurm_node`. Raises CaptureError."""
    nodes = [_node(f"{found[0]}{rest}"[:LONGEST_RECORD]) for found, rest in sections(_RECORD, text, MAX_NODES)]
    if not nodes:
        raise CaptureError("scontrol show node names no node")
    return {"slurm_node": {"nodes": nodes}}


def _node(record: str) -> dict[str, object]:
    """One node; a value that scontrol writes as (null) is empty, one that it does not write is left out."""
    data: dict[str, object] = {}
    for name, form in _VALUES.items():
        if found := form.search(record):
            data[name] = "" if found[1] == "(null)" else found[1]
    reason = _REASON.search(record)
    data["reason"] = short(reason[1]) if reason else ""
    data["reason_user"] = reason[2] or "" if reason else ""
    data["reason_time"] = reason[3] or "" if reason else ""
    return data


def is_sinfo(text: str) -> bool:
    """Whether it is the table of plain `sinfo`."""
    return bool(_SINFO.search(text))


def read_sinfo(text: str) -> Mapping[str, object]:
    """The states of the collector `slurm_node`; sinfo shows neither reason nor GRES. Raises CaptureError."""
    found = _SINFO.search(text)
    nodes = list(_of_sinfo(text[found.end() :])) if found else []
    if not nodes:
        raise CaptureError("sinfo lists no node")
    return {"slurm_node": {"nodes": nodes[:MAX_NODES]}}


def _of_sinfo(table: str) -> Iterator[dict[str, object]]:
    """Each node once, though it is in several partitions."""
    seen: set[str] = set()
    for line in table.split("\n")[1:4096]:
        words = line.split()
        if len(words) != 6:
            continue
        try:
            names = expand(words[5])
        except NodesetError:
            continue
        state = words[4].rstrip(_SUFFIXES.replace("*", "")).upper()
        for name in names:
            if name not in seen and len(seen) < MAX_NODES:
                seen.add(name)
                yield {"name": name, "state": state}


FORMS = (
    Form("scontrol show node", is_scontrol, read_scontrol),
    Form("sinfo", is_sinfo, read_sinfo, 30),
)
