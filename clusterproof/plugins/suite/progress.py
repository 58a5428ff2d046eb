"""What a person sees while the nodes are asked: a bar on a terminal, elsewhere (as in CI) a line each ten seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.transport.progress import LINE_S, Awaited

Shown = Callable[[NodeEvidence], None]
EVALUATING_S = 0.2  # between two changes of the line
_EACH = 64  # verdicts between two looks at the clock


@contextmanager
def progress(config: pytest.Config, cluster: Cluster, doing: str = "asking the nodes") -> Iterator[Shown]:
    """Yield a function to call for each node that answered; each node may answer once in each of several rounds."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    awaited = Awaited(doing, [target.name for target in cluster.targets], are_named=not config.option.redact)
    if reporter is None or config.option.verbose < 0:
        yield awaited.answered
        return
    show: AbstractContextManager[Shown] = _bar(awaited) if reporter.isatty else _lines(awaited, reporter.write_line)
    with show as shown:
        yield shown


class Evaluating:
    """One line on a terminal that says how far the evaluation is, overwritten while it goes on and gone at its end."""

    def __init__(self, reporter: pytest.TerminalReporter, checks: int, nodes: int) -> None:
        self._reporter, self._checks = reporter, checks
        self._words = f"evaluating {number_of(nodes, 'node')}"
        self._done, self._said = 0, time.monotonic()
        self._is_shown = False

    def count(self) -> None:
        """Note a verdict; the line follows some times a second."""
        self._done += 1
        if self._done % _EACH == 0 and time.monotonic() - self._said >= EVALUATING_S:
            self._said, self._is_shown = time.monotonic(), True
            self._reporter.rewrite(f"{self._words}: {100 * self._done // max(self._checks, self._done)} %", erase=True)

    def end(self) -> None:
        """Leave an empty line to whoever prints next."""
        if self._is_shown:
            self._reporter.rewrite("", erase=True)
            self._reporter.write("\r")


@contextmanager
def _lines(awaited: Awaited, say: Callable[[str], object]) -> Iterator[Shown]:
    """Say who is awaited each LINE_S seconds, for as long as anybody is."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(LINE_S):
            say(awaited.words)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield awaited.answered
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _bar(awaited: Awaited) -> Iterator[Shown]:
    from rich.console import Console  # imported here: only a person at a terminal needs it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(awaited.words, total=awaited.total)

        def shown(evidence: NodeEvidence) -> None:
            awaited.answered(evidence)
            bar.update(task, completed=awaited.done, description=awaited.words)

        yield shown
