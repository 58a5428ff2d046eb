"""`--html`: pytest-html's page with the findings, a matrix, and a row for each verdict that is not a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.state import catalog_of, topology_of
from clusterproof.reports import in_words, owner_of
from clusterproof.reports.page import proof
from clusterproof.reports.topology import section

# Rows of each verdict, at most: a browser takes a minute and gigabytes for 40,000. The words above them have all.
MAX_ROWS = {
    Verdict.FAIL: 1_000,
    Verdict.INCOMPLETE: 300,
    Verdict.CONCERN: 300,
    Verdict.NOT_APPLICABLE: 100,
    Verdict.PASS: 0,
}
# Under which of its own outcomes pytest-html counts and filters a verdict, and what that is called on the page.
OUTCOMES = {
    Verdict.FAIL: ("failed", "failed", "failed"),
    Verdict.INCOMPLETE: ("error", "incomplete", "incomplete or in error"),
    Verdict.CONCERN: ("xpassed", "concern", "concern or unexpected pass"),
    Verdict.NOT_APPLICABLE: ("skipped", "not applicable", "not applicable or skipped"),
    Verdict.PASS: ("passed", "passed", "passed"),
}
_SORTABLE = {"verdict": "Verdict", "node": "Node", "check": "Check", "owner": "Owner"}
_OF_THE_SUITE = ("Python", "Platform", "Packages", "Plugins")  # of the environment; the rest is of the machine


class HtmlReporter:
    """The plugin behind pytest-html's hooks."""

    def __init__(self, config: pytest.Config, cluster: Cluster, results: Sequence[Result], is_redacted: bool) -> None:
        self._config = config
        self._cluster = cluster
        self._results = results
        self._is_redacted = is_redacted
        self._listed: Counter[Verdict] = Counter()
        self._ranks: dict[str, int] = {}  # of the rows that are ours, by pytest's id
        self._page: Any = None

    def pytest_html_report_title(self, report: Any) -> None:
        """Name the page, and remember it: its counts are of rows, and rows are left out."""
        self._page = report
        report.title = f"clusterproof: {self._cluster.name}"
        if self._is_redacted:
            environment = report.data.get("environment", {})
            report.set_data("environment", {key: environment[key] for key in _OF_THE_SUITE if key in environment})
        if self._config.getini("render_collapsed") == "passed":  # pytest-html's default: the row says enough
            report.set_data("renderCollapsed", ["all"])
        if self._config.getini("initial_sort") == "result":
            report.set_data("initialSort", "original")

    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        """Our columns. The first is hidden: pytest-html's script filters by it."""
        cells[:] = ['<th class="sortable col-result" data-column-type="result">Result</th>'] + [
            f'<th class="sortable" data-column-type="{column}">{title}</th>' for column, title in _SORTABLE.items()
        ]
        cells += ["<th>See it by hand</th>", "<th>Observed; expected</th>"]

    def pytest_html_results_table_row(self, report: Any, cells: list[str]) -> None:
        """One row for a verdict that is not a pass; a row of its own for a test that is not ours."""
        result: Result | None = getattr(report, "clusterproof", None)
        if result is None:
            cells[:] = self._foreign(report, cells)
        elif self._listed[result.verdict] >= MAX_ROWS[result.verdict]:
            cells.clear()
        else:
            self._listed[result.verdict] += 1
            self._ranks[report.nodeid] = result.verdict.rank
            cells[:] = _row(result)

    def pytest_html_results_table_html(self, report: Any, data: list[str]) -> None:
        """What opens below a row: all that a person needs; behind it what the test printed."""
        result: Result | None = getattr(report, "clusterproof", None)
        if result is not None:
            escaped = escape(in_words(result))
            printed = [part for part in data[1:] if escaped not in part]
            data[:] = [escaped, *printed]

    @pytest.hookimpl(trylast=True)
    def pytest_html_results_summary(self, prefix: list[str]) -> None:
        """The page's own words first; then right counts, in our words, over the rows, worst first."""
        style = Path(__file__).with_name("html.css").read_text(encoding="utf-8")
        left_out = Counter(result.verdict for result in self._results) - self._listed
        nodes = [target.name for target in self._cluster.targets]
        places = topology_of(self._config)
        where = section(places) if places else ""
        prefix.append(f"<style>{style}</style>{proof(self._results, nodes, left_out, catalog_of(self._config), where)}")
        if self._page is not None:
            self._count(self._page.outcomes)
            rows = self._page.data["tests"]
            for nodeid in sorted(rows, key=lambda nodeid: self._ranks.get(nodeid, -1)):
                row = rows.pop(nodeid)
                if row:  # it keeps an empty one for each that was left out
                    rows[nodeid] = row

    def _count(self, outcomes: dict[str, dict[str, Any]]) -> None:
        """Count verdicts where pytest-html counted rows."""
        raw = Counter(result.verdict for result in self._results)
        for verdict, (outcome, ours, mixed) in OUTCOMES.items():
            counted = self._listed[verdict]
            if verdict is Verdict.CONCERN:  # pytest-html saw a pass
                outcomes["passed"]["value"] -= counted
                counted = 0
            others = outcomes[outcome]["value"] - counted
            if verdict is Verdict.PASS:
                others = 0  # passes of other tests are passes too
            outcomes[outcome]["label"] = mixed if others else ours
            outcomes[outcome]["value"] += raw[verdict] - counted

    def _foreign(self, report: Any, cells: list[str]) -> list[str]:
        """A row for a test that is not about a node."""
        if report.failed or report.nodeid not in self._ranks:
            self._ranks[report.nodeid] = -1 if report.failed else len(Verdict)
        outcome = cells[0]
        last = str(report.longreprtext).strip().rpartition("\n")[2]
        return [
            outcome,
            outcome.replace("col-result", "col-verdict").lower(),
            *_cells(("node", ""), ("check", report.nodeid), ("owner", ""), ("evidence", ""), ("message", last)),
        ]


def reporter(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> HtmlReporter:
    """The one of `--html FILE`."""
    return HtmlReporter(config, cluster, results, is_redacted=bool(config.option.redact))


def _row(result: Result) -> list[str]:
    outcome = OUTCOMES[result.verdict][0]
    return [
        f'<td class="col-result">{_SPELLED.get(outcome, outcome.capitalize())}</td>',
        *_cells(
            ("verdict", result.verdict.value),
            ("node", result.node),
            ("check", result.check),
            ("owner", owner_of(result)),
        ),
        f'<td class="col-evidence"><code>{escape(result.evidence)}</code></td>',
        *_cells(("message", result.message)),
    ]


def _cells(*raw: tuple[str, str]) -> list[str]:
    return [f'<td class="col-{column}">{escape(text)}</td>' for column, text in raw]


_SPELLED = {"xpassed": "XPassed"}  # as pytest-html's script sorts by it
