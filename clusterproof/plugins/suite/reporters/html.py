"""`--html`: pytest-html's page, with the findings in words, a matrix, and a row for each verdict other than pass."""

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
from clusterproof.reports import owner_of, result_text
from clusterproof.reports.page import proof
from clusterproof.reports.topology import section

# Maximum rows for each verdict: a browser takes a minute and gigabytes for 40,000. The text above is complete.
MAX_ROWS = {
    Verdict.FAIL: 1_000,
    Verdict.INCOMPLETE: 300,
    Verdict.CONCERN: 300,
    Verdict.NOT_APPLICABLE: 100,
    Verdict.PASS: 0,
}
# The pytest-html outcome that counts and filters a verdict, and its name on the page.
OUTCOMES = {
    Verdict.FAIL: ("failed", "failed", "failed"),
    Verdict.INCOMPLETE: ("error", "incomplete", "incomplete or in error"),
    Verdict.CONCERN: ("xpassed", "concern", "concern or unexpected pass"),
    Verdict.NOT_APPLICABLE: ("skipped", "not applicable", "not applicable or skipped"),
    Verdict.PASS: ("passed", "passed", "passed"),
}
_SORTABLE = {"verdict": "Verdict", "node": "Node", "check": "Check", "owner": "Owner"}
_OF_THE_SUITE = ("Python", "Packages")  # of the environment table; the rest is about the machine


class HtmlReporter:
    """The plugin behind pytest-html's hooks."""

    def __init__(self, config: pytest.Config, cluster: Cluster, results: Sequence[Result], is_redacted: bool) -> None:
        self._config = config
        self._cluster = cluster
        self._results = results
        self._is_redacted = is_redacted
        self._listed: Counter[Verdict] = Counter()
        self._ranks: dict[str, int] = {}  # of our rows, by pytest id
        self._page: Any = None

    def pytest_html_report_title(self, report: Any) -> None:
        """Set the page's title, and keep the page: its counts are of rows, some of which are omitted."""
        self._page = report
        report.title = f"clusterproof: {self._cluster.name}"
        if self._is_redacted:
            environment = report.data.get("environment", {})
            report.set_data("environment", {key: environment[key] for key in _OF_THE_SUITE if key in environment})
        if self._config.getini("render_collapsed") == "passed":  # pytest-html's default: the row is sufficient
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
        """One row for a verdict other than pass; a generic row for a third-party test."""
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
        """The details below a row; after them the test's output."""
        result: Result | None = getattr(report, "clusterproof", None)
        if result is not None:
            escaped = escape(result_text(result))
            printed = [part for part in data[1:] if escaped not in part]
            data[:] = [escaped, *printed]

    @pytest.hookimpl(trylast=True)
    def pytest_html_results_summary(self, prefix: list[str]) -> None:
        """The findings first; then corrected counts, in our words, above the rows, worst first."""
        style = Path(__file__).with_name("html.css").read_text(encoding="utf-8")
        left_out = Counter(result.verdict for result in self._results) - self._listed
        nodes = [target.name for target in self._cluster.targets]
        places = topology_of(self._config)
        where = section(places) if places else ""
        outcomes: Any = self._config.pluginmanager.get_plugin("clusterproof-outcomes")
        words = proof(outcomes.reported, nodes, left_out, catalog_of(self._config), where)
        prefix.append(f"<style>{style}</style>{words}")
        if self._page is not None:
            self._count(self._page.outcomes)
            rows = self._page.data["tests"]
            for nodeid in sorted(rows, key=lambda nodeid: self._ranks.get(nodeid, -1)):
                row = rows.pop(nodeid)
                if row:  # pytest-html keeps an empty row for each omitted one
                    rows[nodeid] = row

    def _count(self, outcomes: dict[str, dict[str, Any]]) -> None:
        """Replace pytest-html's row counts by counts of verdicts."""
        raw = Counter(result.verdict for result in self._results)
        for verdict, (outcome, ours, mixed) in OUTCOMES.items():
            counted = self._listed[verdict]
            if verdict is Verdict.CONCERN:  # pytest-html saw a pass
                outcomes["passed"]["value"] -= counted
                counted = 0
            others = outcomes[outcome]["value"] - counted
            if verdict is Verdict.PASS:
                others = 0  # passed tests of other kinds
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
    """The reporter of `--html FILE`."""
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


_SPELLED = {"xpassed": "XPassed"}  # pytest-html's script sorts by it
