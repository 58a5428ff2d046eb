"""Runs light items: one report where pytest's own protocol makes three; and gives every test of a node its verdict."""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest

from clusterproof.plugins.collect import CheckItem
from clusterproof.plugins.judge import judge, not_run, result_of
from clusterproof.plugins.policy.model import NO_POLICY, words_of
from clusterproof.plugins.report import properties, report_of, teardown_of
from clusterproof.plugins.result import Result
from clusterproof.plugins.routing import Route, route
from clusterproof.plugins.state import CLUSTER, POLICY, ROUTES, names_of, nodes_of
from clusterproof.plugins.subjects import Owner
from clusterproof.plugins.verdict import Verdict


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Pytest's own loop, but that light items do without the hooks around each test, which would double their cost."""
    config = session.config
    elsewhere = config.pluginmanager.hasplugin("dsession") or hasattr(config, "workerinput")
    if elsewhere or config.option.collectonly or session.testsfailed:
        return None
    for number, item in enumerate(session.items):
        after = session.items[number + 1] if number + 1 < len(session.items) else None
        if isinstance(item, CheckItem) and not config.option.usepdb:
            run(item)
        else:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run a light item where somebody else runs the loop: a worker of xdist."""
    if not isinstance(item, CheckItem) or item.config.option.usepdb:
        return None
    run(item)
    return True


def run(item: CheckItem) -> None:
    """Judge, report once, and once more where a report of its own teardown is waited for."""
    hook, nodeid, location = item.ihook, item.nodeid, item.location
    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
    started = time.time()
    result = verdict_on(item)
    hook.pytest_runtest_logreport(report=report_of(item, result, started))
    if result.verdict is not Verdict.PASS or getattr(item.config.option, "xmlpath", None):
        hook.pytest_runtest_logreport(report=teardown_of(item, result, started))
    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)


def verdict_on(item: CheckItem) -> Result:
    """What a check says of a node, as the site's policy reads it."""
    policy = item.config.stash.get(POLICY, NO_POLICY)
    rule = policy.disables(item.check.route.check)
    if rule:
        return not_run(item.check, item.owner, words_of(rule, policy.source))
    return policy.read(judge(item.check, item.owner))


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
        return report  # whoever marked it so wants pytest's own word
    ended = call.excinfo.value if call.excinfo else None
    policy = item.config.stash.get(POLICY, NO_POLICY)
    result = policy.read(result_of(about[0], about[1], ended, call.duration))
    item.user_properties.extend(properties(result))  # JUnit takes them from the report of the teardown
    return report_of(item, result, call.start, report.sections)


def _about(item: pytest.Item) -> tuple[Route, Owner] | None:
    """The route of an item and what it is about, or None where that is no node and no cluster."""
    about = route_of(item)
    if about is None:
        return None
    return about, item.owner if isinstance(item, CheckItem) else nodes_of(item.config)[_node_name(item)]


def route_of(item: pytest.Item) -> Route | None:
    """The route of an item, or None where it is not about a node."""
    if isinstance(item, CheckItem):
        return item.check.route
    if not _node_name(item):
        return None
    routes = item.config.stash[ROUTES]
    function = item.function  # type: ignore[attr-defined]
    if function not in routes:
        routes[function] = route(function, item.iter_markers())
    return routes[function]


def _node_name(item: pytest.Item) -> str:
    """The node that an item is about, else empty."""
    if isinstance(item, CheckItem):
        return item.node_name
    callspec = getattr(item, "callspec", None)
    if callspec is None or CLUSTER not in item.config.stash:
        return ""
    name = str(callspec.params.get("node"))
    return name if name in names_of(item.config) else ""
