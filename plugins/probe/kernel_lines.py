"""Which lines of a kernel log are kept: those that matter, and of lines alike the first and the last."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

# Small letters. First plain words, which is quick for the many lines that do not matter; then exactly.
HINT = re.compile(
    b"nvrm|nvidia|nvswitch|off the bus|efa|infiniband|rdma|lustre|lnet|nfs|machine check|hardware error"
    b"|memory|mce:|edac|ghes|apei|aer:|pcie bus|oom|for more than|lockup|stall|segfault|general prot|traps:"
)
MATTERS = re.compile(
    rb"nvrm|nvidia|nvswitch|off the bus"
    rb"|\befa\b|infiniband|rdma"
    rb"|lustre|\blnet|\bnfs"
    rb"|\bmce:|machine check|hardware error|memory failure|\bedac\b|\bghes\b|\bapei\b|\baer:|pcie bus error"
    rb"|out of memory|allocate memory|allocation failure|\boom\b|oom-kill|oom_reaper"
    rb"|for more than \d+ seconds|lockup|stall|segfault at|general protection|\btraps:"
)
BOOT_S = 1.0  # a log that begins later has lost its beginning
EACH = 16  # of lines alike: so many first, and so many last
MAX_KINDS = 1000
MAX_KIND = 120  # characters in which lines alike are alike
MAX_CHARACTERS = 1000  # of one line
MAX_TOLD = 1_500_000  # characters of all lines
NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


class Kept:
    """The lines that are told, and how many were read and left out."""

    def __init__(self) -> None:
        self._first: dict[str, list[tuple[int, float, str]]] = {}
        self._last: dict[str, deque[tuple[int, float, str]]] = {}
        self._matched = 0
        self.truncated = False  # whether records of this boot are lost

    def of(self, lines: Iterable[tuple[float, bytes]]) -> dict[str, object]:
        """Read a log to its end: lines with their seconds since boot."""
        read = 0
        for seconds, text in lines:
            self.truncated |= read == 0 and seconds >= BOOT_S
            read += 1
            small = text.lower()
            if HINT.search(small) and MATTERS.search(small):
                self._keep(read, seconds, text.decode("utf-8", "replace")[:MAX_CHARACTERS])
        told = self._told()
        return {
            "lines": [[seconds, text] for _, seconds, text in told],
            "read": read,
            "dropped": self._matched - len(told),
            "truncated": self.truncated,
        }

    def _keep(self, number: int, seconds: float, text: str) -> None:
        self._matched += 1
        kind = self._kind(text)
        first = self._first.setdefault(kind, [])
        if len(first) < EACH:
            first.append((number, seconds, text))
        else:
            self._last.setdefault(kind, deque(maxlen=EACH)).append((number, seconds, text))

    def _kind(self, text: str) -> str:
        """What lines alike have in common; coarser and coarser in a log of ever different lines."""
        text = text[:MAX_KIND]
        head, comma, _ = text.partition(",")
        kind = head if comma else NUMBERS.sub("#", text)
        if kind in self._first or len(self._first) < MAX_KINDS:
            return kind
        kind = NUMBERS.sub("#", head)[:40]
        return kind if kind in self._first or len(self._first) < 2 * MAX_KINDS else ""

    def _told(self) -> list[tuple[int, float, str]]:
        """The kept lines in their order; fewer of each kind where all would be too much."""
        each = EACH
        while True:
            told = [line for first in self._first.values() for line in first[:each]]
            told += [line for last in self._last.values() for line in list(last)[-each:]]
            if each == 1 or sum(len(text) for _, _, text in told) <= MAX_TOLD:
                return sorted(told)
            each //= 2
