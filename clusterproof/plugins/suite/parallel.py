"""Large runs on several CPUs: forked children examine shares of the nodes, ahead of the process that reports.

Each child inherits the evidence, takes a share of the nodes, and sends the findings of checks in the order of the
items. The parent makes the results, and stores and reports them as usual. What a child did not send in full, the
parent examines itself: a child that dies costs only time.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import select
import signal
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Finding
from clusterproof.plugins.evaluation.check import SUBJECTS
from clusterproof.plugins.evaluation.evaluate import ALL_PASSED, Examined, examine
from clusterproof.plugins.evaluation.needs import CHECKS
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.items import CheckItem
from clusterproof.plugins.suite.state import nodes_of, policy_of

MIN_ITEMS = 10_000  # below this, nothing is forked
MAX_CHILDREN = 8  # however many CPUs there are: each child copies what it modifies
MIN_GROUP_NODES = 20  # groups of at least this size are compared before the fork
BATCH_ITEMS = 250  # in one message of a child
TIMEOUT_S = 60.0  # for the next message of a child; its share is then examined without it
PIPE_BYTES = 1 << 20  # how far a child may be ahead: Linux's usual limit
_LENGTH = struct.Struct("=I")
_TERMINATING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Child:
    """A forked process, and the results that it has sent so far."""

    def __init__(self, items: Sequence[CheckItem]) -> None:
        self.items = items
        self.position = 0  # of the next item to be read
        self.pid = 0
        self._batch: Iterator[Examined] = iter(())
        self._buffer = b""
        self._read_end, write_end = os.pipe()
        with suppress(OSError):  # with a smaller pipe, the child waits more often
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._start(write_end)
        finally:
            os.close(write_end)

    def _start(self, write_end: int) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINATING)  # the child must not run the parent's handlers
        try:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self._read_end)  # otherwise it would keep writing after the reader has gone
                _run_child(self.items, write_end, mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def examined(self, item: CheckItem) -> Examined | None:
        """The child's result for an item of its share; None for other items, or if it sends no more."""
        if self.position >= len(self.items) or self.items[self.position] is not item:
            return None
        self.position += 1
        received = next(self._batch, None)
        return self._of_next_batch() if received is None else received

    def _of_next_batch(self) -> Examined | None:
        try:
            left = len(self.items) - self.position + 1
            message = pickle.loads(self._message())  # noqa: S301 - of our own process
            self._batch = iter(_decode(message, min(left, BATCH_ITEMS)))
        except Exception:  # whatever happened to it, the parent examines the rest
            self.end()
        return next(self._batch, None)

    def _message(self) -> bytes:
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return self._read(length)

    def _read(self, length: int) -> bytes:
        """The next so many bytes. Raises EOFError if the child is gone, TimeoutError if it sends nothing."""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        while len(self._buffer) < length:
            if not poll.poll(TIMEOUT_S * 1000):
                raise TimeoutError
            received = os.read(self._read_end, 1 << 16)
            if not received:
                raise EOFError
            self._buffer += received
        message, self._buffer = self._buffer[:length], self._buffer[length:]
        return message

    def end(self) -> None:
        """Kill it, whatever it is doing."""
        self.position = len(self.items)
        if self.pid:
            os.close(self._read_end)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


class Children:
    """The child processes of a run, by the nodes of their shares."""

    def __init__(self) -> None:
        self.all: list[Child] = []
        self.by_node: dict[str, Child] = {}

    def examined(self, item: CheckItem) -> Examined | None:
        """What a check finds on a node, if a child has examined it."""
        child = self.by_node.get(item.node_name)
        return child.examined(item) if child else None

    def start(self, items: Sequence[CheckItem], count: int) -> None:
        """Start so many children with a share each; fewer if the machine has no room for them."""
        names = list(dict.fromkeys(item.node_name for item in items))
        for number in range(count):
            share = names[number * len(names) // count : (number + 1) * len(names) // count]
            of_share = frozenset(share)
            try:
                child = Child([item for item in items if item.node_name in of_share])
            except OSError:
                return
            self.all.append(child)
            self.by_node.update(dict.fromkeys(share, child))

    def end(self) -> None:
        """Kill all of them."""
        for child in self.all:
            child.end()


@contextmanager
def children_of(session: pytest.Session | None) -> Iterator[Children]:
    """Fork children if the run is large and forking is possible; kills them at the end."""
    children = Children()
    try:
        if session and len(session.items) >= MIN_ITEMS and (count := _processors()) > 1:
            items = _items_of_nodes(session)
            _compare_groups(items, nodes_of(session.config))
            children.start(items, count)
        yield children
    finally:
        children.end()


def _processors() -> int:
    """How many children may run at once; 0 if this process must not fork."""
    return min(len(os.sched_getaffinity(0)), MAX_CHILDREN) if _can_fork() else 0


def _can_fork() -> bool:
    """Whether a copy of this process can continue alone: no other threads, no tracer, no other plugins' children."""
    if sys.platform != "linux" or len(list(Path("/proc/self/task").iterdir())) > 1:
        return False
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12 and newer
    is_traced = sys.gettrace() or sys.getprofile() or (monitoring and any(map(monitoring.get_tool, range(6))))
    return not is_traced and signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL


def _items_of_nodes(session: pytest.Session) -> list[CheckItem]:
    """The items of our own checks that are about one node and will run: third-party items may do more than evaluate."""
    folder, policy = f"{CHECKS}{os.sep}", policy_of(session.config)
    checks = (item for item in session.items if isinstance(item, CheckItem) and item.check.subject in SUBJECTS)
    own = (item for item in checks if str(item.path).startswith(folder))
    return [item for item in own if not policy.disables(item.check.route.check, item.node_name)]


def _compare_groups(items: Iterable[CheckItem], nodes: Mapping[str, Node]) -> None:
    """Examine one node of each large group, so that the group's comparison is computed once, before the fork."""
    large = {name: node for name, node in nodes.items() if len(node.group.nodes) >= MIN_GROUP_NODES}
    first = {id(node.group): name for name, node in reversed(large.items()) if not node.evidence.unreached}
    chosen = frozenset(first.values())
    for item in items:
        if item.node_name in chosen:
            examine(item.check, item.owner)


def _run_child(items: Iterable[CheckItem], write_end: int, mask: Iterable[int]) -> None:
    """The child's main function: examines its items in order, and exits without side effects."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills the children
        for number in _TERMINATING - {signal.SIGINT}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        left = iter(items)
        while batch := list(islice(left, BATCH_ITEMS)):
            sent: dict[tuple[Finding, ...], list[Finding]] = {}
            message = pickle.dumps([_encode(examine(item.check, item.owner), sent) for item in batch])
            _write(write_end, _LENGTH.pack(len(message)) + message)
    finally:
        os._exit(0)


def _write(pipe: int, message: bytes) -> None:
    while message:
        message = message[os.write(pipe, message) :]


def _encode(examined: Examined, sent: dict[tuple[Finding, ...], list[Finding]]) -> Examined | float:
    """Encode results: of passes, the usual case, only the seconds; findings `sent` before only once."""
    findings, seconds = examined
    return seconds if findings is ALL_PASSED else (sent.setdefault(tuple(findings), findings), seconds)


def _decode(message: list[Examined | float], count: int) -> list[Examined]:
    """The inverse of `_encode` for so many items. Raises ValueError, TypeError for invalid data."""
    if len(message) != count:
        raise ValueError(f"{len(message)} items; expected {count}")
    return [(ALL_PASSED, entry) if isinstance(entry, float) else _checked(*entry) for entry in message]


def _checked(findings: list[Finding], seconds: float) -> Examined:
    if not findings or not isinstance(seconds, float) or not all(isinstance(finding, Finding) for finding in findings):
        raise ValueError("no findings")
    return findings, seconds
