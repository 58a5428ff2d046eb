"""Parses tables of `sinfo`: the default, -N, -l, -R, or custom columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.evidence.parsing import CaptureError, short
from clusterproof.plugins.evidence.slurm.facts import LISTED_WITH_REASON, STATES

MAX_NODES = 16_384
MAX_NAMED = 250_000  # nodes named by all rows of a table together, or by all tables of a text
MAX_BEHIND = 1_000  # rows after an empty line that are named
REFUSED = 4_000  # nodes that a refused table counts for: to find out that it is refused takes as long

# A table of sinfo: jobs' tables have NODELIST and STATE too. If there is no STATE, TIMESTAMP marks that of -R.
_TITLES = re.compile(
    r"^(?=[A-Z][A-Z_: ]{10,300}$)(?=.*\bNODELIST\b)(?=.*\b(?:STATE|TIMESTAMP)\b)"
    r"(?!.*\b(?:JOBID|ST|EXITCODE)\b)(?=(?!.*\bUSER\b)|.*\b(?:REASON|TIMESTAMP)\b).*$",
    re.MULTILINE,
)
# The line after a table: an empty one, the date above `sinfo -l`, titles of sacct, or other titles.
_END = re.compile(
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [\d ]\d \d\d:\d\d:\d\d(?: [A-Z]{2,5})? \d{4}"
    r"|JobID(?:[ |]{1,80}[A-Z][A-Za-z]{1,40}){1,40}\|?"
    r"|[A-Z_:()/]{1,40}(?: {1,80}[A-Z_:()/]{1,40}){1,40}"
)
_READ = frozenset(("STATE", "REASON", "USER", "TIMESTAMP", "NODELIST"))  # titles of the columns that are read
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\S{1,40}|Unknown")
_USER = re.compile(r"\(\d{1,10}\)\Z")  # its number, behind its name
_SUFFIXES = "*~#!%$@^-+"  # marks of a state in sinfo; only * is kept: the node does not answer
_OF_JOBS = frozenset(("RUNNING", "PENDING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED"))


def is_sinfo(text: str) -> bool:
    """Whether this is a table of `sinfo`, the default one or with -N, -l, -R or custom columns."""
    return bool(_TITLES.search(text))


def begins_sinfo(line: str) -> bool:
    """Whether a line has the titles of such a table; each table is read by itself."""
    return "NODELIST" in line and bool(_TITLES.fullmatch(line))


def read_sinfo(text: str) -> Mapping[str, object]:
    """The states and reasons for the collector `slurm_node`, as far as a table has them. Raises CaptureError.

    A list of reasons is empty if no node has one.
    """
    table = table_in(text)
    if table.refused:
        raise CaptureError(table.refused)
    nodes = [{"name": name, **_of_row(row)} for name, row in itertools.islice(table.by_node.items(), MAX_NODES)]
    if not nodes and "STATE" in table.titles:
        raise CaptureError("sinfo lists no node")
    return {"slurm_node": {"nodes": nodes}} if nodes else {}


def unclear_rows(text: str) -> list[str]:
    """A line for each row of a table that is not understood."""
    return table_in(text).unclear


def nodes_named(text: str) -> int:
    """The nodes that a table names, at least one: in a loop of sinfo each table has all of them."""
    table = table_in(text)
    return REFUSED if table.refused else max(len(table.by_node), 1)


@dataclass(frozen=True, slots=True)
class Table:
    """Each node's row, a line for each row that is not understood, and all other lines.

    A refused table has only other lines, and the reason.
    """

    titles: Sequence[str] = ()
    by_node: dict[str, Mapping[str, str]] = field(default_factory=dict)
    unclear: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    refused: str = ""


def table_in(text: str) -> Table:
    """The first table of a text."""
    titles = _TITLES.search(text)
    if not titles:
        return Table(rest=[text])
    before, below = text[: titles.start()], text[titles.end() :].split("\n")[1:]
    try:
        return _table(titles[0].split(), below, before)
    except CaptureError as problem:
        return Table(rest=[before, *below], refused=str(problem))


def _table(titles: Sequence[str], below: Sequence[str], before: str) -> Table:
    """A table by its titles and the lines below them. Raises CaptureError."""
    if "REASON" in titles and "RESERVATION" in titles:
        raise CaptureError("sinfo's table has REASON beside RESERVATION, which may be blank: leave one of them out")
    end = next((index for index, line in enumerate(below) if _END.fullmatch(line.strip())), len(below))
    table = Table(titles, unclear=_rows_behind(titles, below[end:]), rest=[before, *below[end:]])
    expanded: dict[str, tuple[str, ...]] = {}
    named, odd = 0, ""
    for line in below[:end]:
        if "REASON" in titles[1:-1] and len(line.split()) > len(titles):
            raise CaptureError("sinfo's table has REASON between other columns: print it as the last")
        row = _row(titles, line)
        unknown = _odd_state(row)
        odd = unknown if unknown and odd not in _OF_JOBS else odd
        nodelist = row.get("NODELIST", "")
        if nodelist not in expanded and not unknown:
            expanded[nodelist] = _names(nodelist)
        names = () if unknown else expanded[nodelist]
        named += max(len(names), bool(row))
        if named > MAX_NAMED:
            raise CaptureError(f"sinfo's rows name nodes {MAX_NAMED:,} times and more; print one partition (sinfo -p)")
        if names and ("STATE" in row or _reason(row)):
            table.by_node.update((name, row) for name in names if name not in table.by_node)  # of one partition
        else:
            table.unclear.extend([_not_understood(line)] if row else ())
            table.rest.append(line)
    if odd and (not table.by_node or odd in _OF_JOBS):
        raise CaptureError(f"sinfo's table has the state {short(odd)}, which is no state of a node")
    return table


def _row(titles: Sequence[str], line: str) -> dict[str, str]:
    """The cells of a line by the titles above; empty if it is not a row."""
    # A reason may have several words: it gets what the other columns leave of a line. A reservation is often blank.
    most = len(titles) - 1
    cells = line.rsplit(maxsplit=most) if titles[0] == "REASON" else line.split(maxsplit=most)
    columns = [title for title in titles if title != "RESERVATION"] if len(cells) == most else titles
    row = dict(zip(columns, (cell.strip() for cell in cells), strict=False))
    is_row = len(cells) == len(columns) and ("STATE" in row or _TIME.fullmatch(row.get("TIMESTAMP", "")))
    return row if is_row else {}


def _rows_behind(titles: Sequence[str], lines: Sequence[str]) -> list[str]:
    """A line for each row after an empty line, up to the end of the table: it may belong to another table."""
    behind = itertools.takewhile(lambda line: not line or not _END.fullmatch(line.strip()), lines)
    rows = ((line, _row(titles, line)) for line in behind)
    odd = (_not_understood(line) for line, row in rows if row and not _odd_state(row))
    return list(itertools.islice(odd, MAX_BEHIND))


def _odd_state(row: Mapping[str, str]) -> str:
    """The text that a row has in place of a node's state."""
    state = row.get("STATE", "").upper().rstrip(_SUFFIXES)
    return "" if STATES.issuperset(state.split("+") if state else ()) else state


def _names(nodelist: str) -> tuple[str, ...]:
    """The nodes of a row; none if it does not name them as Slurm does."""
    try:
        return expand(nodelist)
    except NodesetError:
        return ()


def _reason(row: Mapping[str, str]) -> str:
    """Why a node gets no jobs; empty if no reason was given, which is possible for any node, also in -R."""
    reason = row.get("REASON", "none")
    return "" if reason == "none" else short(reason)


def _not_understood(line: str) -> str:
    expected = "a state of nodes or a reason, and names such as gpu[001-016,020]"
    return f"sinfo's row {line!r:.80} is not understood; expected {expected}"


def _of_row(row: Mapping[str, str]) -> dict[str, object]:
    """What a row says about its nodes; with a reason alone, that they get no jobs."""
    state = row.get("STATE", "").upper()
    node: dict[str, object] = {"state": state.rstrip(_SUFFIXES.replace("*", "")) or LISTED_WITH_REASON}
    if reason := _reason(row):
        node["reason"] = reason
        node["reason_user"] = _USER.sub("", short(row.get("USER", "")))
        node["reason_time"] = short(row.get("TIMESTAMP", ""))
    return node


def record_of(row: Mapping[str, str], name: str) -> str:
    """A row's entry for one of its nodes, as sinfo would print it for this node alone."""
    own = {title: short(cell) for title, cell in row.items() if title in _READ} | {"NODELIST": name}
    return f"{' '.join(own)}\n{' '.join(own.values())}\n"


def without_titles(text: str) -> str:
    """The text without titles, so that no other form takes the table's rows for sinfo's."""
    return _TITLES.sub("", text)
