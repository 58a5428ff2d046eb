"""What Slurm says of its nodes: `scontrol show node`, with and without -o, and the tables of `sinfo`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.evidence.parsing import CaptureError, Form, sections, short
from clusterproof.plugins.evidence.slurm.facts import LISTED_WITH_REASON

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
_TITLES = re.compile(r"^(?=.*\bNODELIST\b)(?=.*\b(?:STATE|REASON)\b)[A-Z][A-Z_: ]{10,300}$", re.MULTILINE)
_USER = re.compile(r"\(\d{1,10}\)\Z")  # its number, behind its name
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
    """Whether it is a table of `sinfo`, as it comes or with -N, -l, -R or columns of one's own."""
    return bool(_TITLES.search(text))


def read_sinfo(text: str) -> Mapping[str, object]:
    """The states and reasons of the collector `slurm_node`, as far as the table has them. Raises CaptureError."""
    found = _TITLES.search(text)
    nodes = list(_of_sinfo(found[0].split(), text[found.end() :])) if found else []
    if not nodes:
        raise CaptureError("sinfo lists no node")
    return {"slurm_node": {"nodes": nodes[:MAX_NODES]}}


def _of_sinfo(titles: list[str], table: str) -> Iterator[dict[str, object]]:
    """Each node once, though it is in several partitions."""
    seen: set[str] = set()
    for line in table.split("\n")[1:4096]:
        # A reason is of several words: it is what the other columns leave of a line.
        others = len(titles) - 1
        words = line.rsplit(maxsplit=others) if titles[0] == "REASON" else line.split(maxsplit=others)
        if len(words) != len(titles):
            continue
        row = dict(zip(titles, (word.strip() for word in words), strict=True))
        with suppress(NodesetError):
            for name in expand(row["NODELIST"]):
                if name not in seen and len(seen) < MAX_NODES:
                    seen.add(name)
                    yield {"name": name, **_of_row(row)}


def _of_row(row: Mapping[str, str]) -> dict[str, object]:
    """What a line says of each of its nodes; of those with a reason alone, only that Slurm gives them no jobs."""
    state = row.get("STATE", LISTED_WITH_REASON)
    data: dict[str, object] = {"state": state.rstrip(_SUFFIXES.replace("*", "")).upper()}
    if row.get("REASON", "none") != "none":
        data["reason"] = short(row["REASON"])
        data["reason_user"] = _USER.sub("", short(row.get("USER", "")))
        data["reason_time"] = short(row.get("TIMESTAMP", ""))
    return data


FORMS = (
    Form("scontrol show node", is_scontrol, read_scontrol),
    Form("sinfo", is_sinfo, read_sinfo, 30),
)
