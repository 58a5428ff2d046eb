"""Failures at the end of a log: torchrun's report, one block per node, and exceptions that are cut off.

The log ends before the exception's name or message, or no sign matches it.
"""

from __future__ import annotations

import re

from clusterproof.plugins.case import Span, label
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.catalog.causes import CASCADE, Sign
from clusterproof.plugins.core.record import record

CUT, CUT_CPP, UNCAUGHT = "exception_cut_off", "cpp_exception_cut_off", "exception_unknown"  # signs of causes.toml
HEADERS = {CUT: "Traceback (most recent call last)", CUT_CPP: "terminate called after throwing an instance of"}
SHORTEST = 6  # characters of half a header
OF_LAUNCHERS = ("srun:", "slurmstepd", "mpirun", "prterun")  # lines that report a rank's end, not its exception

_BEFORE = re.compile(r" {0,7}(?:(?:\[1,\d{1,7}\]<std\w{3}>:|\d{1,7}:(?= )|\[rank\d{1,7}\]:?) ?)+")
NAME_OF_EXCEPTION = re.compile(
    r"^[A-Za-z_][\w.]{0,200}: |^[A-Za-z_]\w{0,100}(?:\.\w{1,100}){1,9}$"
    r"|(?:^|[\s>])[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?::(?= |$)|$)"
)
_MESSAGE = re.compile(r"^\s{0,8}what\(\):")


class Exceptions:
    """Reads the lines of a file in order; `begun` has each rank's exception that is not yet complete."""

    def __init__(self) -> None:
        self.begun: dict[int | None, str] = {}

    def ends(self, line: str, rank: int | None, sign: Sign | None) -> bool:
        """Whether this line completes an exception that had begun."""
        rest = rest_of(line)
        begun = self.begun.get(rank, "")
        if not begun or rest.startswith(OF_LAUNCHERS) or HEADERS[begun] in rest:
            return False
        form = _MESSAGE if begun == CUT_CPP else NAME_OF_EXCEPTION
        is_told = bool(form.search(rest)) or (sign is not None and sign.role != CASCADE)
        if is_told:
            del self.begun[rank]
        return is_told

    def begins(self, line: str, rank: int | None, sign: Sign | None) -> str:
        """The sign of an exception that begins in this line; empty if none does."""
        rest = rest_of(line)
        is_half = len(rest) >= SHORTEST
        for name, header in HEADERS.items() if not sign else ():
            if header in rest or (is_half and header.startswith(rest)):
                self.begun[rank] = name
                return name
        return ""

    def forget(self, rank: int | None) -> None:
        """Drop an incomplete exception of a rank: it ended nothing."""
        self.begun.pop(rank, None)

    def let_go(self) -> None:
        """Drop incomplete ones: the next lines of the file are not the next in the job."""
        self.begun.clear()


def rest_of(line: str) -> str:
    """A line without the labels of its rank."""
    before = _BEFORE.match(line)
    return line[before.end() :] if before else line


_FIELD = re.compile(r"(time|host|rank|exitcode)\s{0,9}: {1,3}(\S{1,253})(?: \(pid: (\d{1,10})\))?")
NOT_A_NAME = "localhost"  # the name of a machine without any other
_BEGINS = "time"


@record
class Failure:
    """A failed process, at the time when its node's agent noticed, which polls."""

    rank: int
    node: str
    when: Span
    pid: int | None = None


class Failures:
    """Reads the lines of such blocks in order."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fields: dict[str, str] = {}

    def take(self, line: str) -> Failure | None:
        """The failure that this line, with its code, completes."""
        match = _FIELD.search(line) if " : " in line else None
        if not match:
            return None
        name, value, pid = match.groups()
        self.fields = {name: value} if name == _BEGINS else {**self.fields, name: value}
        rank = self.fields.get("rank", "")
        if name != "exitcode" or not (rank.isdecimal() and rank.isascii() and len(rank) <= 7):
            return None
        node = label(self.fields.get("host", ""))
        when = self.clock.of(self.fields.get("time", ""))
        return Failure(int(rank), "" if node == NOT_A_NAME else node, when, int(pid) if pid else None)
