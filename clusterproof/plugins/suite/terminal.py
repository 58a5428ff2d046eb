"""A run's terminal output: header, progress, findings and counts, or every result with `-v`."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.kernel_log.window import window
from clusterproof.plugins.transport.fan_out import LINE_S, PendingNodes

if TYPE_CHECKING:
    from clusterproof.plugins.captures.collection import Understood
    from clusterproof.plugins.redaction.redact import Redaction

MAX_NODES = 300  # characters of a nodeset


def cluster_lines(shown: Cluster) -> Iterator[str]:
    """The nodes, how they are reached, their types, and notes of the inventory."""
    types = sorted({target.instance_type for target in shown.targets if target.instance_type})
    nodes = within(fold(target.name for target in shown.targets), MAX_NODES)
    count = number_of(len(shown.targets), "node")
    of_types = f", {', '.join(types)}" if types else ""
    yield f"cluster: {shown.name}: {count} ({nodes}) by {shown.connection}{of_types}"
    yield from (f"cluster: {printable(note, len(note))}" for note in shown.notes)  # they quote Slurm's reasons


def window_lines(option: str) -> Iterator[str]:
    """How far back the kernel log counts, if not to the boot."""
    since = window(option)
    if not since.is_boot:
        yield f"kernel log: only what it logged {since.description} counts"


def capture_lines(captured: Sequence[Understood], redaction: Redaction | None) -> Iterable[str]:
    """The files of a capture that were not understood, by name."""
    if not captured:
        return ()
    from clusterproof.plugins.captures.collection import not_understood  # most runs read no capture

    return not_understood(captured, is_redacted=redaction is not None)


_OF_PYTEST = ("rootdir:", "configfile:", "testpaths:", "cachedir:", "plugins:", "metadata:")  # lines of its header


class RedactedHeader:
    """Hides what pytest says of this machine in a redacted run."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Remove the path of Python, which pytest prints with `-v` and passes to no hook."""
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return (yield)
        write_line, path = reporter.write_line, f" -- {sys.executable}"
        reporter.write_line = lambda line, **markup: write_line(line.removesuffix(path), **markup)
        try:
            return (yield)
        finally:
            del reporter.write_line

    @pytest.hookimpl(wrapper=True)
    def pytest_report_header(self) -> Generator[None, list[str | list[str]], list[str]]:
        """Remove the lines of pytest's header that name folders, plugins, and where the run was started."""
        header = yield
        lines = (line for entry in header for line in ([entry] if isinstance(entry, str) else entry))
        return [line for line in lines if not line.startswith(_OF_PYTEST)]


_NUMBER = re.compile(r"^\d+")
_NOT_COUNTED = ("deselected", "warning", "no tests ran")  # deselected tests, library warnings, pytest's own messages


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Replace pytest's terminal reporter by the plain one."""
    option = config.option
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if type(reporter) is not pytest.TerminalReporter or option.verbose > 0 or option.collectonly:
        return
    option.disable_warnings = True
    config.pluginmanager.unregister(reporter)
    config.pluginmanager.register(PlainReporter(config, sys.stdout), "terminalreporter")


def is_plain(reporter: object) -> bool:
    """Whether this is the reporter of the console command."""
    return isinstance(reporter, PlainReporter)


class PlainReporter(pytest.TerminalReporter):  # type: ignore[misc] # final; pytest has no hooks for what it prints
    """Pytest's terminal reporter without header, item counts and letters for tests."""

    def __init__(self, config: pytest.Config, file: Any) -> None:
        super().__init__(config, file)
        self._show_progress_info = False
        self._began = time.monotonic()

    @property
    def showheader(self) -> bool:
        """Suppress pytest's header."""
        return False

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Print nothing about pytest."""
        super().pytest_sessionstart(session)
        self._began = time.monotonic()
        self._silence_xdist()
        if self.config.getoption("dist", "no") != "no":
            self._show_cluster()  # its nodes are asked before workers collect

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Print the header once something is selected: a usage error is only one line."""
        super().pytest_collection_finish(session)
        is_refused = isinstance(sys.exc_info()[1], pytest.UsageError)  # also called by pytest after a usage error
        if session.items and not is_refused:
            self._show_cluster()

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int | pytest.ExitCode
    ) -> Generator[None, Any, Any]:
        """Print the summary, unless there is only a usage error."""
        if exitstatus == pytest.ExitCode.USAGE_ERROR and self.stats.keys() <= {"", "deselected", "warnings"}:
            return (yield)
        return (yield from super().pytest_sessionfinish(session, exitstatus))

    def _report_keyboardinterrupt(self) -> None:
        """Leave a signal to the summary, which begins with it: the interrupted line of code is irrelevant."""
        memo = self._keyboardinterrupt_memo
        if self.config.option.fulltrace or "KeyboardInterrupt" not in str(memo and memo.reprcrash):
            super()._report_keyboardinterrupt()

    def _show_cluster(self) -> None:
        if self.verbosity < 0:
            return
        entries = self.config.hook.pytest_report_header(config=self.config, start_path=self.startpath)
        for entry in reversed(entries):
            for line in [entry] if isinstance(entry, str) else entry:
                if not line.startswith(_OF_PYTEST):
                    self.write_line(line)

    def _silence_xdist(self) -> None:
        """Suppress xdist's counts of workers and items; lost workers are reported below."""
        distributed = self.config.pluginmanager.get_plugin("dsession")
        if distributed:
            distributed.terminal = None
            self.config.pluginmanager.unregister(name="terminaldistreporter")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Report a lost worker: the check that it was running has no verdict."""
        if error:
            self.write_line(f"warning: worker {node.gateway.id} was lost: {error}", yellow=True)

    def pytest_collection(self) -> None:
        """Print nothing during collection, which is fast."""

    def report_collect(self, final: bool = False) -> None:
        """Print nothing about items."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Print no letter for a test."""
        category, _, word = yield
        return category, "", word

    def summary_stats(self) -> None:
        """The number of each verdict, and the duration."""
        if self.verbosity < -1:
            return
        parts, _ = self.build_summary_stats_line()
        counts = [text for text, _ in parts if not text.rstrip("s").endswith(_NOT_COUNTED)]
        outcomes = self.config.pluginmanager.get_plugin("clusterproof-outcomes")
        counts = with_lesser(counts, outcomes.results if outcomes else ())
        counts = [_NUMBER.sub(lambda digits: f"{int(digits[0]):,}", count) for count in counts]
        self.write_line(f"{', '.join(counts) or 'no check ran'} in {time.monotonic() - self._began:.1f} s")


def with_lesser(counts: Sequence[str], results: Iterable[Result]) -> list[str]:
    """The counts, with each verdict counted wherever it is shown: also next to a worse one of the same check."""
    own: Counter[Verdict] = Counter()
    lesser: Counter[Verdict] = Counter()
    for result in results:
        own[result.verdict] += result.is_evaluated  # pytest counts no test that did not end
        lesser.update(part.verdict for part in result.by_verdict[1:] if part.verdict.is_finding)
    shown = list(counts)
    for verdict, more in lesser.items():
        count, every = (f"{number} {verdict.value}" for number in (own[verdict], own[verdict] + more))
        shown = [every if text == count else text for text in shown] + [every] * (count not in shown)
    return shown


Shown = Callable[[NodeEvidence], None]
EVALUATING_S = 0.2  # between two updates of the line
_EACH = 64  # verdicts between two checks of the clock


@contextmanager
def progress(config: pytest.Config, cluster: Cluster, doing: str = "asking the nodes") -> Iterator[Shown]:
    """Yield a function to call for each node that answered; a node may answer once in each of several rounds."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    awaited = PendingNodes(doing, [target.name for target in cluster.targets], are_named=not config.option.redact)
    if reporter is None or config.option.verbose < 0:
        yield awaited.answered
        return
    show: AbstractContextManager[Shown] = _bar(awaited) if reporter.isatty else _lines(awaited, reporter.write_line)
    with show as shown:
        yield shown


class Evaluating:
    """A progress line for the evaluation on a terminal, overwritten in place and removed at the end."""

    def __init__(self, reporter: pytest.TerminalReporter, checks: int, nodes: int) -> None:
        self._reporter, self._checks = reporter, checks
        self._words = f"evaluating {number_of(nodes, 'node')}"
        self._done, self._said = 0, time.monotonic()
        self._is_shown = False

    def count(self) -> None:
        """Count a verdict; the line is updated a few times per second."""
        self._done += 1
        if self._done % _EACH == 0 and time.monotonic() - self._said >= EVALUATING_S:
            self._said, self._is_shown = time.monotonic(), True
            self._reporter.rewrite(f"{self._words}: {100 * self._done // max(self._checks, self._done)} %", erase=True)

    def end(self) -> None:
        """Clear the line."""
        if self._is_shown:
            self._reporter.rewrite("", erase=True)
            self._reporter.write("\r")


@contextmanager
def _lines(awaited: PendingNodes, say: Callable[[str], object]) -> Iterator[Shown]:
    """Print the pending nodes every LINE_S seconds while there are any."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(LINE_S):
            say(awaited.description)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield awaited.answered
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _bar(awaited: PendingNodes) -> Iterator[Shown]:
    from rich.console import Console  # imported here: only needed on a terminal
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(awaited.description, total=awaited.total)

        def shown(evidence: NodeEvidence) -> None:
            awaited.answered(evidence)
            bar.update(task, completed=awaited.done, description=awaited.description)

        yield shown
