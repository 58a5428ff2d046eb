"""Events that follow from a stop: a rank that is told to end closes files and fails, which is not its cause."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable
from heapq import nsmallest

from clusterproof.plugins.case import RESOLUTION_S, Collected, Event
from clusterproof.plugins.case.clocks import apart_s
from clusterproof.plugins.catalog.causes import STOPPED, limits

ALL = -1  # stands for all ranks
BY_SCHEDULER = (
    "time_limit",
    "preempted",
    "requeued",
    "preempted_pod",
    "node_shut_down",
    "deadline_of_job",
    "stopped_by_kueue",
    "deactivated",
)


def of_a_stop(case: Collected) -> frozenset[Event]:
    """The events that followed a stop of the job: by line within its file, else by time."""
    stops = _Stops((event for event in case.events if event.row.cause == STOPPED), apart_s(case))
    others = (event for event in case.events if event.row.cause != STOPPED)
    return frozenset(event for event in others if stops.are_before(event))


class _Stops:
    """The stops of a job, indexed so that each event need not be compared with every other.

    What a job writes while its scheduler ends it often has no time: it counts as after lines before it, unless times
    show a long gap: then the job ran twice, or its lines are out of order. A person may have stopped a job that had
    failed: then only what is surely later belongs to the stop.
    """

    def __init__(self, stops: Iterable[Event], most_s: float) -> None:
        self.most_s = most_s
        self.lines: dict[_Order, list[tuple[float, float, int]]] = {}  # of each file: times and line numbers
        self.undated: dict[_Order, int] = {}  # the first line of those without a time
        earliest: dict[bool, dict[_Order | None, float]] = {True: {}, False: {}}
        for stop in stops:
            line, order, when = stop.position[1], _order(stop, stop.sign in BY_SCHEDULER), stop.when
            if order and line is not None and when.begins is not None:
                self.lines.setdefault(order, []).append((when.begins, when.ends or math.inf, line))
            elif order and line is not None:
                self.undated[order] = min(line, self.undated.get(order, line))
            if when.begins is not None:
                of = earliest[stop.sign in BY_SCHEDULER]
                of[order] = min(when.begins, of.get(order, when.begins))
        for known in self.lines.values():
            known.sort()
        self.earliest = {of: nsmallest(2, times.items(), key=_moment) for of, times in earliest.items()}

    def are_before(self, event: Event) -> bool:
        """Whether an event, or its wait, did not begin before one of them."""
        return any(
            self._is_behind_line(event, _order(event, of)) or self._is_later(event, _order(event, of), of)
            for of in self.earliest
        )

    def _is_behind_line(self, event: Event, order: _Order | None) -> bool:
        """Whether its line comes after that of a stop in its own file."""
        line, when = event.position[1], event.when
        if order is None or line is None or event.waited_s:
            return False
        known = self.lines.get(order, [])
        begins, until = -math.inf, math.inf
        if when.begins is not None:
            begins = when.begins - limits().teardown_s
        if when.ends is not None:
            until = when.ends + limits().teardown_s
        near = next((stop for stop in known[bisect_left(known, (begins - RESOLUTION_S, 0.0, 0)) :][:1]), None)
        is_near = near is not None and near[1] >= begins and near[0] <= until and near[2] < line
        return is_near or self.undated.get(order, line) < line

    def _is_later(self, event: Event, order: _Order | None, is_by_scheduler: bool) -> bool:
        """Whether it was later than a stop, ignoring line order."""
        own = None if event.waited_s else order
        stopped = next((time for other, time in self.earliest[is_by_scheduler] if other is None or other != own), None)
        if event.when.begins is None or stopped is None:
            return False
        return event.when.begins - event.waited_s >= stopped - (self.most_s if is_by_scheduler else 0.0)


_Order = tuple[str, "int | None"]  # a file, and the rank whose lines in it are in chronological order


def _order(event: Event, is_by_scheduler: bool) -> _Order | None:
    """Whose lines in its file are in order: a rank may be told to end as another did, which is reported later."""
    file, line = event.position
    if line is None:
        return None
    return file, ALL if is_by_scheduler else event.rank


def _moment(item: tuple[_Order | None, float]) -> float:
    return item[1]


def may_be_of_a_stop(events: Collection[Event], stops: Iterable[Event]) -> bool:
    """Whether the order is unknown: events without a time, or a job that was fine shortly before a stop."""
    if any(event.when.ends is not None for event in events):
        return False
    files = {file for file, line in (event.position for event in events) if line is not None}
    known = [event.when.begins for event in events if event.when.begins is not None]
    first, last = min(known, default=math.inf), max(known, default=-math.inf)
    for stop in (stop for stop in stops if stop.sign in BY_SCHEDULER):
        (file, line), stopped = stop.position, stop.when.begins
        is_in_one_file = line is not None and file in files
        if not is_in_one_file and (stopped is None or (stopped - limits().lag_s <= first and last < stopped)):
            return True
    return False
