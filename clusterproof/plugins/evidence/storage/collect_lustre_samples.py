"""Samples Lustre while a job runs: bytes read and written, and changed connections."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.evidence.storage.collect_lustre import read

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

COLUMNS = ("lustre_read", "lustre_write")
FOLDERS = ("/proc/fs/lustre/llite", "/sys/kernel/debug/lustre/llite")  # Lustre 2.10; since 2.12, readable only by root
MAX_MOUNTS = 32
CONNECTED = ("FULL", "IDLE")  # an IDLE connection reconnects when it is next used
MB = 1e6


class Sampler:
    """Samples the file systems that are mounted at the start."""

    def __init__(self, node: Node) -> None:
        """Raises Absent if no file system is mounted, or its statistics cannot be read."""
        folders = [f"{folder}/{name}" for folder in FOLDERS for name in _names(node, folder)]
        self._files = [f"{folder}/stats" for folder in folders if node.exists(f"{folder}/stats")][:MAX_MOUNTS]
        if not self._files:
            raise Absent("no stats of a Lustre client")
        self._before: tuple[float, int, int] | None = None
        self._lost: set[str] = set()  # connections that were lost at the last sample
        self._sent: object = None

    def fixed(self) -> object:
        """Nothing: all values are sampled."""
        return None

    def sample(self, node: Node) -> dict[str, object]:
        """The values named by COLUMNS, and the report of the collector `lustre` if a connection has changed."""
        return {"values": self._values(node), "facts": self._changed(node)}

    def _changed(self, node: Node) -> dict[str, object]:
        """The report, if it has changed; a connection counts as lost if it is so in two samples."""
        facts: Any = read(node)
        states = {row["name"]: row["state"] for row in facts["clients"]}
        before, self._lost = self._lost, {name for name, state in states.items() if state not in CONNECTED}
        signature = [facts["health"], sorted(states), sorted(self._lost)]
        if self._lost - before or signature == self._sent:
            return {}
        self._sent = signature
        return {"lustre": facts}

    def _values(self, node: Node) -> list[float | None]:
        stats = [str(node.text(file, absent="")) for file in self._files]
        read, written = (sum(_bytes(text, word) for text in stats) for word in ("read", "write"))
        now = (time.monotonic(), read, written)
        before, self._before = self._before, now
        if before is None or now[0] <= before[0] or now[1] < before[1] or now[2] < before[2]:
            return [None, None]
        return [round((now[at] - before[at]) / MB / (now[0] - before[0]), 2) for at in (1, 2)]


def _names(node: Node, folder: str) -> list[str]:
    try:
        return node.names(folder)
    except OSError:
        return []


def _bytes(stats: str, word: str) -> int:
    """The sum in a line such as `read_bytes 12 samples [bytes] 4096 1048576 8392704`."""
    for line in stats.splitlines():
        cells = line.split()
        if cells[:1] == [f"{word}_bytes"] and len(cells) > 6 and cells[6].isdecimal():
            return int(cells[6])
    return 0
