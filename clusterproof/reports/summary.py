"""The terminal summary: findings, worst first, then what is incomplete and why."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import within
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import cut_of, headline
from clusterproof.reports.findings import (
    FindingGroup,
    Gap,
    findings,
    missing_evidence,
    missing_evidence_in_short,
    shortened,
)
from clusterproof.reports.to_do import commands, fit_nodes, shared_finding, short_commands, to_do

SCREEN = 30  # lines
MAX_LINES = 4  # of observations, per finding; the reports are complete
MAX_NODES = 300  # characters of a nodeset
MAX_WORDS = 600  # characters of a line
_INDENT = " " * 12
FURTHER = 14  # columns: a node's text cannot begin a line like the summary's own
_FURTHER = " " * FURTHER

_MARKUP = {
    Verdict.FAIL: {"red": True, "bold": True},
    Verdict.CONCERN: {"yellow": True},
    Verdict.INCOMPLETE: {"purple": True},
}


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One line for the terminal, and its markup."""

    text: str
    markup: dict[str, bool] = field(default_factory=dict)
    column: int = FURTHER  # indentation of its further lines
    is_command: bool = False  # to be copied, so it stays on one line


def summary(
    results: Sequence[Result],
    catalog: Catalog,
    width: int = 100,
    verbose: bool = False,
    cluster: Cluster | None = None,
) -> Iterator[SummaryLine]:
    """The summary, in lines of at most `width` columns where possible.

    `cluster` provides the commands to copy; without it there are none.
    """
    for line in _lines(results, catalog, verbose, cluster):
        if line.is_command:
            yield line
            continue
        text = line.text if verbose else shortened(line.text, MAX_WORDS + len(line.text) - len(line.text.lstrip()))
        wrapper = _Wrapper(
            max(width, 60),
            subsequent_indent=" " * line.column,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from (SummaryLine(part, line.markup) for part in wrapper.wrap(text) or [""])


class _Wrapper(textwrap.TextWrapper):
    """Breaks a nodeset that is longer than a line after its commas."""

    def _split(self, text: str) -> list[str]:
        width = self.width - len(self.subsequent_indent)
        return [
            part
            for chunk in super()._split(text)
            for part in (re.split(r"(?<=,)(?=.)", chunk) if len(chunk) > width else [chunk])
        ]


def _lines(
    results: Sequence[Result], catalog: Catalog, verbose: bool, cluster: Cluster | None
) -> Iterator[SummaryLine]:
    tasks = list(_tasks(results, catalog, verbose, cluster))
    findings = list(_finding_lines(results, catalog, verbose))
    yield from [*tasks, SummaryLine("")] if tasks else []
    yield from findings
    if results:
        yield SummaryLine(headline(results))
    if len(findings) > SCREEN:  # the first line has scrolled away
        yield from tasks


def _tasks(
    results: Sequence[Result], catalog: Catalog, verbose: bool, cluster: Cluster | None
) -> Iterator[SummaryLine]:
    """A line for each action, followed by its command."""
    tasks, fit, cut = to_do(results, catalog), fit_nodes(results), cut_of(results)
    if not tasks and not fit:
        return
    if cut:
        yield SummaryLine(cut.description, {"bold": True})
    column = max(len(word) for word in ("fit", *(task.action for task in tasks))) + 2
    for task in tasks:
        where = task.where_within(len(task.nodes) * MAX_NODES if verbose else MAX_NODES)
        yield SummaryLine(f"{task.action.upper():<{column}}{where} ({task.why})", {"bold": True}, column)
        lines = commands(task, cluster) if verbose else short_commands(task, cluster)
        for command in lines:
            yield SummaryLine(f"{' ' * column}{command}", is_command=True)
        if not lines and commands(task, cluster):
            yield SummaryLine(f"{' ' * column}-v shows the command for all of them", {}, column)
    if not tasks:
        yield SummaryLine("NOTHING TO DO", {"bold": True})
    nodes = len({result.node for result in results if result.is_of_node})
    if nodes:
        yield SummaryLine(f"{'FIT':<{column}}{fit:,} of {number_of(nodes, 'node')}", {"bold": True}, column)
    shared = shared_finding(results)
    if shared:
        yield SummaryLine(shared, {"bold": True})


def _finding_lines(results: Sequence[Result], catalog: Catalog, verbose: bool) -> Iterator[SummaryLine]:
    yield from _findings(results, Verdict.FAIL, catalog, verbose)
    for gap in missing_evidence(results) if verbose else missing_evidence_in_short(results):
        yield from _gap(gap, verbose)
        yield SummaryLine("")
    yield from _findings(results, Verdict.CONCERN, catalog, verbose)


def _findings(results: Sequence[Result], verdict: Verdict, catalog: Catalog, verbose: bool) -> Iterator[SummaryLine]:
    for finding in findings(results, verdict, catalog):
        yield from _finding(finding, verdict, verbose)
        yield SummaryLine("")


def _finding(finding: FindingGroup, verdict: Verdict, verbose: bool) -> Iterator[SummaryLine]:
    first = finding.first
    owner = f" → {finding.owner}" if finding.owner else ""
    where = finding.where(_shown(finding.nodes, verbose))
    yield SummaryLine(f"{verdict.name:<12}{first.title}: {where}{owner}", _MARKUP[verdict])
    if finding.suspicion:
        yield SummaryLine(f"{_INDENT}{finding.suspicion}", {"bold": True})
    yield from _bounded(finding.lines if verbose else finding.lines_within(MAX_WORDS), verbose)
    for result in finding.of_each_cause:
        yield from _by_hand(result)
    yield SummaryLine(f"{_INDENT}check:  {first.check}", {"light": True})


def _by_hand(result: Result) -> Iterator[SummaryLine]:
    if result.evidence:
        yield SummaryLine(f"{_INDENT}see it: {result.evidence}")
    if result.remedy:
        yield SummaryLine(f"{_INDENT}do:     {result.remedy}")


def _gap(gap: Gap, verbose: bool) -> Iterator[SummaryLine]:
    nodes = _shown(gap.nodes, verbose)
    what = "" if gap.is_joined else f" ({gap.what})"
    yield SummaryLine(f"{Verdict.INCOMPLETE.name:<12}{nodes}: {gap.cause}{what}", _MARKUP[Verdict.INCOMPLETE])
    if gap.suspicion:
        yield SummaryLine(f"{_INDENT}{gap.suspicion}", {"bold": True})
    yield from _bounded([] if gap.is_joined else gap.messages, verbose, _FURTHER)
    for result in gap.of_reaching[:1]:
        yield from _by_hand(result)
    if verbose and len(gap.checks) > 1:
        yield SummaryLine(f"{_INDENT}checks: {', '.join(gap.checks)}", {"light": True})


def _shown(nodes: str, verbose: bool) -> str:
    return nodes if verbose else within(nodes, MAX_NODES)


def _bounded(lines: Sequence[str], verbose: bool, indent: str = _INDENT) -> Iterator[SummaryLine]:
    shown = lines if verbose or len(lines) <= MAX_LINES else lines[: MAX_LINES - 1]
    yield from (SummaryLine(f"{indent}{line}") for line in shown)
    if len(shown) < len(lines):
        yield SummaryLine(f"{_INDENT}… and {len(lines) - len(shown)} more; -v shows all")
