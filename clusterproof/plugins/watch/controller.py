"""The controller of a watch: threads that talk to nodes, sinks for changes, and one loop between them."""

from __future__ import annotations

import ctypes
import gc
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.evidence.recording import write_cluster, write_node
from clusterproof.plugins.transport import Limits, sessions_for
from clusterproof.plugins.transport.fan_out import LINE_S
from clusterproof.plugins.watch import Change, ChangeKind
from clusterproof.plugins.watch.own_health import HostClock, UncheckedNodes
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.sampler_session import SamplerOptions, SamplerSession, SessionEnded, SessionEvent
from clusterproof.plugins.watch.sinks import Sinks
from clusterproof.plugins.watch.updates import Hello, Update
from clusterproof.plugins.watch.view import first_answers
from clusterproof.plugins.watch.visits import Visited, Visits
from clusterproof.plugins.watch.watch import Watch

FULL_VISIT_S = 3600.0  # between full visits of all nodes
DUE_S = 10.0  # maximum delay between checks for nodes that need an earlier visit
END_S = 5.0  # for nodes to end their samplers
WAIT_S = 0.5  # maximum delay for a sample without news: several are taken together

Show = Callable[[Sequence[Change]], object]


class Events(SimpleQueue[SessionEvent | Visited | None]):
    """The received events, in order; wakes the waiting loop, unless the event may wait for the next one."""

    def __init__(self, may_wait: Callable[[SessionEvent], bool]) -> None:
        super().__init__()
        self._may_wait = may_wait
        self._wakes: SimpleQueue[None] = SimpleQueue()  # threading.Event has a lock, which a handler may not take

    def put(self, event: SessionEvent | Visited | None, *_: object) -> None:
        """From any thread, or a signal's handler."""
        super().put(event)
        if not isinstance(event, SessionEvent) or not self._may_wait(event):
            self._wakes.put(None)

    def wait(self, timeout_s: float) -> None:
        """Until what is there is to be taken."""
        with suppress(Empty):
            self._wakes.get(timeout=timeout_s)
        for _ in range(self._wakes.qsize()):
            self._wakes.get()


@dataclass(frozen=True)
class WatchSettings:
    """The settings of a watch."""

    sampling: SamplerOptions
    limits: Limits
    probe: ProbeOptions
    for_s: float | None = None


class Controller:
    """A running watch."""

    def __init__(
        self,
        cluster: Cluster,
        watch: Watch,
        settings: WatchSettings,
        recording: Recording | None,
        show: Show,
        sinks: Sinks | None = None,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.cluster, self.watch, self.settings = cluster, watch, settings
        self.recording, self.show, self.say = recording, show, say
        self.sinks = sinks or Sinks(cluster.name, watch, lambda _: None)
        self._events = Events(lambda event: watch.is_without_news(event.node, event.what))
        self.on_session_end: Callable[[], object] = lambda: None  # called whenever a node's connection ends
        self._is_over = False
        collectors = watch.evaluator.collectors
        self._visits = Visits(cluster, collectors, settings.probe, settings.limits, self._events.put)
        self._why: dict[str, str] = {}
        self._sessions: list[SamplerSession] = []
        self._node_sessions = sessions_for(cluster.connection, settings.limits)
        self._unchecked = UncheckedNodes(say)

    def stop(self) -> None:
        """Stop the watch, from a signal or another thread."""
        self._is_over = True
        self._events.put(None)

    def run(self) -> None:
        """Visit all nodes, then watch them until the time is over or `stop` is called. Raises what the visit does."""
        try:
            if self.recording:
                folder = self.recording.folder
                self.recording.guard(lambda: write_cluster(folder, self.cluster), time.monotonic(), is_owed=True)
            self._visit([target.name for target in self.cluster.targets])
            self._take_first(self._first())
            if not self._is_over:
                self._connect()
                self._loop()
        finally:
            self._end()

    def _first(self) -> SessionEvent | Visited | None:
        """The first visit of all nodes, or None if stopped. Shows which nodes are awaited."""
        while True:
            try:
                return self._events.get(timeout=LINE_S)
            except Empty:
                self.say(self._visits.awaited)
                self.show(())

    def _take_first(self, first: SessionEvent | Visited | None) -> None:
        if isinstance(first, Visited) and first.failed:
            raise first.failed
        not_reached = list(first.not_reached) if isinstance(first, Visited) else []
        self._unchecked = UncheckedNodes(self.say, not_reached)
        self._handle(first)
        if first:
            self.say(first_answers(self.watch, not_reached))

    def _connect(self) -> None:
        sampling = self.settings.sampling
        self._node_sessions.open(sampling.sampler(self._node_sessions.has_input))  # before there are threads
        self.watch.connecting(time.monotonic())
        for target in self.cluster.targets:
            on_node = self._node_sessions.on_node(partial(self._interrupted, target.name))
            cursor = partial(self.watch.log_cursor, target.name)
            session = SamplerSession(target, on_node, sampling, cursor, self._events)  # type: ignore[arg-type] # takes more
            self._sessions.append(session)
            session.start()

    def _interrupted(self, node: str, why: str) -> None:
        """A node has been silent for a while."""
        self._events.put(SessionEvent(node, SessionEnded(why), time.monotonic()))

    def _loop(self) -> None:
        every_s = self.settings.sampling.every_s
        clock, began = HostClock(self.watch.timing.clock_step_s, self.say), time.monotonic()
        until = began + self.settings.for_s if self.settings.for_s is not None else float("inf")
        next_check, next_full_visit, due = began + every_s, began + FULL_VISIT_S, began
        while not self._is_over and (now := time.monotonic()) < until:
            if now >= next_full_visit:
                next_full_visit = now + FULL_VISIT_S
                self._visit([target.name for target in self.cluster.targets])
            if now >= due:
                due = now + min(every_s, DUE_S)
                # one visit at a time, for all nodes that are due, however many a refusal made due; reboots do not wait
                self._visit(self.watch.booted() if self._visits.nodes else self.watch.due_visits(now))
            if now >= next_check:
                next_check = now + every_s
                clock.check()
                self._take_all()  # what came in while a visit was evaluated comes before silence
                self._report(self.watch.check_silence(now))
                self.sinks.states_changed(self.watch.names)
                self.sinks.ticked()
            self._events.wait(max(0.0, min(now + WAIT_S, next_check, due, until) - time.monotonic()))
            self._take_all()

    def _take_all(self) -> None:
        for _ in range(self._events.qsize()):
            self._handle(self._events.get())

    def _handle(self, event: SessionEvent | Visited | None) -> None:
        if event is None:
            return
        if isinstance(event, Visited):
            names, not_reached = list(event.evidence_by_node), event.not_reached
            self._visits.end(event)
            self._evaluate(event.evidence_by_node)
            self.sinks.states_changed(names)
            self._unchecked.checked((name for name in names if name not in not_reached), not_reached)
        elif isinstance(event.what, SessionEnded):
            self._why[event.node] = event.what.why
            self.watch.ended(event.node, event.what.why)
            self.on_session_end()
        else:
            self._update(event.node, event.what, event.at)
            self.sinks.states_changed([event.node])

    def _update(self, node: str, update: Update, at: float) -> None:
        wall_s = time.time() - (time.monotonic() - at)
        if self.recording:
            why = self._why.pop(node, "") if isinstance(update, Hello) else ""
            self.recording.record(node, update, wall_s, at, why)
        self.sinks.update(node, update, wall_s, at)
        self._report(self.watch.update(node, update, at))

    def _visit(self, names: Iterable[str]) -> None:
        """Gather all evidence of these nodes, concurrently with the loop."""
        self.watch.visiting(self._visits.begin(names), time.monotonic())

    def _evaluate(self, evidence_by_node: dict[str, NodeEvidence]) -> None:
        now = time.monotonic()
        if self.recording:
            folder = self.recording.folder
            for evidence in evidence_by_node.values():
                if not evidence.unreached:
                    self.recording.guard(partial(write_node, folder, evidence), now)
        self._report(self.watch.evidence(evidence_by_node, now))
        evidence_by_node.clear()
        release_memory()

    def _report(self, changes: Sequence[Change]) -> None:
        """Report changes. If killed at any moment, a resumed watch sends what differs from what was delivered."""
        once = [change for change in changes if change.kind is ChangeKind.HAPPENED]  # which cannot be observed again
        self.sinks.report(once)
        if changes and self.recording:
            self.recording.changes(changes, time.time(), time.monotonic(), self.sinks.are_kept)
        self.sinks.report([change for change in changes if change.kind is not ChangeKind.HAPPENED])
        self.show(changes)

    def _end(self) -> None:
        for session in self._sessions:
            session.end()
        self._node_sessions.close()
        self._visits.abandon()
        until = time.monotonic() + END_S
        for session in self._sessions:
            session.join(max(0.0, until - time.monotonic()))
        if self.recording:
            self.recording.close(time.monotonic())


@contextmanager
def stopped_by_signals(controller: Controller) -> Iterator[None]:
    """Stop the watch on these signals: what waits for receivers is sent once more, and files say that it has ended."""
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # ignored, as under nohup
    signals = (signal.SIGINT, signal.SIGTERM, *([] if is_kept else [signal.SIGHUP]))
    handlers = {number: signal.signal(number, lambda *_: controller.stop()) for number in signals}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def release_memory() -> None:
    """Return a visit's memory to the system: it is not needed until the next visit."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc would keep it otherwise
    if trim:
        trim(0)
