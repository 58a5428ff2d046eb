"""Visits many nodes at once, each in its own thread, so that none delays another; and tracks who has not answered."""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.transport import Answer

LOOK_S = 1.0  # between two looks at deadlines, as a visit may also move its own forward
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS)


class Visit(Protocol):
    """The visit of one node."""

    @property
    def deadline(self) -> float:
        """By time.monotonic(); the visit may move it."""

    def make(self) -> Answer:
        """Visit the node; called in a thread of its own."""

    def abandon(self) -> Answer | None:
        """Abort the visit from another thread, as far as possible; returns at once.

        The answer if something other than the node is late; None: the node has timed out.
        """


@dataclass(slots=True)
class _RunningVisit:
    target: Target
    visit: Visit
    started: float


def fan_out(
    targets: Sequence[Target],
    begin: Callable[[Target], Visit],
    fanout: int,
    answered: Callable[[Target, Answer], None],
) -> None:
    """Visit every target, `fanout` at a time; `begin` and `answered` are called on the calling thread.

    A visit past its deadline is answered as timed out and abandoned without waiting: its thread is a daemon.
    """
    waiting = deque(enumerate(targets))
    running: dict[int, _RunningVisit] = {}
    answers: SimpleQueue[tuple[int, Answer]] = SimpleQueue()
    try:
        while waiting or running:
            while waiting and len(running) < max(fanout, 1):
                number, target = waiting.popleft()
                running[number] = _RunningVisit(target, begin(target), time.monotonic())
                _start(number, running[number].visit, answers)
            for number, answer in _next_answers(running, answers):
                begun = running.pop(number, None)
                if begun:  # else it was abandoned, and has answered after all
                    answered(begun.target, answer)
    finally:
        for begun in running.values():
            begun.visit.abandon()


def is_out_of_resources(problem: BaseException) -> bool:
    """Whether this machine had no thread, file, process or memory left, which says nothing about the node."""
    if isinstance(problem, OSError):
        return problem.errno in _OUT_OF_RESOURCES
    return isinstance(problem, MemoryError) or (isinstance(problem, RuntimeError) and "new thread" in str(problem))


def _start(number: int, visit: Visit, answers: SimpleQueue[tuple[int, Answer]]) -> None:
    def make() -> None:
        try:
            answer = visit.make()
        except Exception as problem:  # a bug of ours costs one node, not the run
            why = Unreached.THROTTLED if is_out_of_resources(problem) else Unreached.LOST
            answer = Answer(unreached=why, detail=f"{type(problem).__name__}: {problem}")
        answers.put((number, answer))

    try:
        threading.Thread(target=make, name=f"visit-{number}", daemon=True).start()
    except RuntimeError as problem:
        detail = f"{problem} on this machine; expected room for --fanout"
        answers.put((number, Answer(unreached=Unreached.THROTTLED, detail=detail)))


def _next_answers(
    running: dict[int, _RunningVisit], answers: SimpleQueue[tuple[int, Answer]]
) -> list[tuple[int, Answer]]:
    """The next answer, or timeouts for visits whose deadline has passed."""
    next_deadline = min(begun.visit.deadline for begun in running.values())
    try:
        return [answers.get(timeout=min(max(next_deadline - time.monotonic(), 0.0), LOOK_S))]
    except Empty:
        return _abandon_overdue(running)


def _abandon_overdue(running: dict[int, _RunningVisit]) -> list[tuple[int, Answer]]:
    now = time.monotonic()
    overdue = [(number, begun) for number, begun in running.items() if begun.visit.deadline <= now]
    return [(number, begun.visit.abandon() or _too_late(now - begun.started)) for number, begun in overdue]


def _too_late(seconds: float) -> Answer:
    return Answer(unreached=Unreached.TIMED_OUT, detail=f"abandoned: no end after {seconds:.0f} s", seconds=seconds)


LINE_S = 10.0  # between two lines on pending nodes, if there is no terminal
MAX_NAMES = 60  # characters
FEW, FEW_OF_MANY, MAX_NAMED = 4, 0.1, 32  # nodes, share of all, maximum: the limits up to which nodes are named


class PendingNodes:
    """Describes which nodes have not answered yet; answers arrive from many threads."""

    def __init__(self, doing: str, names: list[str], *, are_named: bool) -> None:
        self._doing, self._names, self._are_named = doing, names, are_named
        self._awaited = dict.fromkeys(names)
        self._unreached = 0
        self._lock = threading.Lock()

    def answered(self, evidence: NodeEvidence) -> None:
        """Count an answer, or a node that will give none."""
        with self._lock:
            if not self._awaited:
                self._awaited, self._unreached = dict.fromkeys(self._names), 0
            self._awaited.pop(evidence.node, None)
            self._unreached += evidence.unreached is not None

    @property
    def total(self) -> int:
        """How many nodes are asked."""
        return len(self._names)

    @property
    def done(self) -> int:
        """How many are no longer awaited."""
        return len(self._names) - len(self._awaited)

    @property
    def description(self) -> str:
        """`asking the nodes: 124 of 128 done, 1 not reached; waiting for gpu[003,017]`."""
        with self._lock:
            not_reached = f", {self._unreached} not reached" if self._unreached else ""
            are_few = 0 < len(self._awaited) <= min(MAX_NAMED, max(FEW, len(self._names) * FEW_OF_MANY))
            names = (
                f"; waiting for {printable(within(fold(self._awaited), MAX_NAMES))}"
                if are_few and self._are_named
                else ""
            )
            return f"{self._doing}: {self.done:,} of {len(self._names):,} done{not_reached}{names}"
