"""`--notify URL`: one message a run, through Apprise, where something changed or failed. No URL is ever shown."""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core import nodeset
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.state import catalog_of
from clusterproof.reports.deadline import within
from clusterproof.reports.findings import findings, gaps
from clusterproof.reports.history.changes import GONE, NEW, Changes, since_last
from clusterproof.reports.history.changes import headline as what_changed
from clusterproof.reports.history.words import folded
from clusterproof.reports.standing import headline
from clusterproof.reports.to_do import to_do_line

MAX_TITLE = 100  # characters: a subject of SNS's
MAX_BODY = 1_800  # characters: what chats take in one message
MAX_NODES = 200  # characters of a nodeset
TIMEOUT_S = 30.0  # for all services together
QUIET_EXITS = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
ABSENT = "--notify needs Apprise, which is not installed: pip install apprise"
INCIDENT_KEYS = ("dedup", "alias")  # of PagerDuty and Opsgenie, as Apprise calls them
_TALKATIVE = ("apprise", "urllib3", "requests", "requests_oauthlib")  # their log lines hold tokens
_SCHEME = re.compile(r"([a-z][a-z0-9]{1,20})://")


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent; `kind` is Apprise's word for it, `incident` the key of services that have one for each."""

    title: str
    body: str
    kind: str
    incident: str = ""


def message_of(
    cluster: str, results: Sequence[Result], exit_code: int, changes: Changes, catalog: Catalog
) -> Message | None:
    """The message of a run; none where it ended with 0 and nothing is new or gone, or before any check was chosen."""
    if (exit_code in QUIET_EXITS and not results) or (exit_code == 0 and not changes):
        return None
    broke_off = f"the run broke off (exit code {exit_code}); nothing is proven"
    title = f"{cluster}: {(to_do_line(results, catalog) or headline(results)) if results else broke_off}"
    lines = [*_lines(results, changes, catalog), f"exit code {exit_code}"]
    return Message(one_line(title, MAX_TITLE), bounded(lines), "success" if exit_code == 0 else "failure")


def _lines(results: Sequence[Result], changes: Changes, catalog: Catalog) -> Iterator[str]:
    if results:
        yield headline(results)
    if changes:
        yield f"since the last run: {what_changed(changes)}"
        for kind, found in changes.kinds:
            if kind in (NEW, GONE):
                yield from folded(kind, found)
    for finding in findings(results, Verdict.FAIL, catalog):
        yield f"FAIL {finding.first.title}: {finding.where(nodeset.within(finding.nodes, MAX_NODES))}" + (
            f" → {finding.owner}" if finding.owner else ""
        )
    for gap in gaps(results):
        yield f"INCOMPLETE {nodeset.within(gap.nodes, MAX_NODES)}: {gap.cause} ({gap.what})"


def bounded(lines: Sequence[str]) -> str:
    """The lines as one text, whole lines as far as there is room, and how many are missing."""
    kept: list[str] = []
    room = MAX_BODY - 40
    for line in (one_line(line, 400) for line in lines):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    if len(kept) < len(lines):
        kept.append(f"… and {len(lines) - len(kept)} more lines")
    return "\n".join(kept)


def one_line(text: str, most: int) -> str:
    """A text of so many characters at most, without what could steer a terminal."""
    text = printable(" ".join(text.split()), most * 2)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


class NotifyForm:
    """The plugin object of a run that sends a notification."""

    def __init__(self, config: pytest.Config, cluster: Cluster, results: Sequence[Result], urls: Sequence[str]) -> None:
        """Refuse at once what Apprise does not know. Raises pytest.UsageError."""
        self.cluster = cluster.name
        self.results = results
        self.warnings: list[str] = []
        self._services = services(urls)
        self._is_dry = bool(config.option.collectonly)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the message, if there is cause for one."""
        if self._is_dry:
            return
        history = session.config.pluginmanager.get_plugin("clusterproof-history")
        changes = since_last(self.results, history.before if history else {})
        catalog = catalog_of(session.config)
        message = message_of(self.cluster, self.results, int(session.exitstatus), changes, catalog)
        if message:
            with quiet():
                problems = within(TIMEOUT_S, [partial(send, message) for _, send in self._services])
            self.warnings = [
                f"notification {number} ({scheme}) was not delivered: {problem}"
                for number, ((scheme, _), problem) in enumerate(zip(self._services, problems), start=1)  # noqa: B905
                if problem
            ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what did not arrive."""
        for warning in self.warnings:
            terminalreporter.write_line(f"warning: {warning}", yellow=True)


def services(urls: Sequence[str], first: int = 1) -> list[tuple[str, Callable[[Message], str]]]:
    """What sends to each URL, beside its scheme, which is all that may be shown of it. Raises pytest.UsageError."""
    try:
        with quiet():
            import apprise
    except ImportError:
        raise pytest.UsageError(ABSENT) from None
    # A service that redirects could have this host ask its metadata service, or others get the message.
    asset = apprise.AppriseAsset(
        app_id="clusterproof", app_desc="clusterproof", app_url="", image_url_mask="", http_redirects=False
    )
    found: list[tuple[str, Callable[[Message], str]]] = []
    for number, url in enumerate(urls, start=first):
        with quiet():
            try:
                service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
            except Exception:  # its words may hold the URL
                service = None
        scheme = _SCHEME.match(url)
        if service is None or scheme is None:
            raise pytest.UsageError(
                f"--notify number {number} is not a URL that Apprise takes (not shown: it may hold a password); "
                "expected scheme://… as Apprise's documentation has it for the service"
            )
        found.append((scheme[1], partial(_send, service)))
    return found


def _send(service: Any, message: Message) -> str:
    """What went wrong, in words that hold nothing of the URL."""
    for name in INCIDENT_KEYS if message.incident else ():
        if getattr(service, name, "") is None:  # it has one, and the URL names none
            service = copy.copy(service)
            setattr(service, name, message.incident)
    is_sent = service.notify(
        body=message.body,
        title=message.title,
        notify_type=message.kind,
        body_format="text",
        overflow="truncate",  # never a second message
    )
    return "" if is_sent else "the service refused it or did not answer"


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing that these libraries log, or warn of in their own imports, reaches a terminal or a file."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):  # noqa: B905
            logger.setLevel(level)
