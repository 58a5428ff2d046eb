"""The watch's output: a line for each change; on a terminal also the worst nodes and the last changes."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind
from clusterproof.plugins.watch.own_health import MAX_NODES
from clusterproof.plugins.watch.watch import Watch

if TYPE_CHECKING:
    from rich.console import Group

LAST, WORST = 12, 10  # changes and nodes on the screen
QUIET_S = 600.0  # of silence before a line says that the watch is running
MAX_LINE = 400
MAX_MESSAGE = 1_000  # characters of a change's message, which may name several things
WORDS = {
    ChangeKind.CLOSED: "over",
    ChangeKind.WORSE: "worse",
    ChangeKind.FLAPPING: "flapping: no more of it is said while it does",
}
STYLES = {Verdict.FAIL: "bold red", Verdict.INCOMPLETE: "magenta", Verdict.CONCERN: "yellow"}


def change_line(change: Change) -> str:
    """`FAIL        gpu003 GPU 1: uncorrected ECC errors: …; expected 0 [gpu.no_uncorrected_ecc]`."""
    where = " ".join(filter(None, (change.key.node, change.key.device)))
    kind_text = WORDS.get(change.kind, "")
    head = "over" if change.kind is ChangeKind.CLOSED else change.verdict.value.upper()
    more = f" ({kind_text})" if kind_text and change.kind is not ChangeKind.CLOSED else ""
    message = printable(change.message, MAX_MESSAGE)
    return f"{printable(f'{head:<11} {where}', MAX_LINE)}: {message}{more} {printable(f'[{change.key.rule}]')}"


def beginning(cluster: Cluster, every_s: float, for_s: float | None, job: str) -> str:
    """`watching 2 nodes (gpu[001-002]) by ssh: a sample each 10 s, until Ctrl-C or SIGTERM`."""
    nodes = within(fold(target.name for target in cluster.targets), MAX_NODES)
    each = "second" if every_s == 1 else f"{every_s:g} s"
    endings = [f"until job {job} ends"] if job else []
    if for_s is not None:
        endings.append(f"for {_span(for_s)}{' at most' if job else ''} once all have been asked")
    until = ", ".join(endings) or "until Ctrl-C or SIGTERM"
    heading = f"watching {number_of(len(cluster.targets), 'node')} ({nodes}) by {cluster.connection}"
    return printable(f"{heading}: a sample each {each}, {until}", MAX_LINE)


def _span(seconds: float) -> str:
    """`24 h`, `30 min`, `90 s`."""
    sizes = ((3600, "h"), (60, "min"))
    size, unit = next(
        (size_unit for size_unit in sizes if seconds >= size_unit[0] and seconds % size_unit[0] == 0), (1, "s")
    )
    return f"{seconds / size:g} {unit}"


def print_line(line: str, out: TextIO) -> None:
    """Print a line; if the disk is full or the reader is gone, watching continues."""
    with suppress(OSError):
        print(line, file=out, flush=True)


class LineView:
    """Prints a line for each change; after a long silence, that the watch is running."""

    def __init__(self, watch: Watch, out: TextIO) -> None:
        self._watch, self._out = watch, out
        self._said = time.monotonic()

    def __enter__(self) -> LineView:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, changes: Sequence[Change]) -> None:
        """Print what has changed."""
        for change in changes:
            self.message(change_line(change))
        if time.monotonic() - self._said >= QUIET_S:
            self.message(f"still watching: {headline(self._watch)}; {number_of(self._watch.samples, 'sample')}")

    def message(self, message: str) -> None:
        """Print anything else."""
        self._said = time.monotonic()
        print_line(f"{time.strftime('%H:%M:%S')} {message}", self._out)


class ScreenView:
    """The same on a terminal, with a display below that is redrawn at most once a second."""

    def __init__(self, watch: Watch, cluster: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._watch, self._cluster = watch, cluster
        self._last: deque[str] = deque(maxlen=LAST)
        self._drawn = 0.0
        self._live = Live(console=Console(), auto_refresh=False, transient=True)

    def __enter__(self) -> ScreenView:
        self._live.__enter__()
        self.show(())
        return self

    def __exit__(self, *ended: object) -> None:
        with suppress(OSError):
            self._live.__exit__(None, None, None)
        for line in self._last:
            print_line(line, sys.stdout)

    def show(self, changes: Sequence[Change]) -> None:
        """Redraw what has changed."""
        for change in changes:
            self.message(change_line(change))
        if time.monotonic() - self._drawn >= 1.0:
            self._drawn = time.monotonic()
            with suppress(OSError):  # the terminal is gone, and watching continues
                self._live.update(self._picture(), refresh=True)

    def message(self, message: str) -> None:
        """Print a line below the last changes."""
        self._last.append(f"{time.strftime('%H:%M:%S')} {message}")

    def _picture(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table("node", "", "what", expand=True, box=None, pad_edge=False)
        for node, verdict, message in worst(self._watch):
            table.add_row(Text(node), Text(verdict.value, style=STYLES.get(verdict, "")), Text(message, no_wrap=True))
        more = len({key.node for key in self._watch.states.open}) - WORST
        if more > 0:
            table.add_row("", "", Text(f"… and {number_of(more, 'more node')}"))
        head = Text(f"{self._cluster}: {headline(self._watch)}", style="bold")
        return Group(head, table, Text("\n".join(self._last)))


def worst(watch: Watch) -> Iterator[tuple[str, Verdict, str]]:
    """The nodes with open states, worst first: each with its worst state, and how many more it has."""
    nodes: dict[str, list[tuple[int, str]]] = {}
    for key, seen in watch.states.open.items():
        message = f"{key.device}: {seen.message}" if key.device else seen.message
        nodes.setdefault(key.node, []).append((seen.verdict.rank, message))
    by_rank = {verdict.rank: verdict for verdict in Verdict}
    for node, every in sorted(nodes.items(), key=lambda entry: (min(entry[1])[0], -len(entry[1]), entry[0]))[:WORST]:
        rank, message = min(every)
        more = f" (and {len(every) - 1} more)" if len(every) > 1 else ""
        yield node, by_rank[rank], printable(message + more, MAX_LINE)


def first_answers(watch: Watch, not_reached: Sequence[str]) -> str:
    """`all asked once: 128 nodes, 2 with a fail, 1 not reached (gpu017)`."""
    suffix = f", {len(not_reached)} not reached ({within(fold(not_reached), MAX_NODES)})" if not_reached else ""
    return printable(f"all asked once: {headline(watch)}{suffix}", MAX_LINE)


def headline(watch: Watch) -> str:
    """`128 nodes, 2 with a fail, 1 silent (gpu017)`."""
    total = len(list(watch.names))
    failed = {key.node for key, seen in watch.states.open.items() if seen.verdict is Verdict.FAIL}
    silent = watch.silent
    parts = [number_of(total, "node"), f"{len(failed)} with a fail"]
    if silent:
        parts.append(f"{len(silent)} silent ({within(fold(silent), MAX_NODES)})")
    return ", ".join(parts)


def summary(watch: Watch, seconds: float) -> Iterable[str]:
    """The summary at the end."""
    counts = {verdict: sum(other is verdict for other in watch.verdicts.values()) for verdict in STYLES}
    counts_text = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count) or "nothing"
    yield f"watched for {seconds:.0f} s, {watch.samples:,} samples: {headline(watch)}; said: {counts_text}"
    if watch.unknown:
        nodes = printable(within(fold(watch.unknown), MAX_NODES))
        yield f"nothing is known of {number_of(len(watch.unknown), 'node')}: {nodes}"
    incomplete = sum(watch.incomplete.values())
    if incomplete:
        checks = number_of(incomplete, "check")
        yield f"{checks} could not be evaluated at the last full check; clusterproof check X says which and why"
