"""Large runs on several processors: forked children examine shares of the nodes, ahead of the process that reports.

Each child has the evidence as its parent had it, takes a share of the nodes, and sends what checks say of them in the
order of the items. The parent makes the results, keeps and reports them as ever. What a child did not send in full,
the parent examines itself: a child that dies costs time, and nothing else.
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

from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.check_item import CheckItem
from clusterproof.plugins.suite.evaluate import NOTHING, Examined, Finding, examine
from clusterproof.plugins.suite.packaged import CHECKS
from clusterproof.plugins.suite.state import nodes_of, policy_of
from clusterproof.plugins.suite.subjects import SUBJECTS

WORTH_IT = 10_000  # items from which on
MOST = 8  # children, however many processors there are: each has a copy of what it works with
LARGE_GROUP = 20  # nodes
AT_ONCE = 250  # items of which a child tells in one go
SILENCE_S = 60.0  # of a child that hangs, until its share is examined without it
PIPE_BYTES = 1 << 20  # that a child may be ahead: Linux's usual limit
_LENGTH = struct.Struct("=I")
_ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Child:
    """A forked process, and what it has told of its items so far."""

    def __init__(self, items: Sequence[CheckItem]) -> None:
        self.items = items
        self.at = 0  # of the item that is asked for next
        self.pid = 0
        self._told: Iterator[Examined] = iter(())
        self._heard = b""
        self._pipe, writing = os.pipe()
        with suppress(OSError):  # where it may not be as large, the child waits more often
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._start(writing)
        finally:
            os.close(writing)

    def _start(self, writing: int) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # none of the parent's handlers is to run in the child
        try:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self._pipe)  # else its writing would go on when nobody reads any more
                _examine_all(self.items, writing, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def examined(self, item: CheckItem) -> Examined | None:
        """What it says of an item of its share; None of any other, and where it tells no more."""
        if self.at >= len(self.items) or self.items[self.at] is not item:
            return None
        self.at += 1
        told = next(self._told, None)
        if told is None:
            told = self._next()
        return told

    def _next(self) -> Examined | None:
        try:
            left = len(self.items) - self.at + 1
            self._told = iter(_long(pickle.loads(self._frame()), min(left, AT_ONCE)))  # noqa: S301 - of our own process
        except Exception:  # whatever happened to it, the share is examined all the same
            self.end()
        return next(self._told, None)

    def _frame(self) -> bytes:
        (length,) = _LENGTH.unpack(self._bytes(_LENGTH.size))
        return self._bytes(length)

    def _bytes(self, length: int) -> bytes:
        """The next so many. Raises EOFError where it is gone, TimeoutError where it says nothing."""
        waiting = select.poll()
        waiting.register(self._pipe, select.POLLIN)
        while len(self._heard) < length:
            if not waiting.poll(SILENCE_S * 1000):
                raise TimeoutError
            more = os.read(self._pipe, 1 << 16)
            if not more:
                raise EOFError
            self._heard += more
        data, self._heard = self._heard[:length], self._heard[length:]
        return data

    def end(self) -> None:
        """Let it go, wherever it is."""
        self.at = len(self.items)
        if self.pid:
            os.close(self._pipe)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


class Ahead:
    """What children have examined, by the node that it is about."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.by_node: dict[str, Child] = {}

    def examined(self, item: CheckItem) -> Examined | None:
        """What a check says of a node, where a child has examined it."""
        child = self.by_node.get(item.node_name)
        return child.examined(item) if child else None

    def start(self, items: Sequence[CheckItem], count: int) -> None:
        """Give so many children a share each; fewer where the machine has no room for them."""
        names = list(dict.fromkeys(item.node_name for item in items))
        for number in range(count):
            share = names[number * len(names) // count : (number + 1) * len(names) // count]
            of_share = frozenset(share)
            try:
                child = Child([item for item in items if item.node_name in of_share])
            except OSError:
                return
            self.children.append(child)
            self.by_node.update(dict.fromkeys(share, child))

    def end(self) -> None:
        """Let all of them go."""
        for child in self.children:
            child.end()


@contextmanager
def examined_ahead(session: pytest.Session | None) -> Iterator[Ahead]:
    """Let children examine what they may, where that is worth it and can be done; they are gone at the end."""
    ahead = Ahead()
    try:
        if session and len(session.items) >= WORTH_IT and (count := _processors()) > 1:
            items = _of_nodes(session)
            _compare_groups(items, nodes_of(session.config))
            ahead.start(items, count)
        yield ahead
    finally:
        ahead.end()


def _processors() -> int:
    """How many children may run at once; 0 where this process is not to be forked."""
    return min(len(os.sched_getaffinity(0)), MOST) if _can_fork() else 0


def _can_fork() -> bool:
    """Whether a copy of this process goes on as if it were alone: no other thread, no tracer, no other's children."""
    if sys.platform != "linux" or len(list(Path("/proc/self/task").iterdir())) > 1:
        return False
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12 and newer
    is_traced = sys.gettrace() or sys.getprofile() or (monitoring and any(map(monitoring.get_tool, range(6))))
    return not is_traced and signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL


def _of_nodes(session: pytest.Session) -> list[CheckItem]:
    """The items of our own checks that are about one node and to be run: those of others may do more than judge."""
    folder, policy = f"{CHECKS}{os.sep}", policy_of(session.config)
    checks = (item for item in session.items if isinstance(item, CheckItem) and item.check.subject in SUBJECTS)
    own = (item for item in checks if str(item.path).startswith(folder))
    return [item for item in own if not policy.disables(item.check.route.check, item.node_name)]


def _compare_groups(items: Iterable[CheckItem], nodes: Mapping[str, Node]) -> None:
    """Examine one node of each large group: what its nodes are compared with is then known, and not to each child."""
    large = {name: node for name, node in nodes.items() if len(node.group.nodes) >= LARGE_GROUP}
    first = {id(node.group): name for name, node in reversed(large.items()) if not node.evidence.unreached}
    chosen = frozenset(first.values())
    for item in items:
        if item.node_name in chosen:
            examine(item.check, item.owner)


def _examine_all(items: Iterable[CheckItem], writing: int, mask: Iterable[int]) -> None:
    """What a child does: it tells of its items one after the other, and ends without a word to anybody else."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the children
        for number in _ENDS - {signal.SIGINT}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        left = iter(items)
        while some := list(islice(left, AT_ONCE)):
            alike: dict[tuple[Finding, ...], list[Finding]] = {}
            data = pickle.dumps([_short(examine(item.check, item.owner), alike) for item in some])
            _write(writing, _LENGTH.pack(len(data)) + data)
    finally:
        os._exit(0)


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]


def _short(examined: Examined, alike: dict[tuple[Finding, ...], list[Finding]]) -> Examined | float:
    """Of what passed, which is most, only the seconds; what is said of many nodes `alike` is said once."""
    findings, seconds = examined
    return seconds if findings is NOTHING else (alike.setdefault(tuple(findings), findings), seconds)


def _long(told: list[Examined | float], count: int) -> list[Examined]:
    """The inverse of `_short`, of so many items. Raises ValueError, TypeError where it is not that."""
    if len(told) != count:
        raise ValueError(f"{len(told)} items; expected {count}")
    return [(NOTHING, entry) if isinstance(entry, float) else _checked(*entry) for entry in told]


def _checked(findings: list[Finding], seconds: float) -> Examined:
    if not findings or not isinstance(seconds, float) or not all(isinstance(one, Finding) for one in findings):
        raise ValueError("no findings")
    return findings, seconds
