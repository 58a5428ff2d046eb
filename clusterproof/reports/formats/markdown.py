"""`summary.md`: the findings for a job's page (GitHub's `$GITHUB_STEP_SUMMARY`, GitLab, a ticket).

Also lines in a job's log for GitHub Actions: annotations of the run and its pull request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.escaping import plain
from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import within
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import cluster_state, cut_of, headline
from clusterproof.reports.findings import FindingGroup, Gap, findings, missing_evidence_in_short, shortened
from clusterproof.reports.formats import SUMMARY, Format
from clusterproof.reports.history.changes import GONE, NEW
from clusterproof.reports.run import Run
from clusterproof.reports.to_do import again, shared_finding, short_commands, to_do, to_do_line

MAX_FINDINGS = 50  # findings of each kind: GitHub shows at most a mebibyte
MAX_LINES = 10  # of observations, per finding
MAX_NODES = 500  # characters of a nodeset
MAX_WORDS = 500  # characters of a line
_MARKS = {Verdict.FAIL: "❌", Verdict.INCOMPLETE: "❔", Verdict.CONCERN: "⚠️"}
_STANDS = {"not fit": "❌", "not proven": "❔", "not checked": "❔"}


def markdown(run: Run) -> str:
    """The summary of a run."""
    stands = cluster_state(run.results)
    parts = [
        f"## {_STANDS.get(stands, '✅')} {plain(run.cluster.name)}: {stands}",
        *(
            f"**{plain(sentence)}**"
            for sentence in (to_do_line(run.results, run.facts.catalog), shared_finding(run.results))
            if sentence
        ),
        *_commands(run),
        plain(headline(run.results) or "no check was run"),
        *_since(run),
        *_table(run),
        *_details(run),
        *_again(run),
        f"{run.began:%Y-%m-%d %H:%M:%S %Z}, {run.seconds:.1f} s, exit code {run.exit_code}",
    ]
    return "\n\n".join(parts) + "\n"


def _commands(run: Run) -> Iterator[str]:
    tasks = to_do(run.results, run.facts.catalog)
    lines = [f"- {task.action}: {_code(line)}" for task in tasks for line in short_commands(task, run.acted_on)]
    if lines:
        yield "\n".join(["Commands to copy; clusterproof runs none of them:", "", *lines])


def _since(run: Run) -> Iterator[str]:
    since = run.since
    if since:
        lines = since.lines(NEW, GONE)
        shown = [f"- {plain(shortened(line, MAX_WORDS))}" for line in lines[:MAX_FINDINGS]]
        more = [f"- … and {len(lines) - MAX_FINDINGS} more"] if len(lines) > MAX_FINDINGS else []
        yield "\n".join([plain(since.description), "", *shown, *more]).rstrip()


def _code(text: str) -> str:
    """A command as a code line."""
    line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""
    return f"{fence}{space}{line}{space}{fence}"


def _table(run: Run) -> Iterator[str]:
    rows = [
        *_rows(run.findings(Verdict.FAIL), Verdict.FAIL),
        *_rows_of_missing(missing_evidence_in_short(run.results)),
        *_rows(run.findings(Verdict.CONCERN), Verdict.CONCERN),
    ]
    if rows:
        yield "\n".join(["| verdict | check | where | what | owner |", "|---|---|---|---|---|", *rows])


def _rows(findings: Sequence[FindingGroup], verdict: Verdict) -> Iterator[str]:
    for finding in findings[:MAX_FINDINGS]:
        first = finding.first
        where = plain(finding.where(within(finding.nodes, MAX_NODES)))
        message = f"{plain(first.title)}. {plain(finding.suspicion)}".rstrip(". ")
        yield _row(verdict, plain(first.check), where, message, plain(finding.owner))
    if len(findings) > MAX_FINDINGS:
        yield _row(verdict, f"… and {len(findings) - MAX_FINDINGS} more", "", "", "")


def _rows_of_missing(missing: Sequence[Gap]) -> Iterator[str]:
    for gap in missing[:MAX_FINDINGS]:
        nodes, cause = plain(within(gap.nodes, MAX_NODES)), plain(shortened(gap.cause, MAX_WORDS) + gap.further)
        message = f"{cause}. {plain(gap.suspicion)}" if gap.suspicion else cause
        yield _row(Verdict.INCOMPLETE, plain(gap.what), nodes, message, "")
    if len(missing) > MAX_FINDINGS:
        yield _row(Verdict.INCOMPLETE, f"… and {number_of(len(missing) - MAX_FINDINGS, 'more reason')}", "", "", "")


def _row(verdict: Verdict, *cells: str) -> str:
    return f"| {_MARKS[verdict]} {verdict.value} | {' | '.join(cells)} |"


def _details(run: Run) -> Iterator[str]:
    yield from _details_of(run, Verdict.FAIL)
    for gap in missing_evidence_in_short(run.results)[:MAX_FINDINGS]:
        lines = [shortened(line, MAX_WORDS) for line in gap.messages]
        if gap.of_reaching:
            yield _detail(gap.of_reaching[:1], lines, Verdict.INCOMPLETE)
        elif lines and not gap.is_joined:
            cause = _html(shortened(gap.cause, MAX_WORDS))
            summary = f"<summary>{_MARKS[Verdict.INCOMPLETE]} {_html(gap.what)}: {cause}</summary>"
            yield "\n\n".join([f"<details>{summary}", "\n".join(_items(lines)), "</details>"])
    yield from _details_of(run, Verdict.CONCERN)


def _details_of(run: Run, verdict: Verdict) -> Iterator[str]:
    for finding in run.findings(verdict)[:MAX_FINDINGS]:
        yield _detail(finding.of_each_cause, finding.lines_within(MAX_WORDS), verdict)


def _detail(of_each_cause: Sequence[Result], lines: Sequence[str], verdict: Verdict) -> str:
    first = of_each_cause[0]
    rows = [
        f"**Means:** {plain(first.meaning)}" if first.meaning else "",
        *(row for result in of_each_cause for row in _by_hand(result)),
    ]
    summary = f"<summary>{_MARKS[verdict]} {_html(first.check)}: {_html(first.title)}</summary>"
    return "\n\n".join([f"<details>{summary}", "\n".join(_items(lines)), *filter(None, rows), "</details>"])


def _items(lines: Sequence[str]) -> list[str]:
    more = [f"- … and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return [*(f"- {plain(line)}" for line in lines[:MAX_LINES]), *more]


def _by_hand(result: Result) -> Iterator[str]:
    yield f"**See it:** {_code(result.evidence)}" if result.evidence else ""
    yield f"**Do:** {plain(result.remedy)}" if result.remedy else ""


def _html(text: str) -> str:
    """Text inside an HTML tag, where backslashes have no meaning."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _again(run: Run) -> Iterator[str]:
    for verdict, what in ((Verdict.FAIL, "failed"), (Verdict.INCOMPLETE, "incomplete")):
        command = again(run, verdict)
        if command:
            yield f"Run the {what} checks again: {_code(command)}"


FORMAT = Format(SUMMARY, markdown)


MAX_EACH = 10  # of errors and of warnings: GitHub shows no more per step
ANNOTATED_NODES = 300  # characters of a nodeset
ANNOTATION = 1_000
_KINDS = {Verdict.FAIL: "error", Verdict.CONCERN: "warning"}
_IN_WORDS = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_TITLE = {**_IN_WORDS, ":": "%3A", ",": "%2C"}


def are_annotations_read() -> bool:
    """Whether a CI system that reads annotations runs this."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotation_lines(results: Iterable[Result], catalog: Catalog) -> Iterator[str]:
    """`::error title=…::…` for failures, `::warning …` for concerns, those on most nodes first."""
    results = list(results)
    cut = cut_of(results)
    if cut:
        yield f"::error title=clusterproof::{_escaped(cut.description, _IN_WORDS)}"
    for verdict, kind in _KINDS.items():
        found = findings(results, verdict, catalog)
        limit = MAX_EACH - bool(cut and verdict is Verdict.FAIL)
        shown = len(found) if len(found) <= limit else limit - 1
        for finding in found[:shown]:
            where = finding.where(within(finding.nodes, ANNOTATED_NODES))
            message = "\n".join(
                [
                    *_first(finding.lines_within(ANNOTATION)),
                    *(f"do: {result.remedy}" for result in finding.of_each_cause if result.remedy),
                    f"check: {finding.first.check}",
                ]
            )
            title = _escaped(f"{finding.first.title}: {where}", _IN_TITLE)
            yield f"::{kind} title={title}::{_escaped(message, _IN_WORDS)}"
        if len(found) > shown:
            what = "fail" if verdict is Verdict.FAIL else "have concerns"
            yield f"::{kind} title=clusterproof::{len(found) - shown} more checks {what}; the summary has all"


def _first(lines: Sequence[str]) -> list[str]:
    """The first of these lines, and how many more there are."""
    more = [f"… and {len(lines) - MAX_EACH} more"] if len(lines) > MAX_EACH else []
    return [*lines[:MAX_EACH], *more]


def _escaped(text: str, signs: Mapping[str, str]) -> str:
    """Text that cannot end the line, or its field."""
    line = "\n".join(printable(part, ANNOTATION) for part in text.split("\n"))
    return "".join(signs.get(char, char) for char in line)
