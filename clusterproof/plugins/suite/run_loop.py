"""The run loop: a light item has one report where pytest's own has three; in large runs most items bypass hooks."""

from __future__ import annotations

import atexit
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.evaluate import Examined
from clusterproof.plugins.suite.items import CheckItem
from clusterproof.plugins.suite.parallel import Children, children_of
from clusterproof.plugins.suite.report import KeptReport, report_of, teardown_of
from clusterproof.plugins.suite.state import PYTEST_PROTOCOL

if TYPE_CHECKING:
    from clusterproof.plugins.suite.outcomes import Outcomes


def pytest_collection_finish(session: pytest.Session) -> None:
    """In an xdist worker, before it runs items."""
    _keep_ids(session)


def _keep_ids(session: pytest.Session) -> None:
    """If third-party plugins observe tests, let items keep their ids: allure identifies items by the string object."""
    if uses_pytest_protocol(session.config):
        for item in session.items:
            if isinstance(item, CheckItem):
                item.keep_id()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Like pytest's own loop, but light items skip the per-test hooks, which would double their cost."""
    config = session.config
    elsewhere = config.pluginmanager.hasplugin("dsession") or hasattr(config, "workerinput")
    if elsewhere or config.option.collectonly or session.testsfailed:
        return None
    _keep_ids(session)  # including pairs, which are only known now
    is_large = len(session.items) > MANY
    if is_large:
        freeze(config)  # items and evidence
    fast_path = FastPath.of(config) if is_large else None
    may_fork = not (uses_pytest_protocol(config) or config.option.k8s_keep)  # a gate has time, and little memory
    with children_of(session if fast_path and may_fork else None) as children:
        _run_all(session, is_large, fast_path, children)
    if is_large:
        freeze(config)  # results as well
    return True


def _run_all(session: pytest.Session, is_large: bool, fast_path: FastPath | None, children: Children) -> None:
    is_light = not uses_pytest_protocol(session.config)
    hooks: dict[pytest.Collector, Any] = {}  # looking up an item's hooks takes as long as calling one
    for number, item in enumerate(session.items):
        if isinstance(item, CheckItem) and is_light:
            if item.collector not in hooks:
                hooks[item.collector] = item.ihook
            run(item, hooks[item.collector], is_large, fast_path, children.examined(item))
        else:
            after = session.items[number + 1] if number + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run a light item if another plugin runs the loop, as in an xdist worker."""
    if not isinstance(item, CheckItem) or uses_pytest_protocol(item.config):
        return None
    run(item, item.ihook)
    return True


def uses_pytest_protocol(config: pytest.Config) -> bool:
    """Whether light items run by pytest's own protocol: with `--pdb`, and if third-party plugins observe tests."""
    if PYTEST_PROTOCOL not in config.stash:
        config.stash[PYTEST_PROTOCOL] = bool(config.option.usepdb) or any(_watchers(config))
    return config.stash[PYTEST_PROTOCOL]


def _watchers(config: pytest.Config) -> Iterator[str]:
    """Third-party modules that hook into how a test runs; every conftest.py is loaded by now."""
    for name in _RUN_HOOKS:
        for hooked in getattr(config.hook, name).get_hookimpls():
            module = str(hooked.function.__module__)
            if module.partition(".")[0] not in _NOT_WATCHING:
                yield module


MANY = 2_000  # items above which pytest's terminal, which keeps every report, gets few reports without findings
_RUN_HOOKS = (
    "pytest_runtest_protocol",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
)
# Their hooks ignore everything that a light item has.
_NOT_WATCHING = ("_pytest", "_hypothesis_pytestplugin", "clusterproof", "xdist", "pytest_html")


def run(
    item: CheckItem, hook: Any, is_large: bool = False, fast_path: FastPath | None = None, known: Examined | None = None
) -> None:
    """Evaluate and report once, and again if a plugin waits for the teardown report."""
    started = time.time()
    if fast_path:
        result = item.result(known)
        if fast_path.takes(item, result, started):
            return
    nodeid, location = item.nodeid, item.location
    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
    if not fast_path:
        result = item.result()
    is_replaced = is_large and result.verdict in NO_FINDING
    report = report_of(item, result, started)
    hook.pytest_runtest_logreport(report=report)
    if is_replaced:
        _replace_report(item.config, report, KeptReport(item, result, started))
    if result.verdict is not Verdict.PASS or getattr(item.config.option, "xmlpath", None):
        report = teardown_of(item, result, started)
        hook.pytest_runtest_logreport(report=report)
        if is_replaced:
            _replace_report(item.config, report, None)
    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)


def _replace_report(config: pytest.Config, report: pytest.TestReport, instead: pytest.TestReport | None) -> None:
    """Replace, or remove, the report that pytest's terminal has just received."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for kept in reporter.stats.values() if reporter else ():
        if kept and kept[-1] is report:
            kept[-1:] = [instead] if instead else []


NO_FINDING = (Verdict.PASS, Verdict.NOT_APPLICABLE)
_HOOKS = ("pytest_runtest_logstart", "pytest_runtest_logreport", "pytest_runtest_logfinish")
# Their hooks do nothing without a finding, or only what `FastPath` does instead.
_READ_LITTLE = ("clusterproof.", "_pytest.cacheprovider", "_pytest.logging", "_pytest.main", "_pytest.terminal")


class FastPath:
    """Handles results without findings in place of the report hooks: for our outcomes and pytest's terminal."""

    def __init__(self, config: pytest.Config, outcomes: Outcomes) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        cache = getattr(config, "cache", None)
        self._outcomes = outcomes
        self._stats: dict[str, list[object]] = reporter.stats if reporter else {}
        self._failed_last = cache.get("cache/lastfailed", {}) if cache else {}  # pytest must learn that it passes now

    @classmethod
    def of(cls, config: pytest.Config) -> FastPath | None:
        """The fast path; None if a plugin handles every test, or the terminal prints something for each."""
        receivers = [hooked for name in _HOOKS for hooked in getattr(config.hook, name).get_hookimpls()]
        outcomes: Outcomes | None = config.pluginmanager.get_plugin("clusterproof-outcomes")
        has_no_reader = all(str(hooked.function.__module__).startswith(_READ_LITTLE) for hooked in receivers)
        return cls(config, outcomes) if outcomes and outcomes.is_large and has_no_reader else None

    def takes(self, item: CheckItem, result: Result, started: float) -> bool:
        """Handle a result without findings; False if pytest's hooks must have it, as the first of its kind."""
        if result.verdict not in NO_FINDING or (self._failed_last and item.nodeid in self._failed_last):
            return False
        counted = self._stats.get(self._outcomes.category(result))
        if not counted:
            return False
        report = KeptReport(item, result, started)
        self._outcomes.keep(report, result)
        counted.append(report)
        return True


FROZEN_BY_PYTHON = 10_000  # more than Python 3.12 itself freezes at start (375), and fewer than any program has
_MAY_FREEZE: pytest.StashKey[bool] = pytest.StashKey()


def freeze(config: pytest.Config) -> None:
    """Freeze all current objects until the run ends.

    Not if somebody else has frozen objects: unfreezing ours would unfreeze those.
    """
    if _MAY_FREEZE not in config.stash:
        config.stash[_MAY_FREEZE] = gc.get_freeze_count() < FROZEN_BY_PYTHON
        if config.stash[_MAY_FREEZE]:
            config.add_cleanup(gc.unfreeze)
            atexit.unregister(gc.freeze)
            atexit.register(gc.freeze)  # otherwise Python's final collections would take seconds
    if config.stash[_MAY_FREEZE]:
        gc.freeze()


@contextmanager
def frozen_afterwards(config: pytest.Config) -> Iterator[None]:
    """Suspend garbage collection within the block, and freeze what was created in it, which has no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        freeze(config)
        if was_enabled:
            gc.enable()
