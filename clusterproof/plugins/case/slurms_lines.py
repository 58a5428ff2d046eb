"""Slurm's own lines in a program's log: their times may be by the clock of another zone than the program's.

A container has its own zone, often UTC. The order of lines shows it: what stands between two lines of one moment was
then. An order that is off by less than a quarter of an hour shows nothing, as nodes' clocks differ.
"""

from __future__ import annotations

from clusterproof.plugins.case import Span
from clusterproof.plugins.case.clocks import is_of_slurm
from clusterproof.plugins.case.exceptions import Key
from clusterproof.plugins.catalog.causes import limits


class SlurmsLines:
    """Collects them line by line, with what they say, until a line of the program follows."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.before: Span | None = None  # the time before them
        self.is_now = False  # whether the current line is one

    def time_of(self, line: str, stamp: Span, last: Span) -> Span:
        """The time of a line behind one of the time `last`; none if it is of a zone that is hours behind."""
        self.is_now = is_of_slurm(line)
        if not self.is_now:
            return stamp
        self.before = last if self.before is None else self.before
        return Span() if _is_hours_before(stamp, last) else stamp

    def placed(self, stamp: Span, last: Span) -> dict[Key, Span]:
        """When these things were, if not at the time `last` that they say; `stamp` is of the program's next line."""
        before, keys = self.before, self.keys
        self.before, self.keys = None, []
        if before is None or before.begins is None or stamp.begins is None or not _is_hours_before(stamp, last):
            return {}
        is_of_one_moment = abs(stamp.begins - before.begins) <= limits().teardown_s
        return dict.fromkeys(keys, Span(before.begins, stamp.ends)) if is_of_one_moment else {}


def _is_hours_before(when: Span, last: Span) -> bool:
    return when.is_before(last, limits().before_s)
