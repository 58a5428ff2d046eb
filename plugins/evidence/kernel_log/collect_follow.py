"""Follows the kernel log while a job runs: lines that matter as they come, and of many alike how many they were."""

from __future__ import annotations

import os
import stat
import time

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.kernel_log.collect import BLOCK_BYTES, ESCAPED, KERNEL_FACILITY, KMSG, RECORD
from clusterproof.plugins.evidence.kernel_log.collect_lines import HINT, MATTERS, MAX_CHARACTERS, XID, without_numbers

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MAX_RECORDS = 2000  # that are read at once: who floods the log does not keep the sampler from its other work
EACH = 8  # of lines alike, in a window
WINDOW_S = 60.0
MAX_KINDS = 200  # … and of kinds of lines
MAX_KIND = 120  # characters in which lines alike are alike


class Follower:
    """The kernel's own lines from a record on; from now on, where the node has booted since that was read."""

    def __init__(self, node: Node, cursor: tuple[str, int, float]) -> None:
        self.why_not = ""  # nothing is followed
        self.is_device = False  # whether poll() signals that there is more; a file has to be read again
        self.file = -1
        self.boot_id = str(node.text(BOOT_ID, absent=""))
        self._sequence = cursor[1] if cursor[0] == self.boot_id else -1
        self._rest = b""
        self._calm = _Calm()
        try:
            self.file = os.open(node.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self.is_device = stat.S_ISCHR(os.fstat(self.file).st_mode)
            if self._sequence < 0:
                os.lseek(self.file, 0, os.SEEK_END)
        except OSError as problem:
            self.why_not = f"{KMSG}: {problem.strerror}"

    def lines(self) -> list[list[object]]:
        """What came since: sequence, seconds since boot, text, and how many lines alike were left out before it."""
        if self.why_not:
            return []
        data = []
        for record in self._records():
            found = RECORD.match(record)
            if not found or int(found[2]) <= self._sequence:
                continue
            self._sequence = int(found[2])
            if int(found[1]) >= KERNEL_FACILITY:
                continue
            text = ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), found[4])
            small = text.lower()
            if HINT.search(small) and MATTERS.search(small):
                words = text.decode("utf-8", "replace")[:MAX_CHARACTERS]
                data += self._calm.add([self._sequence, int(found[3]) / 1e6, words])
        return data + self._calm.due()

    def _records(self) -> list[bytes]:
        """The records that are there now; of a device one comes at a time."""
        records: list[bytes] = []
        while len(records) < MAX_RECORDS:
            try:
                read = os.read(self.file, BLOCK_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # records were overwritten before we came to them
                continue
            except OSError as problem:
                self.why_not = f"{KMSG}: {problem.strerror}"
                break
            if not read:
                break
            *whole, self._rest = (self._rest + read).split(b"\n")
            records += whole
        return records


class _Calm:
    """Of lines alike the first few in a minute; then the last one, with how many came before it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._last: dict[str, list[object]] = {}
        self._began = time.monotonic()

    def add(self, line: list[object]) -> list[list[object]]:
        text = str(line[2])
        xid = XID.match(text)
        kind = xid[0] if xid else without_numbers(text[:MAX_KIND])
        if kind not in self._counts and len(self._counts) >= MAX_KINDS:
            kind = ""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= EACH:
            return [[*line, 0]]
        self._last[kind] = line
        return []

    def due(self) -> list[list[object]]:
        """What was left out, when its minute is over."""
        if time.monotonic() - self._began < WINDOW_S:
            return []
        data = [[*line, self._counts[kind] - EACH - 1] for kind, line in self._last.items()]
        self._counts, self._last, self._began = {}, {}, time.monotonic()
        return data
