"""`summary.txt`: the problems in few words, for a mail."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import within
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import cluster_state, headline
from clusterproof.reports.findings import FindingGroup, missing_evidence_in_short, shortened
from clusterproof.reports.formats import Format
from clusterproof.reports.history.changes import GONE, NEW
from clusterproof.reports.measurements import measurements
from clusterproof.reports.run import Run
from clusterproof.reports.to_do import again, shared_finding, short_commands, to_do, to_do_line

WIDTH = 100  # columns
MAX_FINDINGS = 20  # findings of each kind
MAX_NODES = 200  # characters of a nodeset
MAX_WORDS = 300  # characters of a line
_INDENT = "  "
_ACTIONS = "Commands to copy; clusterproof runs none of them:"
_AGAIN = {Verdict.FAIL: "Run the failed checks again:", Verdict.INCOMPLETE: "Run the incomplete checks again:"}
_COPIED = {_ACTIONS, *_AGAIN.values()}  # first lines of paragraphs that are commands to copy


def text(run: Run) -> str:
    """The summary of a run, one paragraph for each finding."""
    tasks = to_do_line(run.results, run.facts.catalog)
    paragraphs = [
        *(opening for opening in [list(filter(None, (tasks, shared_finding(run.results))))] if opening),
        [f"{run.cluster.name}: {cluster_state(run.results)}", headline(run.results) or "no check was run"],
        *_commands(run),
        *_since(run),
        *_findings(run, Verdict.FAIL),
        *_missing_evidence(run),
        *_findings(run, Verdict.CONCERN),
        *_measured(run),
        *_again(run),
        [f"{run.began:%Y-%m-%d %H:%M:%S %Z}, {run.seconds:.1f} s, exit code {run.exit_code}"],
    ]
    return "\n\n".join(_wrapped(paragraph) for paragraph in paragraphs) + "\n"


def _since(run: Run) -> Iterator[list[str]]:
    since = run.since
    if since:
        lines = since.lines(NEW, GONE)
        more = [f"… and {len(lines) - MAX_FINDINGS} more"] if len(lines) > MAX_FINDINGS else []
        yield [since.description, *(shortened(line, MAX_WORDS) for line in lines[:MAX_FINDINGS]), *more]


def _measured(run: Run) -> Iterator[list[str]]:
    if lines := measurements(run.nodes):
        yield lines


def _commands(run: Run) -> Iterator[list[str]]:
    tasks = to_do(run.results, run.facts.catalog)
    lines = [f"{task.action}: {line}" for task in tasks for line in short_commands(task, run.acted_on)]
    if lines:
        yield [_ACTIONS, *lines]


def _findings(run: Run, verdict: Verdict) -> Iterator[list[str]]:
    findings = run.findings(verdict)
    yield from (_finding(finding, verdict) for finding in findings[:MAX_FINDINGS])
    if len(findings) > MAX_FINDINGS:
        yield [f"{verdict.name} … and {len(findings) - MAX_FINDINGS} more kinds"]


def _finding(finding: FindingGroup, verdict: Verdict) -> list[str]:
    first = finding.first
    entry = [
        f"{verdict.name} {first.check}: {first.title}: {finding.where(within(finding.nodes, MAX_NODES))}",
        finding.suspicion,
        *_first(finding.lines_within(MAX_WORDS)),
        *(f"do: {result.remedy}" for result in finding.of_each_cause if result.remedy),
        f"owner: {finding.owner}" if finding.owner else "",
    ]
    return [line for line in entry if line]


def _first(lines: Sequence[str]) -> list[str]:
    """The first of these lines, and how many more there are."""
    more = f" (and {number_of(len(lines) - 1, 'more line')})" if len(lines) > 1 else ""
    return [f"{line}{more}" for line in lines[:1]]


def _missing_evidence(run: Run) -> Iterator[list[str]]:
    missing = missing_evidence_in_short(run.results)
    for gap in missing[:MAX_FINDINGS]:
        cause = shortened(gap.cause, MAX_WORDS) + gap.further
        remedies = [f"do: {result.remedy}" for result in gap.of_reaching[:1] if result.remedy]
        entry = [
            f"{Verdict.INCOMPLETE.name} {gap.what}: {within(gap.nodes, MAX_NODES)}: {cause}",
            gap.suspicion,
            *_first([shortened(line, MAX_WORDS) for line in gap.details]),
            *remedies,
        ]
        yield [line for line in entry if line]
    if len(missing) > MAX_FINDINGS:
        yield [f"{Verdict.INCOMPLETE.name} … for {number_of(len(missing) - MAX_FINDINGS, 'more reason')}"]


def _again(run: Run) -> Iterator[list[str]]:
    for verdict, words in _AGAIN.items():
        command = again(run, verdict)
        if command:
            yield [words, command]


def _wrapped(paragraph: Sequence[str]) -> str:
    """Wraps a text; further lines are indented. A command stays on one line, to be copied.

    A node's text cannot begin a line: its line breaks become spaces.
    """
    first, *others = paragraph
    if first in _COPIED:
        return "\n".join([first, *(f"{_INDENT}{line}" for line in others)])
    lines = [*_fitted(first, ""), *(part for line in others for part in _fitted(line, _INDENT))]
    return "\n".join(lines)


def _fitted(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=_INDENT * 2,
        break_long_words=False,
        break_on_hyphens=False,
    )


FORMAT = Format("summary.txt", text)
