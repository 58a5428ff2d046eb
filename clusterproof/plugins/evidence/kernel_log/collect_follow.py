"""Follows the kernel log while a job runs: sends relevant lines as they arrive, and counts similar ones."""

from __future__ import annotations

import os
import stat
import time

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.kernel_log.collect import (
    BLOCK_BYTES,
    BOOT_ID,
    ESCAPED,
    KERNEL_FACILITY,
    KMSG,
    RECORD,
)
from clusterproof.plugins.evidence.kernel_log.collect_lines import MAX_CHARACTERS, Kinds, Paired, further, topic_of

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from clusterproof.plugins.evidence.kernel_log.collect_lines import Entry

MAX_RECORDS = 2000  # records read at once, so that a flood of them does not keep the sampler from its other work
EACH = 8  # similar lines in a window
WINDOW_S = 60.0
TORN = b""  # in place of records that were overwritten before they were read
MAX_KINDS = 100  # … lines with the same beginning


class Follower:
    """The kernel's own lines after a record; from now on, if the node has rebooted since."""

    def __init__(self, node: Node, cursor: tuple[str, int, float]) -> None:
        self.why_not = ""  # nothing is followed
        self.is_device = False  # whether poll() signals that there is more; a file has to be read again
        self.file = -1
        self.boot_id = str(node.text(BOOT_ID, absent=""))
        self._sequence = cursor[1] if cursor[0] == self.boot_id else -1
        self.lost = 0  # records that were overwritten before they were read; the reader of this number sets it to 0
        self._is_torn = self._sequence >= 0  # whether some may be missing before the next record
        self._rest = b""
        self._calm = _Calm()
        self._paired = Paired()
        try:
            self.file = os.open(node.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self.is_device = stat.S_ISCHR(os.fstat(self.file).st_mode)
            if self._sequence < 0:
                os.lseek(self.file, 0, os.SEEK_END)
        except OSError as problem:
            self.why_not = f"{KMSG}: {problem.strerror}"

    def lines(self) -> list[list[object]]:
        """New lines: sequence, seconds, text, number of similar lines omitted before it; an error's level."""
        if self.why_not:
            return []
        rows = []
        for record in self._records():
            match = RECORD.match(record)
            self._is_torn |= record == TORN
            if not match:
                continue
            number, level = int(match[2]), int(match[1])
            if self._is_torn:
                self.lost += max(0, number - self._sequence - 1) if self._sequence >= 0 else 1  # or more
            self._is_torn = False
            if number <= self._sequence:
                continue
            self._sequence = number
            text = ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), match[4])
            topic = topic_of(text, level)
            if level < KERNEL_FACILITY and topic:
                shown = text.decode("utf-8", "replace")[:MAX_CHARACTERS]
                for entry in self._paired.of((self._sequence, int(match[3]) / 1e6, shown, level)):
                    rows += self._calm.add(entry, topic[0].decode())
        return rows + self._calm.due()

    def _records(self) -> list[bytes]:
        """The records that are there now; the device gives one at a time."""
        records: list[bytes] = []
        while len(records) < MAX_RECORDS:
            try:
                read = os.read(self.file, BLOCK_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                records.append(TORN)
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
    """Passes on the first similar lines of each minute; then the last one, with the number omitted before it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._kinds = Kinds(MAX_KINDS)
        self._counts: dict[str, int] = {}
        self._last: dict[str, Entry] = {}

    def add(self, entry: Entry, topic: str) -> list[list[object]]:
        kind = self._kinds.of(entry, topic)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= EACH:
            return _sent(entry, 0)
        self._last[kind] = entry
        return []

    def due(self) -> list[list[object]]:
        """The lines that were left out, when their minute is over."""
        if time.monotonic() - self._began < WINDOW_S:
            return []
        rest = [
            line
            for kind, entry in self._last.items()
            for line in _sent(entry, 0 if kind in self._kinds.folded else self._counts[kind] - EACH - 1)
        ]
        self.__init__()  # type: ignore[misc]
        return rest


def _sent(entry: Entry, left_out: int) -> list[list[object]]:
    """The lines to send, the last with how many were left out before it; an error also has its level."""
    left_out_before = [0] * (len(entry) - 1) + [left_out]
    return [[*line[:3], *(further(before, line[3]) or [0])] for line, before in zip(entry, left_out_before)]
