"""What Slurm says of its nodes: `scontrol show node`, with and without -o, and the tables of `sinfo`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.evidence.parsing import CaptureError, Form, sections, short
from clusterproof.plugins.evidence.slurm.facts import LISTED_WITH_REASON

MAX_NODES = 16_384
LONGEST_RECORD = 8_000
MAX_TABLES, MAX_NAMED = 1_024, 250_000  # of sinfo in one text; nodes that all their rows together name

_RECORD = re.compile(r"^NodeName=.*(?:\n[ \t]{1,80}\S.*){0,200}", re.MULTILINE)  # its further lines are indented
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
_READ = frozenset(("STATE", "REASON", "USER", "TIMESTAMP", "NODELIST"))  # titles of the columns that count
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
    nodes = [_node(record) for record in _records(text)]
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


def _records(text: str) -> list[str]:
    return [match[0][:LONGEST_RECORD] for match in itertools.islice(_RECORD.finditer(text), MAX_NODES)]


@dataclass(frozen=True, slots=True)
class Listed:
    """What `scontrol show node` and `sinfo` say of each node, what else is there, and rows that are not understood.

    Where a table is refused everything is what else is there, and whoever reads that says why.
    """

    by_node: Mapping[str, Collection[str]]
    unclear: list[str] = field(default_factory=list)
    rest: str = ""


def listed_in(text: str) -> Listed:
    """What of a text is of which node, each once."""
    records = _records(text) if is_scontrol(text) else []
    by_node: dict[str, dict[str, None]] = {}
    for record in records:
        by_node.setdefault(str(_node(record).get("name", "")), {})[record] = None
    try:
        tables = _tables(_RECORD.sub("", text) if records else text)
    except CaptureError:
        return Listed({}, rest=text)
    for row, names in tables.rows:
        for name in names:
            by_node.setdefault(name, {})[_table(row, name)] = None
    by_node.pop("", None)
    return Listed(by_node, tables.unclear, "\n".join(tables.rest)) if by_node else Listed({}, rest=text)


def _table(row: Mapping[str, str], name: str) -> str:
    """What a row says of one of its nodes, as sinfo would print it of this one alone."""
    own = {title: short(cell) for title, cell in row.items() if title in _READ} | {"NODELIST": name}
    titles = " ".join(own)
    return f"{_LIST_OF_REASONS if titles.split() == _LIST_OF_REASONS.split() else titles}\n{' '.join(own.values())}\n"


def is_sinfo(text: str) -> bool:
    """Whether it is a table of `sinfo`, as it comes or with -N, -l, -R or columns of one's own."""
    return bool(_TITLES.search(text))


def read_sinfo(text: str) -> Mapping[str, object]:
    """The states and reasons of the collector `slurm_node`, as far as its tables have them. Raises CaptureError."""
    nodes: dict[str, dict[str, object]] = {}
    for row, names in _tables(text).rows:
        entry = _of_row(row)
        for name in names[: MAX_NODES - len(nodes)]:
            nodes.setdefault(name, {"name": name, **entry})  # once, though it is in several partitions
    if not nodes:
        raise CaptureError("sinfo lists no node")
    return {"slurm_node": {"nodes": list(nodes.values())}}


@dataclass(frozen=True, slots=True)
class _Tables:
    """The rows of tables of sinfo with the nodes of each, all other lines, and those of them that are almost rows."""

    rows: list[tuple[dict[str, str], tuple[str, ...]]] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)


def _tables(text: str) -> _Tables:
    """All tables of sinfo in a text. Raises CaptureError."""
    found = sections(_TITLES, text, MAX_TABLES + 1)
    if len(found) > MAX_TABLES:
        raise CaptureError(f"more than {MAX_TABLES:,} tables of sinfo in one output; print one of them")
    tables = _Tables(rest=[text[: found[0][0].start()] if found else text])
    expanded: dict[str, tuple[str, ...]] = {}
    named, odd = 0, ""
    for titles, below in found:
        for line, row in _rows(titles[0], below.split("\n")[1:]):
            state = row.get("STATE", "").upper().rstrip(_SUFFIXES)
            is_odd = bool(state) and not _STATES.issuperset(state.split("+"))
            odd = state if is_odd and odd not in _OF_JOBS else odd
            nodelist = row.get("NODELIST", "")
            names = expanded.get(nodelist) or _names(nodelist)
            if names and not is_odd:
                expanded[nodelist] = names
                tables.rows.append((row, names))
                named += len(names)
            else:
                tables.unclear.extend([line] if row and (names or not is_odd) else ())
                tables.rest.append(line)
            if named > MAX_NAMED:
                raise CaptureError(
                    f"sinfo's rows name nodes {MAX_NAMED:,} times and more; print one partition (sinfo -p)"
                )
    if odd and (not tables.rows or odd in _OF_JOBS):
        raise CaptureError(f"sinfo's table has the state {short(odd)}, which is no state of a node")
    return tables


def _names(nodelist: str) -> tuple[str, ...]:
    """The nodes of a row; none where it does not name them as Slurm does."""
    try:
        return expand(nodelist)
    except NodesetError:
        return ()


def _rows(header: str, lines: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line below a table's titles with what it says; nothing where it is no row. Raises CaptureError.

    Rows of nodes without a reason that have no state are left out.
    """
    titles = header.split()
    # A reason is of several words: it is what the other columns leave of a line. A reservation is often blank.
    most = len(titles) - 1
    if "REASON" in titles and "RESERVATION" in titles:
        raise CaptureError("sinfo's table has REASON beside RESERVATION, which may be blank: leave one of them out")
    end = next((place for place, line in enumerate(lines) if _END.fullmatch(line.strip())), len(lines))
    for line in lines[:end]:
        cells = line.rsplit(maxsplit=most) if titles[0] == "REASON" else line.split(maxsplit=most)
        if "REASON" in titles[1:-1] and len(line.split()) > len(titles):
            raise CaptureError("sinfo's table has REASON between other columns: print it as the last")
        columns = [title for title in titles if title != "RESERVATION"] if len(cells) == most else titles
        row = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
        is_row = len(cells) == len(columns) and ("STATE" in row or _TIME.fullmatch(row.get("TIMESTAMP", "")))
        is_listed = header.rstrip() == _LIST_OF_REASONS or row.get("REASON", "none") != "none"
        if not is_row or "STATE" in row or is_listed:
            yield line, row if is_row else {}
    yield from ((line, {}) for line in lines[end:])


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
