"""The sinks of a watch besides its terminal: a page and metrics over HTTP, a metrics file, notifications, heartbeat."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from prometheus_client import CollectorRegistry, make_wsgi_app

from clusterproof.plugins.core import __version__
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, Key, RuleResult
from clusterproof.plugins.watch.http_server import Address, Listener
from clusterproof.plugins.watch.live_page import LivePage
from clusterproof.plugins.watch.metrics import Metrics, Snapshot
from clusterproof.plugins.watch.node_metrics import NodeMetrics
from clusterproof.plugins.watch.notify.heartbeat import Heartbeat
from clusterproof.plugins.watch.notify.notifier import OUTCOMES, Notifier
from clusterproof.plugins.watch.notify.outbox import Outbox
from clusterproof.plugins.watch.notify.outbox_file import OutboxFile, outboxes_in, paths_for
from clusterproof.plugins.watch.notify.receiver import Receiver
from clusterproof.plugins.watch.textfile import Textfile
from clusterproof.plugins.watch.updates import Update
from clusterproof.plugins.watch.watch import Watch

MIN_S = 15.0  # between two writes: Prometheus scrapes no more often, and a thousand nodes take a second of CPU


class Sinks:
    """All sinks of a watch, open from their creation until they are closed.

    Updated by the watch's own thread; other threads that request a snapshot do not wait for it.
    """

    def __init__(self, cluster: str, watch: Watch, say: Callable[[str], object]) -> None:
        self._cluster = cluster.encode("utf-8", "backslashreplace").decode()  # it may be a file name
        self._watch, self._say = watch, say
        self._began_s = time.time()
        self._nodes = {name: NodeMetrics() for name in watch.names}
        self._is_measured = False
        self._open_of: dict[str, Mapping[Key, RuleResult]] = {}  # each is replaced, and never changed
        self._said: Counter[tuple[str, Verdict]] = Counter()
        self._parts: dict[str, Callable[[], bool]] = {}
        self._notifiers: list[Notifier] = []
        self._ticks: list[Callable[[], object]] = []
        self._page: LivePage | None = None
        self._open = ExitStack()

    def __enter__(self) -> Sinks:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add_part(self, part: str, is_failing: Callable[[], bool]) -> None:
        """Let metrics show whether a part of the watch is failing."""
        self._parts[part] = is_failing

    def listen(self, address: Address, command: tuple[str, ...]) -> None:
        """Serve browsers and Prometheus. Raises NoAddress."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Metrics(self.measured()))
        self._page = LivePage(self._watch.evaluator, self._watch.every_s, self._open_now, command)
        self._ticks.append(self._page.ticked)
        listener = Listener(address, {"/metrics": make_wsgi_app(registry), "/": self._page})
        self._open.callback(listener.close)
        self._say(f"page: {listener.url}, metrics: {listener.url}metrics")

    def write(self, path: Path) -> None:
        """Keep a file for node_exporter. Raises NoTextfile."""
        file = Textfile(path, max(MIN_S, self._watch.every_s), self.measured(), self._say)
        self._open.callback(file.close)
        self.add_part("textfile", lambda: file.outage.is_failing)

    def notify(self, receivers: Sequence[Receiver], folder: Path | None, remind_s: float | None = None) -> None:
        """Send changes to these receivers; the folder keeps an outbox for each. Raises OSError."""
        outboxes = outboxes_in(folder, self._cluster, self._say) if folder else {}
        paths = (
            paths_for(folder, [receiver.identity for receiver in receivers], outboxes)
            if folder
            else [None] * len(receivers)
        )
        since_s = {key: time.time() - time.monotonic() + at for key, at in self._watch.states.opened_at.items()}
        for receiver, path in zip(receivers, paths, strict=True):
            file = OutboxFile(path, Outbox(self._cluster, receiver.identity), self._say)
            notifier = Notifier(receiver, file, self._say, remind_s, lambda: dict(self._open_now()))
            notifier.catch_up(frozenset(self._nodes), self._watch.states.open, since_s)
            self._open.callback(notifier.close)
            self._notifiers.append(notifier)
        left = {path: outbox.count for path, outbox in outboxes.items() if path not in paths and outbox.count}
        for path, number in left.items():
            self._say(
                f"nobody is sent what waits in {path}: {number_of(number, 'change')}; "
                "expected the --notify that it was kept for, or the file removed"
            )
        if receivers or left:
            self.add_part(
                "notify",
                lambda: any(map(Path.exists, left)) or any(notifier.is_failing for notifier in self._notifiers),
            )

    def beat(self, url: str) -> None:
        """Signal a dead man's switch at each tick. Raises NoHeartbeat."""
        heartbeat = Heartbeat(url, self._say)
        self._open.callback(heartbeat.close)
        self._ticks.append(heartbeat.ticked)
        self.add_part("heartbeat", lambda: heartbeat.outage.is_failing)

    def ticked(self) -> None:
        """The watch has completed a tick."""
        for act in self._ticks:
            act()

    def are_kept(self) -> bool:
        """Whether waiting notifications would survive this watch: only then may changes be recorded as reported."""
        return all(notifier.is_kept for notifier in self._notifiers)

    def update(self, node: str, update: Update, wall_s: float, at: float) -> None:
        """A node has reported something."""
        if self._is_measured:
            self._nodes[node] = self._nodes[node].after(update, wall_s, at)

    def report(self, changes: Sequence[Change]) -> None:
        """These changes were reported."""
        self._said.update((change.kind.value, change.verdict) for change in changes)
        for notifier in self._notifiers:
            notifier.queue(changes)

    def states_changed(self, nodes: Iterable[str]) -> None:
        """States of these nodes may have opened or closed."""
        for node in nodes:
            before, self._open_of[node] = self._open_of.get(node), self._watch.states.open_of(node)
            if self._page and self._open_of[node] != before:
                self._page.changed()

    def measured(self) -> Callable[[], Snapshot]:
        """The data for metrics, from what nodes report from now on: kept only if metrics are requested."""
        self._is_measured = True
        return self.snapshot

    def snapshot(self) -> Snapshot:
        """The current state of the watch; from any thread."""
        return Snapshot(
            cluster=self._cluster,
            version=__version__,
            began_s=self._began_s,
            now=time.monotonic(),
            every_s=self._watch.every_s,
            fresh_s=self._watch.timing.silent_ticks * self._watch.every_s,
            nodes=self._nodes.copy(),
            open=dict(self._open_now()),
            evaluated=frozenset(filter(self._watch.evaluator.knows, list(self._nodes))),
            incomplete=self._watch.incomplete.copy(),
            said=dict(self._said),
            notified=self._notified(),
            failing={part: is_failing() for part, is_failing in self._parts.copy().items()},
        )

    def _open_now(self) -> Iterator[tuple[Key, RuleResult]]:
        return (item for results in list(self._open_of.values()) for item in results.items())

    def _notified(self) -> Mapping[str, int]:
        return {
            name: sum(notifier.counts[name] for notifier in self._notifiers) for name in OUTCOMES if self._notifiers
        }
