"""Runs light items: one report where pytest's own protocol makes three; and gives every test of a node its verdict."""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Recording, Several, Verdict
from clusterproof.plugins.evaluation.check import NO_VERDICT, Owner
from clusterproof.plugins.evaluation.evaluate import Examined, result_of
from clusterproof.plugins.evaluation.routing import Route, route
from clusterproof.plugins.suite.check_item import CheckItem
from clusterproof.plugins.suite.collect import asks_for_node
from clusterproof.plugins.suite.freezing import freeze
from clusterproof.plugins.suite.parallel import Children, children_of
from clusterproof.plugins.suite.quiet import IS_WELL, Quiet
from clusterproof.plugins.suite.report import ENDED, KeptReport, properties, report_of, teardown_of
from clusterproof.plugins.suite.state import ROUTES, USUAL_WAY, names_of, nodes_of, policy_of


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before a worker of xdist runs them."""
    _keep_ids(session)


def _keep_ids(session: pytest.Session) -> None:
    """Where plugins of others watch tests run, let items keep their ids: allure knows an item by that very object."""
    if takes_usual_way(session.config):
        for item in session.items:
            if isinstance(item, CheckItem):
                item.keep_id()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Pytest's own loop, but that light items do without the hooks around each test, which would double their cost."""
    config = session.config
    elsewhere = config.pluginmanager.hasplugin("dsession") or hasattr(config, "workerinput")
    if elsewhere or config.option.collectonly or session.testsfailed:
        return None
    _keep_ids(session)  # of pairs too, which are known only now
    is_large = len(session.items) > MANY
    if is_large:
        freeze(config)  # items and evidence
    quiet = Quiet.of(config) if is_large else None
    with children_of(session if quiet and not takes_usual_way(config) else None) as children:
        _run_all(session, is_large, quiet, children)
    if is_large:
        freeze(config)  # results as well
    return True


def _run_all(session: pytest.Session, is_large: bool, quiet: Quiet | None, children: Children) -> None:
    is_light = not takes_usual_way(session.config)
    hooks: dict[pytest.Collector, Any] = {}  # to find those of an item takes as long as to call one
    for number, item in enumerate(session.items):
        if isinstance(item, CheckItem) and is_light:
            if item.collector not in hooks:
                hooks[item.collector] = item.ihook
            run(item, hooks[item.collector], is_large, quiet, children.examined(item))
        else:
            after = session.items[number + 1] if number + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run a light item where another plugin runs the loop: in a worker of xdist."""
    if not isinstance(item, CheckItem) or takes_usual_way(item.config):
        return None
    run(item, item.ihook)
    return True


def takes_usual_way(config: pytest.Config) -> bool:
    """Whether light items run by pytest's own protocol: under `--pdb`, and where plugins of others watch tests run."""
    if USUAL_WAY not in config.stash:
        config.stash[USUAL_WAY] = bool(config.option.usepdb) or any(_watchers(config))
    return config.stash[USUAL_WAY]


def _watchers(config: pytest.Config) -> Iterator[str]:
    """The modules of others that hook into how a test runs; every conftest.py is loaded by now."""
    for name in _RUN_HOOKS:
        for hooked in getattr(config.hook, name).get_hookimpls():
            module = str(hooked.function.__module__)
            if module.partition(".")[0] not in _NOT_WATCHING:
                yield module


MANY = 2_000  # items from which on pytest's terminal, which keeps every report, is left with little of what is well
_RUN_HOOKS = (
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
)
# They look at nothing that a light item has.
_NOT_WATCHING = ("_pytest", "_hypothesis_pytestplugin", "clusterproof", "xdist", "pytest_html")


def run(
    item: CheckItem, hook: Any, is_large: bool = False, quiet: Quiet | None = None, known: Examined | None = None
) -> None:
    """Evaluate, report once, and once more where a report of its own teardown is waited for."""
    started = time.time()
    if quiet:
        result = item.result(known)
        if quiet.takes(item, result, started):
            return
    nodeid, location = item.nodeid, item.location
    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
    if not quiet:
        result = item.result()
    is_spared = is_large and result.verdict in IS_WELL
    report = report_of(item, result, started)
    hook.pytest_runtest_logreport(report=report)
    if is_spared:
        _spare(item.config, report, KeptReport(item, result, started))
    if result.verdict is not Verdict.PASS or getattr(item.config.option, "xmlpath", None):
        report = teardown_of(item, result, started)
        hook.pytest_runtest_logreport(report=report)
        if is_spared:
            _spare(item.config, report, None)
    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)


def _spare(config: pytest.Config, report: pytest.TestReport, instead: pytest.TestReport | None) -> None:
    """Let pytest's terminal keep another report in the place of one that it has just received, or none."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for kept in reporter.stats.values() if reporter else ():
        if kept and kept[-1] is report:
            kept[-1:] = [instead] if instead else []


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that asks for a node: what it says while it goes on is its verdict too, and what it returns is none."""
    if route_of(pyfuncitem) is None or pyfuncitem.config.option.usepdb:
        return (yield)
    ended: BaseException | None = None
    with Recording() as recording, warnings.catch_warnings():
        warnings.simplefilter("error", pytest.PytestReturnNotNoneWarning)
        try:
            yield
        except pytest.PytestReturnNotNoneWarning:
            ended = TypeError(NO_VERDICT)
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
    """Give a test that pytest ran in its usual way, and that asks for a node, its verdict."""
    report = yield
    about = _about(item)
    if about is None or (call.when != "call" and call.excinfo is None) or call.when == "teardown":
        return report
    if hasattr(report, "wasxfail"):
        report.__dict__[ENDED] = (about[0].check, about[1].name)
        return report  # a test marked so is to have pytest's own word
    ended = call.excinfo.value if call.excinfo else None
    policy = policy_of(item.config)
    result = _of_light(item, ended) or policy.read(result_of(about[0], about[1], ended, call.duration))
    data = properties(result)  # JUnit takes them from the report of the teardown
    item.user_properties[:] = [*(entry for entry in item.user_properties if entry[0] not in dict(data)), *data]
    return report_of(item, result, call.start, report.sections)


def _of_light(item: pytest.Item, ended: BaseException | None) -> Result | None:
    """The result of a light item that took the usual way, unless another author's plugin ended it differently."""
    if not isinstance(item, CheckItem) or item.evaluated is None:
        return None
    return item.evaluated if ended is None or ended is item.raised else None


def _about(item: pytest.Item) -> tuple[Route, Owner] | None:
    """The route of an item and what it is about, or None where that is no node and no cluster."""
    about = route_of(item)
    if about is None:
        return None
    return about, item.owner if isinstance(item, CheckItem) else nodes_of(item.config)[node_name(item)]


def route_of(item: pytest.Item) -> Route | None:
    """The route of an item, or None where it is not about a node."""
    if isinstance(item, CheckItem):
        return item.check.route
    if not node_name(item):
        return None
    routes = item.config.stash[ROUTES]
    function = item.function  # type: ignore[attr-defined]
    if function not in routes:
        routes[function] = route(function, item.iter_markers())
    return routes[function]


def node_name(item: pytest.Item) -> str:
    """The node that an item is about, else empty."""
    if isinstance(item, CheckItem):
        return item.node_name
    callspec = getattr(item, "callspec", None)
    if callspec is None or not asks_for_node(item):
        return ""
    name = str(callspec.params.get("node"))
    return name if name in names_of(item.config) else ""
