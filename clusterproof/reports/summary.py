"""The terminal summary: findings worst first, then what is incomplete and why."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.findings import Finding, Gap, findings, gaps, gaps_in_short, within
from clusterproof.reports.standing import headline
from clusterproof.reports.to_do import shared_finding, to_do_line

SCREEN = 30  # lines
MAX_LINES = 4  # of what was seen, per finding; the reports have all
MAX_NODES = 300  # characters of a nodeset
MAX_WORDS = 600  # characters of a line
_INDENT = " " * 12
_FURTHER = " " * 14  # so that no words of a node's begin a line where the summary's own do

_MARKUP = {
    Verdict.FAIL: {"red": True, "bold": True},
    Verdict.CONCERN: {"yellow": True},
    Verdict.INCOMPLETE: {"purple": True},
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line for the terminal and how to mark it up."""

    text: str
    markup: dict[str, bool] = field(default_factory=dict)


def summary(results: Sequence[Result], catalog: Catalog, width: int = 100, verbose: bool = False) -> Iterator[Line]:
    """What an operator reads first, in lines of at most `width` columns where words allow it."""
    for line in _lines(results, catalog, verbose):
        wrapped = textwrap.wrap(
            line.text if verbose or len(line.text) <= MAX_WORDS else f"{line.text[:MAX_WORDS]}…",
            max(width, 60),
            subsequent_indent=_FURTHER,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from (Line(part, line.markup) for part in wrapped or [""])


def _lines(results: Sequence[Result], catalog: Catalog, verbose: bool) -> Iterator[Line]:
    tasks = [Line(words, {"bold": True}) for words in (to_do_line(results, catalog), shared_finding(results)) if words]
    found = list(_found(results, catalog, verbose))
    yield from [*tasks, Line("")] if tasks else []
    yield from found
    if results:
        yield Line(headline(results))
    if len(found) > SCREEN:  # the first line is out of sight
        yield from tasks


def _found(results: Sequence[Result], catalog: Catalog, verbose: bool) -> Iterator[Line]:
    for verdict in (Verdict.FAIL, Verdict.CONCERN):
        for finding in findings(results, verdict, catalog):
            yield from _finding(finding, verdict, verbose)
            yield Line("")
    for gap in gaps(results) if verbose else gaps_in_short(results):
        yield from _gap(gap, verbose)
        yield Line("")


def _finding(finding: Finding, verdict: Verdict, verbose: bool) -> Iterator[Line]:
    first = finding.first
    owner = f" → {finding.owner}" if finding.owner else ""
    where = finding.where(_shown(finding.nodes, verbose))
    yield Line(f"{verdict.name:<12}{first.title}: {where}{owner}", _MARKUP[verdict])
    if finding.suspicion:
        yield Line(f"{_INDENT}{finding.suspicion}", {"bold": True})
    yield from _some(finding.lines, verbose)
    for result in finding.of_each_cause:
        yield from _by_hand(result)
    yield Line(f"{_INDENT}check:  {first.check}", {"light": True})


def _by_hand(result: Result) -> Iterator[Line]:
    if result.evidence:
        yield Line(f"{_INDENT}see it: {result.evidence}")
    if result.remedy:
        yield Line(f"{_INDENT}do:     {result.remedy}")


def _gap(gap: Gap, verbose: bool) -> Iterator[Line]:
    nodes = _shown(gap.nodes, verbose)
    what = "" if gap.is_joined else f" ({gap.what})"
    yield Line(f"{Verdict.INCOMPLETE.name:<12}{nodes}: {gap.cause}{what}", _MARKUP[Verdict.INCOMPLETE])
    if gap.suspicion:
        yield Line(f"{_INDENT}{gap.suspicion}", {"bold": True})
    yield from _some([] if gap.is_joined else gap.messages, verbose, _FURTHER)
    for result in gap.of_reaching[:1]:
        yield from _by_hand(result)
    if verbose and len(gap.checks) > 1:
        yield Line(f"{_INDENT}checks: {', '.join(gap.checks)}", {"light": True})


def _shown(nodes: str, verbose: bool) -> str:
    return nodes if verbose else within(nodes, MAX_NODES)


def _some(lines: Sequence[str], verbose: bool, indent: str = _INDENT) -> Iterator[Line]:
    shown = lines if verbose or len(lines) <= MAX_LINES else lines[: MAX_LINES - 1]
    yield from (Line(f"{indent}{line}") for line in shown)
    if len(shown) < len(lines):
        yield Line(f"{_INDENT}… and {len(lines) - len(shown)} more; -v shows all")
