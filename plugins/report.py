"""Pytest's report of a result, in words and with the record that every report form reads."""

from __future__ import annotations

from typing import Any

import pytest
from clusterproof.plugins.result import Result
from clusterproof.plugins.verdict import Verdict


def report_of(item: pytest.Item, result: Result, started: float) -> pytest.TestReport:
    """Pytest's report of a result: incomplete is an error of set-up, not applicable a skip, a concern passes."""
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome=_OUTCOMES[result.verdict],
        longrepr=None,
        when="setup" if result.verdict in (Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE) else "call",
        duration=result.duration_s,
        start=started,
        stop=started + result.duration_s,
    )
    return carry(report, item, result)


def carry(report: pytest.TestReport, item: pytest.Item, result: Result) -> pytest.TestReport:
    """Put a result on a report, in words and as the record that every report form reads."""
    if result.verdict is Verdict.NOT_APPLICABLE:
        report.longrepr = (item.location[0], item.location[1] or 0, f"not applicable: {result.message}")
    elif result.verdict in (Verdict.FAIL, Verdict.INCOMPLETE):
        report.longrepr = in_words(result)
    elif result.verdict is Verdict.CONCERN:
        report.sections.append(("Captured stdout call", in_words(result)))
    report.user_properties.extend(_properties(result))
    record = result.to_json() if hasattr(item.config, "workerinput") else result
    report.__dict__["clusterproof"] = record
    return report


def teardown_of(item: pytest.Item, result: Result, started: float) -> pytest.TestReport:
    """A second report of a result, for what waits for one: JUnit writes a test case and pytest-html a row at its teardown."""
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="passed",
        longrepr=None,
        when="teardown",
        start=started,
        stop=started,
    )
    report.user_properties.extend(_properties(result))
    if result.verdict is Verdict.CONCERN:
        report.sections.append(("Captured stdout call", in_words(result)))
    return report


_OUTCOMES: dict[Verdict, Any] = {
    Verdict.PASS: "passed",
    Verdict.CONCERN: "passed",
    Verdict.FAIL: "failed",
    Verdict.INCOMPLETE: "failed",
    Verdict.NOT_APPLICABLE: "skipped",
}


def in_words(result: Result) -> str:
    """What a person needs of a result: observed, expected, how to see it by hand, who owns it, what to do."""
    owner = f"{result.owner} § {result.section}" if result.section else result.owner
    rows = [
        ("", f"{result.node}: {result.message}"),
        ("by hand", result.evidence),
        ("owner", owner),
        ("means", result.meaning),
        ("do", result.remedy),
    ]
    return "\n".join(f"{word}: {words}" if word else words for word, words in rows if words)


def _properties(result: Result) -> list[tuple[str, object]]:
    return [
        ("node", result.node),
        ("check", result.check),
        ("verdict", result.verdict.value),
        ("owner", result.owner),
        ("section", result.section),
        ("severity", result.severity),
        ("evidence", result.evidence),
        ("instance_type", result.instance_type),
        ("gpu_uuids", " ".join(result.gpu_uuids)),
    ]
