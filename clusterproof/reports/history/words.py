"""The history as text: lines for a run's terminal, and the output of `clusterproof history`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from clusterproof.plugins.core.message import listed, number_of, printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history import FOUND, Past, PastRun
from clusterproof.reports.history.changes import GONE, STILL, Change, Changes, between, headline
from clusterproof.reports.history.trends import GPU, Offender, Trend, flaps, offenders, places, trends

MAX_NODES = 200  # characters of a nodeset in a line
MAX_ROWS = 20  # of a table, without --all
MAX_LINES = 12  # of new or gone findings, in a run's own summary
_BARS = "▁▂▃▄▅▆▇█"
_SHOWN_VALUES = 12
_NOW = {Verdict.PASS: "now passes", Verdict.NOT_APPLICABLE: "no longer applies"}  # of what was found, or not measured
_NUMBER = re.compile(r"(\d+)")
_CHANGE_COLUMNS = ("change", "now", "before", "check", "nodes")
_FLAPPING_COLUMNS = ("came", "looked at in", "now", "check", "nodes")
_OFFENDER_COLUMNS = ("runs", "hardware", "nodes", "what became of it", "checks")
_PLACE_COLUMNS = ("node", "check", "failed in", "hardware, one after the other")
_MEASURED_COLUMNS = ("change", "last", "usual", "runs", "node", "trend")
COLUMNS = tuple(
    dict.fromkeys(_CHANGE_COLUMNS + _FLAPPING_COLUMNS + _OFFENDER_COLUMNS + _PLACE_COLUMNS + _MEASURED_COLUMNS)
)
MAX_CELL = 100  # characters of a cell; the last column of a row is unlimited


def moment(seconds: float) -> str:
    """`2026-03-01 08:00 UTC`."""
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return "an invalid time"


def ago(seconds: float) -> str:
    """`2 h ago`."""
    if seconds < -60:
        return "by a clock that was ahead of this one"
    for size, most, unit in ((60, 3600, "min"), (3600, 172_800, "h")):
        if size <= seconds < most:
            return f"{seconds // size:.0f} {unit} ago"
    return "just now" if seconds < 60 else f"{seconds // 86_400:.0f} days ago"


def lines_since(last: PastRun | None, changes: Changes, now: float, command: str) -> Iterator[str]:
    """A run's summary of changes: the headline, then new and gone findings by check; `command` shows all of them."""
    if last is None:
        yield "since the last run: this is the first one in the history"
        return
    yield f"since the last run ({ago(now - last.began)}, {moment(last.began)}): {printable(headline(changes))}"
    lines = [line for kind, changed in changes.kinds if kind != STILL for line in folded(kind, changed)]
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield f"  … and {len(lines) - MAX_LINES} more lines; all of them: {printable(command)}"


def folded(kind: str, changes: Iterable[Change]) -> Iterator[str]:
    """A line for each check that is new, still there or gone, the most severe first, with nodes folded.

    Checks of the same nodes with a common cause, such as an answer that did not arrive, share a line.
    """
    nodes: dict[tuple[str, Verdict, str, str, tuple[str, ...], bool], list[str]] = defaultdict(list)
    for change in sorted(changes, key=_gravest_first):
        is_gap = _is_gap(change)
        cause = change.cause if is_gap else ""
        others = change.devices if change.is_of_others else ()
        nodes[change.check, change.now, change.title, cause, others, is_gap].append(change.node)
    alike: dict[tuple[bool, str, str], list[str]] = defaultdict(list)
    for (check, now, title, cause, others, is_gap), names in nodes.items():
        word = _NOW.get(now, now.value) if kind == GONE else now.value
        label = (f"{title} ({check})" if title else check) + (f", now of {listed(others)}" if others else "")
        shared = f"{word}: {cause}" if cause else word
        key = (is_gap, fold(names), shared if is_gap else f"{word}: {label}")
        alike[key].append(f"{word}: {label}")
    for (_, folded_names, shared), lines in alike.items():
        message = lines[0] if len(lines) == 1 else f"{shared} ({len(lines)} checks)"
        yield printable(f"  {kind:<5} {within(folded_names, MAX_NODES)}: {message}")


def _is_gap(change: Change) -> bool:
    """Whether evidence is missing, or is back without a finding."""
    return Verdict.INCOMPLETE in (change.now, change.before) and change.now not in FOUND


def _gravest_first(change: Change) -> tuple[bool, int]:
    return _is_gap(change), min(verdict.rank for verdict in (change.now, change.before or change.now))


def page(past: Past, sort: str = "", most: int = MAX_ROWS) -> Iterator[str]:
    """The whole output of `clusterproof history` for a cluster."""
    last = past.runs[-1]
    earlier = past.runs[:-1]
    greens = [run for run in earlier if run.is_green]
    runs = number_of(len(past.runs), "run")
    shown = f"{runs}, the last of {len(past.runs) + past.earlier:,}," if past.earlier else runs
    yield f"{printable(last.cluster)}: {shown} since {moment(past.runs[0].began)}"
    yield printable(f"last run: {_run(last)}")
    none = f"none in {runs}; --runs N looks further back" if past.earlier else "none"
    yield printable(f"last green run before it: {_run(greens[-1]) if greens else none}")
    for title, table in _sections(past, last, earlier[-1:], greens[-1:]):
        yield ""
        yield printable(title if table.rows else f"{title}: nothing")
        if table.rows:
            yield from (printable(f"  {line}") for line in table.sorted_by(sort).lines(most))


def _sections(
    past: Past, last: PastRun, before: Iterable[PastRun], green: Iterable[PastRun]
) -> Iterator[tuple[str, Table]]:
    for run in before:
        changes = between(past, run.number, last.number)
        yield f"Since the run before it ({moment(run.began)}): {headline(changes)}", _changes(changes)
    for run in green:
        changes = between(past, run.number, last.number)
        yield f"Since the last green run ({moment(run.began)}): {headline(changes)}", _changes(changes)
    if not before:
        changes = between(past, last.number - 1, last.number)
        title = f"Since the runs before it: {headline(changes)}" if past.earlier else "Found by the first run"
        yield title, _changes(changes)
    yield "Flapping: failed, recovered and failed again", _flapping(past)
    yield "Hardware that failed in several runs", _offending(past)
    yield "Nodes that still fail after their hardware was replaced: look beyond the hardware", _places(past)
    yield from _measured(trends(past))


def _changes(changes: Changes) -> Table:
    """A row for each check; for missing evidence, a row for each set of nodes, because it has one cause."""
    nodes: dict[tuple[str, Verdict, str, str], list[str]] = defaultdict(list)
    for kind, changed in changes.kinds:
        for change in sorted(changed, key=lambda change: change.now.rank):
            before = change.before.value if change.before else "not looked at"
            before += " of fewer or other devices" if change.is_of_others else ""
            nodes[kind, change.now, before, change.check].append(change.node)
    checks: dict[tuple[str, Verdict, str, str, str], list[str]] = defaultdict(list)
    for (kind, now, before, check), names in nodes.items():
        checks[kind, now, before, "" if now is Verdict.INCOMPLETE else check, fold(names)].append(check)
    rows = (
        (kind, now.value, before, alike[0] if len(alike) == 1 else f"{len(alike)} checks", names)
        for (kind, now, before, _, names), alike in checks.items()
    )
    return Table(_CHANGE_COLUMNS, tuple(rows))


def _flapping(past: Past) -> Table:
    nodes: dict[tuple[int, int, str, str], list[str]] = defaultdict(list)
    for flap in flaps(past):
        nodes[flap.came, flap.looked, flap.now.value, flap.check].append(flap.node)
    rows = (
        (number_of(came, "time"), number_of(looked, "run"), now, check, fold(names))
        for (came, looked, now, check), names in nodes.items()
    )
    return Table(_FLAPPING_COLUMNS, tuple(rows))


def _offending(past: Past) -> Table:
    alike: dict[tuple[str, tuple[int, ...], tuple[str, ...], str], list[Offender]] = defaultdict(list)
    for offender in offenders(past):
        where = _where(offender)
        alone = "" if where == _UNMOVED else f"{offender.id} {where}"
        alike[offender.kind, offender.runs, offender.checks, alone].append(offender)
    return Table(_OFFENDER_COLUMNS, tuple(map(_offender, alike.values())))


def _offender(alike: list[Offender]) -> tuple[str, ...]:
    first = alike[0]
    if len(alike) > 1:
        name = f"{len(alike)} {first.kind}s"
    else:
        name = f"{first.id} (serial {first.serial})" if first.serial and first.kind == GPU else first.id
    nodes = fold(node for offender in alike for node in offender.nodes)
    return str(len(first.runs)), name, nodes, _where(first), ", ".join(first.checks)


_UNMOVED = "still there"


def _where(offender: Offender) -> str:
    """Whether a piece of hardware moved, and the fault with it."""
    if len(offender.nodes) > 1:
        return f"moved from {offender.nodes[0]} to {offender.nodes[-1]}, and the fault with it"
    if len(offender.instances) > 1:
        return f"came back in {offender.instances[-1]}, and the fault with it"
    if not offender.now:
        return "replaced"
    return _UNMOVED if offender.now == offender.nodes[-1] else f"now in {offender.now}"


def _places(past: Past) -> Table:
    rows = (
        (place.node, place.check, number_of(len(set(place.runs)), "run"), "; then ".join(place.hardware))
        for place in places(past)
    )
    return Table(_PLACE_COLUMNS, tuple(rows))


def _measured(trends: list[Trend]) -> Iterator[tuple[str, Table]]:
    by_name: dict[tuple[str, str], list[Trend]] = defaultdict(list)
    for trend in trends:
        by_name[trend.name, trend.unit].append(trend)
    for (name, unit), rows in by_name.items():
        title = f"{name} per node, in {unit}; usual: the median of the runs before"
        yield title, Table(_MEASURED_COLUMNS, tuple(map(_trend, rows)))


def _trend(trend: Trend) -> tuple[str, ...]:
    return (
        f"{100 * trend.change:+.1f} %" if len(trend.values) > 1 else "",
        f"{trend.last:.4g}",
        f"{trend.median_before:.4g}",
        str(len(trend.values)),
        trend.node,
        _bars(trend.values[-_SHOWN_VALUES:]),
    )


def _bars(values: tuple[float, ...]) -> str:
    """The values as a bar chart, from zero to the largest."""
    most = max(values)
    if most <= 0:
        return ""
    return "".join(_BARS[round(max(value, 0) / most * (len(_BARS) - 1))] for value in values)


def _run(run: PastRun) -> str:
    green = ", green" if run.is_green else ""
    cut = f", INTERRUPTED: {number_of(run.unevaluated, 'check')} not evaluated" if run.unevaluated else ""
    nodes = number_of(run.nodes, "node")
    return f"{moment(run.began)}, {run.occasion}, {nodes}, exit code {run.exit_code}{green}{cut}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with named columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def sorted_by(self, column: str) -> Table:
        """The rows sorted by one column, numbers by value; unchanged if there is no such column."""
        if column not in self.columns:
            return self
        index = self.columns.index(column)
        return Table(self.columns, tuple(sorted(self.rows, key=lambda row: _natural(row[index]))))

    def lines(self, most: int = 0) -> Iterator[str]:
        """The table as text, of at most `most` rows if given."""
        shown = self.rows[:most] if most else self.rows
        widths = [
            max(len(_cut(row[index])) for row in (self.columns, *shown)) for index in range(len(self.columns) - 1)
        ]
        for row in (self.columns, *shown):
            yield "  ".join([*(_cut(cell).ljust(width) for cell, width in zip(row, widths)), row[-1]]).rstrip()  # noqa: B905
        if len(shown) < len(self.rows):
            yield f"… and {len(self.rows) - len(shown)} more; --all shows them"


def _cut(cell: str) -> str:
    if "[" in cell and " " not in cell:  # a nodeset
        return within(cell, MAX_CELL)
    return cell if len(cell) <= MAX_CELL else f"{cell[: MAX_CELL - 1]}…"


def _natural(text: str) -> list[tuple[int, float, str]]:
    """A sort key that puts gpu2 before gpu10, and -8 % before 3 %."""
    try:
        return [(0, float(text.split(" ")[0].rstrip("%")), "")]
    except (ValueError, IndexError):
        return [(0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in _NUMBER.split(text)]
