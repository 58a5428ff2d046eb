"""Keeps one node's session open: the sampler runs in it, and is restarted when the session ends."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from clusterproof.plugins.agent.payload import cursor_word, new_nonce, sampler, started_by_shell
from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.record import record
from clusterproof.plugins.transport import PROGRAM_ENDED, NodeSession
from clusterproof.plugins.watch.overlay import LogCursor
from clusterproof.plugins.watch.updates import LinesLost, NotUnderstood, Update, UpdateStream

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
NO_THREAD_S = 5.0  # after no thread could be started
SETTLED_S = 60.0  # after a connection of this length, the next is started without delay
DEAD_TICKS, MIN_DEAD_S = 4, 30.0  # without any output
MAX_WAITING, BUSY_S = 5_000, 0.05  # unprocessed events
MAX_A_TICK = 1 << 20  # bytes that a node may send between two ticks


@record
class SessionEnded:
    """A session has ended, with the reason."""

    why: str


@record
class SessionEvent:
    """An event of a node, and its time by time.monotonic()."""

    node: str
    what: Update | SessionEnded
    at: float


@record
class SamplerOptions:
    """The options of the sampler on nodes."""

    every_s: float
    host_root: str = "/"
    sudo: bool = False
    mounts: tuple[str, ...] = ()  # expected by the policy

    def sampler(self, has_input: bool) -> str:
        """The sampler program."""
        return sampler(self.every_s, self.host_root, has_input, self.mounts)


class SamplerSession:
    """The session of one node: has a thread while connecting, and as long as its session needs one."""

    def __init__(
        self,
        target: Target,
        session: NodeSession,
        sampling: SamplerOptions,
        cursor: Callable[[], LogCursor | None],
        events: SimpleQueue[SessionEvent | None],
    ) -> None:
        self._target, self._session, self._sampling, self._cursor, self._events = (
            target,
            session,
            sampling,
            cursor,
            events,
        )
        self._is_over, self._has_ended = threading.Event(), threading.Event()
        self._pause_s = FIRST_PAUSE_S

    def start(self) -> None:
        """Start the session."""
        self._begin_in(0.0)

    def end(self) -> None:
        """End the sampler."""
        self._is_over.set()
        self._session.end()

    def join(self, timeout_s: float) -> bool:
        """Wait until it has ended; false at the timeout."""
        return self._has_ended.wait(timeout_s)

    def _begin_in(self, pause_s: float) -> None:
        name = f"watch-{self._target.name}"
        threading.Thread(target=self._begin, args=(pause_s,), name=name, daemon=True).start()

    def _begin_once_there_is_room(self, pause_s: float) -> None:
        """Start it, on a thread that has nothing else to do; as often as this machine has no thread left."""
        while not self._is_over.is_set():
            try:
                return self._begin_in(pause_s)
            except RuntimeError:
                self._is_over.wait(NO_THREAD_S)
        self._has_ended.set()
        return None

    def _begin(self, pause_s: float) -> None:
        self._is_over.wait(pause_s)
        began, nonce = time.monotonic(), new_nonce()
        stream = UpdateStream(nonce)
        if self._is_over.is_set():
            self._has_ended.set()
            return
        try:
            ended = self._run(nonce, stream)
        except Exception as problem:  # a bug of ours affects one node for a while, not the watch
            self._begin_again(began, _end_reason(problem, stream))
            return
        if isinstance(ended, Future):
            ended.add_done_callback(lambda future: self._begin_again(began, _why(future, stream)))
        else:
            self._begin_again(began, _end_reason(ended, stream))

    def _begin_again(self, began: float, why: str) -> None:
        if self._is_over.is_set():
            self._has_ended.set()
            return
        self._put(SessionEnded(why))
        is_settled = time.monotonic() - began > SETTLED_S
        self._pause_s = FIRST_PAUSE_S if is_settled else min(LONGEST_PAUSE_S, 2 * self._pause_s)
        self._begin_once_there_is_room(self._pause_s * random.uniform(0.7, 1.0))  # noqa: S311 - not all at once again

    def _run(self, nonce: str, stream: UpdateStream) -> str | Future[str]:
        bucket = _TokenBucket(self._sampling.every_s)

        def received(piece: bytes) -> None:
            bucket.take(len(piece))
            for update in stream.updates(piece):
                while self._events.qsize() > MAX_WAITING and not self._is_over.is_set():
                    time.sleep(BUSY_S)  # many nodes send a backlog at once; their connections buffer it
                self._put(update)

        text = self._sampling.sampler(self._session.has_input)
        word = cursor_word(self._cursor() or NO_CURSOR)
        program = started_by_shell(text, nonce, self._sampling.sudo, on_stdin=True, word=word)
        dead_s = max(MIN_DEAD_S, DEAD_TICKS * self._sampling.every_s)
        return self._session.run(self._target, program, received, dead_s)

    def _put(self, what: Update | SessionEnded) -> None:
        self._events.put(SessionEvent(self._target.name, what, time.monotonic()))


def _why(ended: Future[str], stream: UpdateStream) -> str:
    problem = ended.exception()
    return _end_reason(problem if isinstance(problem, Exception) else ended.result(), stream)


def _end_reason(why: str | Exception, stream: UpdateStream) -> str:
    """Why it ended, including what the node printed instead of samples."""
    if isinstance(why, LinesLost):
        return str(why)
    if isinstance(why, NotUnderstood):
        return f"not understood: {why}"
    if isinstance(why, Exception):
        return f"{type(why).__name__}: {why}"
    return f"{why}: {stream.noise}" if stream.noise and why == PROGRAM_ENDED else why


class _TokenBucket:
    """Limits how much a node may send: an endless stream would fill the controller's memory."""

    def __init__(self, every_s: float) -> None:
        self._per_s = MAX_A_TICK / every_s
        self._left, self._at = float(MAX_A_TICK), time.monotonic()

    def take(self, size: int) -> None:
        """Raises NotUnderstood when the limit is exceeded."""
        now = time.monotonic()
        self._left = min(MAX_A_TICK, self._left + (now - self._at) * self._per_s) - size
        self._at = now
        if self._left < 0:
            raise NotUnderstood(f"more than {MAX_A_TICK:,} bytes a tick")
