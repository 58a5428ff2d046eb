"""What Slurm says of its nodes: `scontrol show node`, with and without -o, and the tables of `sinfo`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.evidence.parsing import CaptureError, Form, sections, short
from clusterproof.plugins.evidence.slurm.facts import LISTED_WITH_REASON

MAX_NODES = 16_384
LONGEST_RECORD = 8_000
MAX_TABLES, LONGEST_TABLE = 64, 4_096  # of sinfo in one text; lines

_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_VALUES = {
    "name": re.compile(r"NodeName=(\S{1,253})"),
    "host": re.compile(r"\sNodeHostName=(\S{1,253})"),
    "state": re.compile(r"\sState=(\S{1,200})"),
    "gres": re.compile(r"\sGres=(\S{1,1000})"),
    "partitions": re.compile(r"\sPartitions=(\S{1,1000})"),
}
_REASON = re.compile(r"\sReason=")
_STAMP = re.compile(  # of who set a reason and when, behind its text; comments may follow
    r"\s\[([^\[\]]{1,64})@(\d[\d:T.-]{4,30}|Unknown)\]\s*(?:$|\n|\s[A-Z][A-Za-z]{2,30}=)"
)
_NEXT = re.compile(r"\n|\s[A-Z][A-Za-z]{2,30}=")
# Of a table of sinfo: those of jobs have NODELIST and STATE too. Where there is no STATE, TIMESTAMP is that of -R.
_TITLES = re.compile(
    r"^(?=[A-Z][A-Z_: ]{10,300}$)(?=.*\bNODELIST\b)(?=.*\b(?:STATE|TIMESTAMP)\b)"
    r"(?!.*\b(?:JOBID|ST|EXITCODE)\b)(?=(?!.*\bUSER\b)|.*\b(?:REASON|TIMESTAMP)\b).*$",
    re.MULTILINE,
)
_LIST_OF_REASONS = "REASON               USER      TIMESTAMP           NODELIST"  # of -R: no node in it gets jobs
# The line behind a table: an empty one, the date above `sinfo -l`, titles of sacct, or other titles.
_END = re.compile(
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [\d ]\d \d\d:\d\d:\d\d(?: [A-Z]{2,5})? \d{4}"
    r"|JobID(?:[ |]{1,80}[A-Z][A-Za-z]{1,40}){1,40}\|?"
    r"|[A-Z_:()/]{1,40}(?: {1,80}[A-Z_:()/]{1,40}){1,40}"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\S{1,40}|Unknown")
_USER = re.compile(r"\(\d{1,10}\)\Z")  # its number, behind its name
_SUFFIXES = "*~#!%$@^-+"  # of a state in sinfo; only * is kept: the node does not answer
_WORDS = """
ALLOCATED BLOCKED CANCEL_REBOOT CLOUD COMPLETING DOWN DRAIN DRAINED DRAINING DYNAMIC_FUTURE DYNAMIC_NORM ERROR
EXTERNAL FAIL FAILING FUTURE IDLE INVAL INVALID INVALID_REG MAINT MAINTENANCE MIXED NOT_RESPONDING NO_RESPOND
PERFCTRS PLANNED POWERED_DOWN POWERING_DOWN POWERING_UP POWER_DOWN POWER_UP REBOOT REBOOT_CANCELED REBOOT_ISSUED
REBOOT_REQUESTED RESERVED RESUME UNDRAIN UNKNOWN
ALLOC BLOCK BOOT CANC_R COMP DRNG EXT FAILG FUTR MIX NPC PLND POWERED_DN POWERING_DN POWRING_DN POW_DN POW_UP RESM
RESV UNK
"""
_STATES = frozenset(_WORDS.split())  # of a node, in full and as sinfo shortens them
_OF_JOBS = frozenset(("RUNNING", "PENDING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED"))


def is_scontrol(text: str) -> bool:
    """Whether it is what `scontrol show node` prints, whole or cut; slurm.conf has NodeName= too, and not its CPUs."""
    return bool(_RECORD.search(text)) and any(word in text for word in ("CPUAlloc=", "AllocCPUs=", "CPUTot="))


def read_scontrol(text: str) -> Mapping[str, object]:
    """The collector `slurm_node`. Raises CaptureError."""
    nodes = [_node(f"{head[0]}{rest}"[:LONGEST_RECORD]) for head, rest in sections(_RECORD, text, MAX_NODES)]
    if not nodes:
        raise CaptureError("scontrol show node names no node")
    return {"slurm_node": {"nodes": nodes}}


def _node(record: str) -> dict[str, object]:
    """One node; a value that scontrol writes as (null) is empty, one that it does not write is left out."""
    node: dict[str, object] = {}
    values, said = [*_REASON.split(record, 1), ""][:2]  # the text of a reason may look like any value
    for name, form in _VALUES.items():
        if match := form.search(values):
            node[name] = "" if match[1] == "(null)" else match[1]
    stamp = _STAMP.search(said)
    node["reason"] = short((said[: stamp.start()] if stamp else _NEXT.split(said)[0]).strip())
    node["reason_user"], node["reason_time"] = stamp.groups() if stamp else ("", "")
    return node


def listed_in(text: str) -> dict[str, str]:
    """What `scontrol show node` or `sinfo` says of each node that it lists, by name; none where it is neither."""
    listed: dict[str, list[str]] = {}
    if is_scontrol(text):
        for head, rest in sections(_RECORD, text, MAX_NODES):
            record = f"{head[0]}{rest}"[:LONGEST_RECORD]
            listed.setdefault(str(_node(record).get("name", "")), []).append(record)
    elif is_sinfo(text):
        with suppress(CaptureError):
            for row in _rows_of_tables(text):
                for name in _names(row, MAX_NODES - len(listed)):
                    own = {**row, "NODELIST": name}
                    listed.setdefault(name, []).append(f"{' '.join(own)}\n{' '.join(own.values())}\n")
    return {name: "\n".join(some) for name, some in listed.items() if name}


def is_sinfo(text: str) -> bool:
    """Whether it is a table of `sinfo`, as it comes or with -N, -l, -R or columns of one's own."""
    return bool(_TITLES.search(text))


def read_sinfo(text: str) -> Mapping[str, object]:
    """The states and reasons of the collector `slurm_node`, as far as its tables have them. Raises CaptureError."""
    nodes: dict[str, dict[str, object]] = {}
    odd = ""
    for row in _rows_of_tables(text):
        state = row.get("STATE", "").upper().rstrip(_SUFFIXES)
        if state and not _STATES.issuperset(state.split("+")):
            odd = odd if odd in _OF_JOBS else state
            continue
        entry = _of_row(row)
        for name in _names(row, MAX_NODES - len(nodes)):
            nodes.setdefault(name, {"name": name, **entry})  # once, though it is in several partitions
    if odd and (not nodes or odd in _OF_JOBS):
        raise CaptureError(f"sinfo's table has the state {short(odd)}, which is no state of a node")
    if not nodes:
        raise CaptureError("sinfo lists no node")
    return {"slurm_node": {"nodes": list(nodes.values())}}


def _rows_of_tables(text: str) -> Iterator[dict[str, str]]:
    """The rows of all tables of sinfo in a text. Raises CaptureError."""
    for titles, rest in sections(_TITLES, text, MAX_TABLES):
        yield from _rows(titles[0], rest.split("\n")[1:LONGEST_TABLE])


def _names(row: Mapping[str, str], most: int) -> tuple[str, ...]:
    """The nodes of a row, the first of too many."""
    with suppress(NodesetError):
        return expand(row["NODELIST"])[:most]
    return ()


def _rows(header: str, lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """What each line of a table has below its titles. Raises CaptureError where that is not clear."""
    titles = header.split()
    # A reason is of several words: it is what the other columns leave of a line. A reservation is often blank.
    most = len(titles) - 1
    if "REASON" in titles and "RESERVATION" in titles:
        raise CaptureError("sinfo's table has REASON beside RESERVATION, which may be blank: leave one of them out")
    for line in itertools.takewhile(lambda line: not _END.fullmatch(line.strip()), lines):
        cells = line.rsplit(maxsplit=most) if titles[0] == "REASON" else line.split(maxsplit=most)
        if "REASON" in titles[1:-1] and len(line.split()) > len(titles):
            raise CaptureError("sinfo's table has REASON between other columns: print it as the last")
        columns = [title for title in titles if title != "RESERVATION"] if len(cells) == most else titles
        row = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
        is_listed = header.rstrip() == _LIST_OF_REASONS or row.get("REASON", "none") != "none"
        gets_no_jobs = is_listed and _TIME.fullmatch(row.get("TIMESTAMP", ""))
        if len(cells) == len(columns) and ("STATE" in row or gets_no_jobs):
            yield row


def _of_row(row: Mapping[str, str]) -> dict[str, object]:
    """What a line says of its nodes; of those with a reason alone, that they get no jobs."""
    state = row.get("STATE", "").upper()
    node: dict[str, object] = {"state": state.rstrip(_SUFFIXES.replace("*", "")) or LISTED_WITH_REASON}
    if row.get("REASON", "none") != "none":
        node["reason"] = short(row["REASON"])
        node["reason_user"] = _USER.sub("", short(row.get("USER", "")))
        node["reason_time"] = short(row.get("TIMESTAMP", ""))
    return node


FORMS = (
    Form("scontrol show node", is_scontrol, read_scontrol),
    Form("sinfo", is_sinfo, read_sinfo, 30),
)
