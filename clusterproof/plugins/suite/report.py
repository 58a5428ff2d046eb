"""Pytest's report of a result, in words and with the record that every report form reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.wording import in_words

ENDED = "clusterproof_ended"  # of a report without a verdict: the check and the node whose test came to its end
OUT = "Captured stdout call"  # where a concern's words stand, for whoever asks pytest for the output of what passed

_OUTCOMES: dict[Verdict, Any] = {
    Verdict.PASS: "passed",
    Verdict.CONCERN: "passed",
    Verdict.FAIL: "failed",
    Verdict.INCOMPLETE: "failed",
    Verdict.NOT_APPLICABLE: "skipped",
}
# A failure during set-up is what pytest calls an error: the test itself said nothing.
_IN_SETUP = (Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE)


def report_of(
    item: pytest.Item, result: Result, started: float, captured: Iterable[tuple[str, str]] = ()
) -> pytest.TestReport:
    """Pytest's report of a result: incomplete is an error of set-up, not applicable a skip, a concern passes.

    `captured` is what the test printed, as pytest's own report has it.
    """
    report = pytest.TestReport(
        nodeid=_id_of(item),
        location=item.location,
        keywords={},
        outcome=_OUTCOMES[result.verdict],
        longrepr=_longrepr(item, result),
        when=_phase(result.verdict),
        sections=captured,
        duration=result.duration_s,
        start=started,
        stop=started + result.duration_s,
        user_properties=properties(result),
    )
    if result.verdict is Verdict.CONCERN:
        report.sections.append((OUT, in_words(result)))
    report.__dict__["clusterproof"] = result.to_json() if hasattr(item.config, "workerinput") else result
    return report


class KeptReport(pytest.TestReport):
    """A report that takes next to no memory until it is read whole: then it is made on demand."""

    __slots__ = ("clusterproof", "item", "start")
    clusterproof: Result

    def __init__(self, item: pytest.Item, result: Result, started: float) -> None:
        self.item = item
        self.clusterproof = result
        self.start = started

    def __getattr__(self, name: str) -> Any:
        if name in _READ_OF_MOST:
            return _READ_OF_MOST[name](self)
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(report_of(self.item, self.clusterproof, self.start), name)


_READ_OF_MOST: dict[str, Callable[[KeptReport], Any]] = {  # and nothing else is, where nothing is wrong
    "outcome": lambda kept: _OUTCOMES[kept.clusterproof.verdict],
    "when": lambda kept: _phase(kept.clusterproof.verdict),
    "_id": lambda kept: _id_of(kept.item),
    "nodeid": lambda kept: kept.item.nodeid,
}


def teardown_of(item: pytest.Item, result: Result, started: float) -> pytest.TestReport:
    """A second report of a result: JUnit writes a test case, and pytest-html a row, at the report of its teardown."""
    return pytest.TestReport(
        nodeid=_id_of(item),
        location=item.location,
        keywords={},
        outcome="passed",
        longrepr=None,
        when="teardown",
        start=started,
        stop=started,
        user_properties=properties(result),
    )


def _phase(verdict: Verdict) -> Any:
    return "setup" if verdict in _IN_SETUP else "call"


def _id_of(item: pytest.Item) -> Any:
    """The id that pytest has taken apart already, where it does so."""
    return getattr(item, "_id", None) or item.nodeid


def properties(result: Result) -> list[tuple[str, object]]:
    """What JUnit writes beside every test case, by name."""
    return [
        ("pair" if result.is_of_pair else "node", result.node),
        ("check", result.check),
        ("verdict", result.verdict.value),
        ("owner", result.owner),
        ("section", result.section),
        ("severity", result.severity),
        ("evidence", result.evidence),
        ("instance_type", result.instance_type),
        ("gpu_uuids", " ".join(result.gpu_uuids)),
    ]


def _longrepr(item: pytest.Item, result: Result) -> Any:
    if result.verdict is Verdict.NOT_APPLICABLE:
        path, line, _ = item.location
        return (path, line or 0, f"not applicable: {' '.join(result.message.split())}")
    return in_words(result) if result.verdict in (Verdict.FAIL, Verdict.INCOMPLETE) else None
