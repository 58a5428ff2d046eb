"""`--notify URL`: one message per run, through Apprise, if something changed or failed. URLs are never shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core import nodeset
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.ending import code_so_far
from clusterproof.plugins.suite.state import catalog_of
from clusterproof.plugins.watch.notify.receiver import NoReceiver
from clusterproof.plugins.watch.notify.services import (
    MAX_TITLE,
    ServiceMessage,
    apprise_services,
    bounded,
    one_line,
    silenced,
    within,
)
from clusterproof.reports import headline
from clusterproof.reports.findings import findings, missing_evidence
from clusterproof.reports.history.changes import GONE, NEW, Changes, since_last
from clusterproof.reports.history.changes import headline as what_changed
from clusterproof.reports.history.words import folded
from clusterproof.reports.to_do import to_do_within

MAX_NODES = 200  # characters of a nodeset
TIMEOUT_S = 30.0  # for all services together
PAUSES_S = (1.0, 2.0, 4.0)  # before each retry
QUIET_EXITS = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)


def message_of(
    cluster: str, results: Sequence[Result], exit_code: int, changes: Changes, catalog: Catalog, report: str = ""
) -> ServiceMessage | None:
    """The message of a run; None if it ended with 0 and nothing is new or gone, or before checks were selected.

    `report` is the location of its page.
    """
    if (exit_code in QUIET_EXITS and not results) or (exit_code == 0 and not changes):
        return None
    broke_off = f"the run broke off (exit code {exit_code}); nothing is proven"
    most = MAX_TITLE - len(f"{cluster}: ")
    title = f"{cluster}: {(to_do_within(results, catalog, most) or headline(results)) if results else broke_off}"
    at_end = [*([f"report: {report}"] if report else []), f"exit code {exit_code}"]
    lines = [*at_end[:-1], *_lines(results, changes, catalog), at_end[-1]]
    return ServiceMessage(one_line(title, MAX_TITLE), bounded(lines), "success" if exit_code == 0 else "failure")


def _lines(results: Sequence[Result], changes: Changes, catalog: Catalog) -> Iterator[str]:
    if results:
        yield headline(results)
    if changes:
        yield f"since the last run: {what_changed(changes)}"
        yield from folded(NEW, changes.new)
    yield from _findings(results, Verdict.FAIL, catalog)
    for gap in missing_evidence(results):
        yield f"INCOMPLETE {nodeset.within(gap.nodes, MAX_NODES)}: {gap.cause}{gap.further} ({gap.what})"
    yield from _findings(results, Verdict.CONCERN, catalog)
    yield from folded(GONE, changes.gone)


def _findings(results: Sequence[Result], verdict: Verdict, catalog: Catalog) -> Iterator[str]:
    for finding in findings(results, verdict, catalog):
        owner = f" → {finding.owner}" if finding.owner else ""
        where = finding.where(nodeset.within(finding.nodes, MAX_NODES))
        yield f"{verdict.name} {finding.first.title}: {where}{owner}"


class NotifyReporter:
    """The plugin of a run that sends a notification."""

    def __init__(self, config: pytest.Config, cluster: Cluster, results: Sequence[Result], urls: Sequence[str]) -> None:
        """Reject URLs unknown to Apprise immediately. Raises pytest.UsageError."""
        self.cluster = cluster.name
        self.results = results
        self.warnings: list[str] = []
        try:
            self._services = apprise_services(urls)
        except NoReceiver as wrong:
            raise pytest.UsageError(str(wrong)) from None
        self._is_dry = bool(config.option.collectonly)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Send the message if there is a reason, after the hooks that write the page it links to."""
        yield
        if not self._is_dry:
            self._notify(session)

    def _notify(self, session: pytest.Session) -> None:
        history = session.config.pluginmanager.get_plugin("clusterproof-history")
        changes = since_last(self.results, history.before if history else {})
        catalog = catalog_of(session.config)
        reporting = session.config.pluginmanager.get_plugin("clusterproof-reporting")
        page = reporting.page if reporting else ""
        outcomes: Any = session.config.pluginmanager.get_plugin("clusterproof-outcomes")
        message = message_of(self.cluster, outcomes.reported, code_so_far(session), changes, catalog, page)
        if message:
            with silenced():
                problems = within(TIMEOUT_S, [partial(_delivered, send, message) for _, send in self._services])
            self.warnings = [
                f"notification {number} ({scheme}) was not delivered: {problem}"
                for number, ((scheme, _), problem) in enumerate(zip(self._services, problems), start=1)  # noqa: B905
                if problem
            ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what could not be delivered."""
        for warning in self.warnings:
            terminalreporter.write_line(f"warning: {warning}", yellow=True)


def _delivered(send: Callable[[ServiceMessage], str], message: ServiceMessage) -> str:
    """The error of the last attempt; empty if the service accepted the message."""
    for pause_s in PAUSES_S:
        if not send(message):
            return ""
        time.sleep(pause_s)
    return send(message)


def reporter(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> NotifyReporter:
    """The reporter of `--notify URL`. Raises pytest.UsageError."""
    return NotifyReporter(config, cluster, results, config.option.notify)
