"""torchrun's report of what failed: which rank on which host, when, and with which code; one block a node."""

from __future__ import annotations

import re

from clusterproof.plugins.case.records import Span, label
from clusterproof.plugins.case.stamps import Clock
from clusterproof.plugins.core.record import record

_FIELD = re.compile(r"(time|host|rank|exitcode)\s{0,9}: {1,3}(\S{1,253})(?: \(pid: (\d{1,10})\))?")
NOT_A_NAME = "localhost"  # of a machine that has no other
_BEGINS = "time"


@record
class Failure:
    """One process that failed, as the agent of its node saw it; it polls, so that this is when it was seen."""

    rank: int
    node: str
    when: Span
    pid: int | None = None


class Failures:
    """Reads the lines of such blocks, one after the other."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fields: dict[str, str] = {}

    def take(self, line: str) -> Failure | None:
        """The failure that this line, of its code, completes."""
        found = _FIELD.search(line) if " : " in line else None
        if not found:
            return None
        name, value, pid = found.groups()
        self.fields = {name: value} if name == _BEGINS else {**self.fields, name: value}
        rank = self.fields.get("rank", "")
        if name != "exitcode" or not (rank.isdecimal() and rank.isascii() and len(rank) <= 7):
            return None
        node = label(self.fields.get("host", ""))
        when = self.clock.of(self.fields.get("time", ""))
        return Failure(int(rank), "" if node == NOT_A_NAME else node, when, int(pid) if pid else None)
