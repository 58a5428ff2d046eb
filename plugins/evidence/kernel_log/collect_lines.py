"""Which lines of a kernel log are kept: those that matter, and of lines alike the first and the last."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    Line = tuple[int, float, str]  # its number, seconds since boot, the text

# Small letters. First plain words, which is quick for the many lines that do not matter; then exactly.
HINT = re.compile(
    b"nvrm|nvidia|nvswitch|neuron|off the bus|efa|infiniband|rdma|lustre|lnet|nfs|machine check|hardware error"
    b"|linux version|memory|allocation fail|fork rejected|mce:|edac|ghes|apei|aer:|pcie bus|oom|for more than|lockup"
    b"|stall|segfault|general prot|traps:|bug|unable to handle|oops|#|temperature|ext4|journal|xfs|nvme|error, dev"
    b"|ena |table |mlx5_core"
)
MATTERS = re.compile(
    rb"nvrm|nvidia|nvswitch|neuron|off the bus"
    rb"|\befa\b|infiniband|rdma"
    rb"|lustre|\blnet|\bnfs"
    rb"|^linux version \d|fork rejected"
    rb"|\bmce:|machine check|hardware error|memory failure|\bedac\b|\bghes\b|\bapei\b|\baer:|pcie bus error"
    rb"|out of memory|allocation failure|\boom\b|oom-kill|oom_reaper"
    rb"|\bbug: |kernel bug at|unable to handle kernel|\boops\b|\[#\d|package temperature (?:is )?above"
    rb"|\bext4-fs |aborting journal|\bxfs \(|\bnvme nvme\d+: (?:.* timeout, |contr|dev|rem|dis)|error, dev \S+, sector"
    rb"|\bena [0-9a-f:.]+(?: \S+)?: .*(?:timeout|not in running|lost tx|failed)|table overflow|conntrack: table full"
    rb"|\bmlx5_core .*(?:link down|cable )"
    rb"|for more than \d+ seconds|lockup|\bstalls?\b|segfault at|general protection|\btraps:"
)
BOOT_S = 1.0  # a log that begins later has lost its beginning
EACH = 16  # of lines alike: so many first, and so many last
MAX_KINDS = 1000
MAX_KIND = 120  # characters in which lines alike are alike
MAX_COARSE_KIND = 60  # and in a log of ever different lines
MAX_CHARACTERS = 1000  # of one line
MAX_TOTAL_CHARACTERS = 1_500_000  # of all lines
# What is not alike: PCI and IP addresses, targets of Lustre, devices. All other numbers are.
NAMES = r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b|\d+\.\d+\.\d+\.\d+|(?:OST|MDT)[0-9a-f]{4}|rdmap\d+s\d+"
NAMES_OR_NUMBERS = re.compile(rf"({NAMES})|0x[0-9a-f]+|\d+")
HINT_OF_NAMES = re.compile(r"[0-9a-f]\.\d|OST|MDT|rdmap")  # few lines have one, and the others are quick
NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
XID = re.compile(r"NVRM: Xid \([^()]{1,60}\): \d{1,6}|nvidia-nvswitch\d{1,4}: SXid \([^()]{1,60}\): \d{1,6}")


class Kept:
    """The lines that are sent, and how many were read and left out."""

    def __init__(self, sequence: int = -1, seconds: float = -1.0) -> None:
        self.has_cursor = seconds >= 0  # what came until then was looked at before
        self.is_at_cursor = True
        self.sequence = sequence  # of the last record read
        self.seconds = seconds  # since boot, of the last line read
        self._first: dict[str, list[Line]] = {}
        self._last: dict[str, deque[Line]] = {}
        self._counts: dict[str, int] = {}
        self._mixed: set[str] = set()  # kinds of lines that only begin alike
        self.truncated = False  # whether records of this boot are lost
        self.is_lost = False  # whether some are lost before the next that comes
        self._whole_from = 0.0  # seconds since boot from which on none is lost

    def of(self, lines: Iterable[tuple[float, bytes]]) -> dict[str, object]:
        """Read a log to its end: lines with their seconds since boot."""
        read = 0
        for seconds, text in lines:
            if self.is_lost or (read == 0 and seconds >= BOOT_S and not self.has_cursor):
                self.truncated, self.is_lost, self._whole_from = True, False, seconds
            read += 1
            self.seconds = max(self.seconds, seconds)
            small = text.lower()
            topic = HINT.search(small) and MATTERS.search(small)
            if topic:
                self._keep(read, seconds, text.decode("utf-8", "replace")[:MAX_CHARACTERS], topic[0].decode())
        data = self._lines()
        return {
            "lines": data,
            "read": read,
            "dropped": sum(self._counts.values()) - len(data),
            "truncated": self.truncated,
            "whole_from": self._whole_from,
        }

    def _keep(self, number: int, seconds: float, text: str, topic: str) -> None:
        kind = self._kind(text, topic)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        first = self._first.setdefault(kind, [])
        if len(first) < EACH:
            first.append((number, seconds, text))
        else:
            self._last.setdefault(kind, deque(maxlen=EACH)).append((number, seconds, text))

    def _kind(self, text: str, topic: str) -> str:
        """What lines alike have in common; coarser and coarser in a log of ever different lines, but for Xids."""
        xid = XID.match(text)
        kind = xid[0] if xid else without_numbers(text[:MAX_KIND])
        if kind in self._first or len(self._first) < (3 * MAX_KINDS if xid else MAX_KINDS):
            return kind
        kind = kind[:MAX_COARSE_KIND]
        if kind not in self._first and len(self._first) >= 2 * MAX_KINDS:
            kind = without_numbers(topic)
        self._mixed.add(kind)
        return kind

    def _lines(self) -> list[list[object]]:
        """The kept lines in their order; fewer of each kind where all would be too much.

        The first line after those of its kind that are left out says how many they are.
        """
        each = EACH
        while True:
            data = [(*line, left_out) for kind in self._first for line, left_out in self._of_kind(kind, each)]
            if each == 1 or sum(len(text) for _, _, text, _ in data) <= MAX_TOTAL_CHARACTERS:
                break
            each //= 2
        return [[seconds, text, *([left_out] if left_out else [])] for _, seconds, text, left_out in sorted(data)]

    def _of_kind(self, kind: str, each: int) -> list[tuple[Line, int]]:
        """The first and the last lines of one kind, each with how many are left out before it."""
        first, last = self._first[kind][:each], list(self._last.get(kind, ()))[-each:]
        left_out = self._counts[kind] - len(first) - len(last)
        lines = [(line, 0) for line in first + last]
        if last and kind not in self._mixed:
            lines[len(first)] = (last[0], left_out)
        return lines


def without_numbers(text: str) -> str:
    """What lines alike have in common."""
    if HINT_OF_NAMES.search(text):
        return NAMES_OR_NUMBERS.sub(lambda found: found[1] or "#", text)
    return NUMBERS.sub("#", text)
