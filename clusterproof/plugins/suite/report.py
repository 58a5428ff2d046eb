"""pytest reports with the record of a result, also for tests that pytest runs by its own protocol."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Any

import pytest

from clusterproof.plugins.core.result import Result, from_json
from clusterproof.plugins.core.verdict import Recording, Several, Verdict
from clusterproof.plugins.evaluation.check import NO_VERDICT, CheckOwner
from clusterproof.plugins.evaluation.evaluate import result_of
from clusterproof.plugins.evaluation.routing import Route
from clusterproof.plugins.suite.items import CheckItem, node_name, route_of
from clusterproof.plugins.suite.state import nodes_of, policy_of
from clusterproof.reports import result_text

ENDED = "clusterproof_ended"  # of a report without a verdict: the check and node of a test that ended
OUT = "Captured stdout call"  # section of a concern's message, for pytest options that print the output of passed tests

_OUTCOMES: dict[Verdict, Any] = {
    Verdict.PASS: "passed",
    Verdict.CONCERN: "passed",
    Verdict.FAIL: "failed",
    Verdict.INCOMPLETE: "failed",
    Verdict.NOT_APPLICABLE: "skipped",
}
# Pytest calls a failure during set-up an error: the test itself concluded nothing.
_IN_SETUP = (Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE)


def report_of(
    item: pytest.Item, result: Result, started: float, captured: Iterable[tuple[str, str]] = ()
) -> pytest.TestReport:
    """Pytest's report of a result: incomplete is an error of set-up, not applicable a skip, a concern passes.

    `captured` is the test's output, as in pytest's own report.
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
        report.sections.append((OUT, result_text(result)))
    report.__dict__["clusterproof"] = result.to_json() if hasattr(item.config, "workerinput") else result
    return report


class KeptReport(pytest.TestReport):
    """A report that is kept in little memory, and made whole when it is read."""

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


_READ_OF_MOST: dict[str, Callable[[KeptReport], Any]] = {  # the only attributes read if nothing is wrong
    "outcome": lambda kept: _OUTCOMES[kept.clusterproof.verdict],
    "when": lambda kept: _phase(kept.clusterproof.verdict),
    "_id": lambda kept: _id_of(kept.item),
    "nodeid": lambda kept: kept.item.nodeid,
}


def teardown_of(item: pytest.Item, result: Result, started: float) -> pytest.TestReport:
    """A second report of a result: JUnit writes a test case, and pytest-html a row, on the teardown report."""
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
    """The id that pytest has split already, if it does."""
    return getattr(item, "_id", None) or item.nodeid


def properties(result: Result) -> list[tuple[str, object]]:
    """The properties that JUnit writes with every test case."""
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
    return result_text(result) if result.verdict in (Verdict.FAIL, Verdict.INCOMPLETE) else None


def carried_result(report: object) -> Result | None:
    """The result that a report carries, if it is about a node."""
    carried = getattr(report, "clusterproof", None)
    return from_json(carried) if isinstance(carried, dict) else carried


def is_of_lost_worker(report: object) -> bool:
    """Whether xdist reports a test whose worker crashed: it did not end, and nothing was found."""
    return getattr(report, "when", None) == "???"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """For a test that asks for a node: what it reports along the way counts, and its return value does not.

    Raises that verdict, or Several.
    """
    if route_of(pyfuncitem) is None or pyfuncitem.config.option.usepdb:
        return (yield)
    ended: BaseException | None = None
    with Recording() as recording, warnings.catch_warnings():
        warnings.simplefilter("error", pytest.PytestReturnNotNoneWarning)
        try:
            yield
        except pytest.PytestReturnNotNoneWarning:
            ended = TypeError(NO_VERDICT)
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise  # the run ends, and with it the test
        except BaseException as outcome:
            ended = outcome
            if not recording.outcomes:
                raise
    outcomes = recording.take(ended)
    if outcomes:
        raise outcomes[0] if len(outcomes) == 1 else Several(tuple(outcomes)) from None
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Set the verdict of a test that pytest ran by its own protocol and that asks for a node."""
    report = yield
    about = _about(item)
    if about is None or (call.when != "call" and call.excinfo is None) or call.when == "teardown":
        return report
    if hasattr(report, "wasxfail"):
        report.__dict__[ENDED] = (about[0].check, about[1].name)
        return report  # a test with such a mark keeps pytest's outcome
    ended = call.excinfo.value if call.excinfo else None
    policy = policy_of(item.config)
    result = _of_light(item, ended) or policy.read(result_of(about[0], about[1], ended, call.duration))
    recorded = properties(result)  # JUnit takes them from the teardown report
    item.user_properties[:] = [*(entry for entry in item.user_properties if entry[0] not in dict(recorded)), *recorded]
    return report_of(item, result, call.start, report.sections)


def _of_light(item: pytest.Item, ended: BaseException | None) -> Result | None:
    """The result of a light item run by pytest's own protocol, unless a third-party plugin ended it otherwise."""
    if not isinstance(item, CheckItem) or item.evaluated is None:
        return None
    return item.evaluated if ended is None or ended is item.raised else None


def _about(item: pytest.Item) -> tuple[Route, CheckOwner] | None:
    """The route of an item and what it is about, or None where that is no node and no cluster."""
    about = route_of(item)
    if about is None:
        return None
    return about, item.owner if isinstance(item, CheckItem) else nodes_of(item.config)[node_name(item)]
