"""Processes in lasting uninterruptible sleep while a node is watched, in the form of collector `processes`."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.host.collect_processes import read

LOOK_S = 9.5  # at all processes: a walk of some 20 ms
BLOCKED = b"D"


class Sampler:
    """Looks for processes that are blocked in two passes; reports each pass with any, and then their end."""

    def __init__(self, _: Node) -> None:
        self._looked = -LOOK_S
        self._blocked: set[tuple[str, bytes]] = set()
        self._is_told = True  # once at the beginning: what was known before may be over

    def fixed(self) -> object:
        """Nothing."""
        return None

    def sample(self, node: Node) -> dict[str, object]:
        """The facts, if some stay blocked, and once more when none does."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return {}
        self._looked = now
        before, self._blocked = self._blocked, _blocked(node)
        was_told, self._is_told = self._is_told, bool(before & self._blocked)
        if not (was_told or self._is_told):
            return {}
        processors = os.sched_getaffinity(0)
        try:
            return {"facts": {"processes": read(node)}}
        finally:
            os.sched_setaffinity(0, processors)  # it goes to where each has run last


def _blocked(node: Node) -> set[tuple[str, bytes]]:
    """Each by its number and when it began."""
    seen = set()
    for pid in node.pids():
        state, began = _state(node.path(f"/proc/{pid}/stat"))
        if state == BLOCKED:
            seen.add((pid, began))
    return seen


def _state(path: str) -> tuple[bytes, bytes]:
    """The state of a process and when it began; nothing where it has ended."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b"", b""
    try:
        fields = os.read(file, 4096).rpartition(b") ")[2].split(b" ", 20)
    except OSError:
        return b"", b""
    finally:
        os.close(file)
    return (fields[0], fields[19]) if len(fields) > 19 else (b"", b"")
