"""What came of a stop: whoever is told to end closes files, breaks off and fails, and did not end of that."""

from __future__ import annotations

from clusterproof.plugins.case import Collected, Event
from clusterproof.plugins.case.clocks import apart_s
from clusterproof.plugins.catalog.causes import STOPPED, limits

BY_SCHEDULER = (
    "time_limit",
    "preempted",
    "requeued",
    "preempted_pod",
    "deadline_of_job",
    "stopped_by_kueue",
    "deactivated",
)


def of_a_stop(case: Collected) -> frozenset[Event]:
    """The events that came behind a stop of the job: in its file by the lines, else by the times."""
    stops = [event for event in case.events if event.row.cause == STOPPED]
    others = [event for event in case.events if event.row.cause != STOPPED] if stops else []
    most_s = apart_s(case)
    return frozenset(event for event in others if any(_is_behind(event, stop, most_s) for stop in stops))


def _is_behind(event: Event, stop: Event, most_s: float) -> bool:
    """Whether an event, or what it waited for, began no earlier than the stop.

    What a job writes as its scheduler ends it has often no time: it counts as behind where the line before it is not
    surely before the stop. A person may have stopped what had failed: then only what is surely later.
    """
    began, stopped = event.when.begins, stop.when.begins
    if _is_in_one_file(event, stop) and not event.waited_s:
        return (_place(event)[1] or 0) > (_place(stop)[1] or 0)
    if began is None or stopped is None:
        return False
    apart = most_s if stop.sign in BY_SCHEDULER else 0.0
    return began - event.waited_s >= stopped - apart


def may_be_of_a_stop(event: Event, stop: Event) -> bool:
    """Whether nothing tells which came first: the event has no time, or its job was well not long before the stop."""
    began, stopped = event.when.begins, stop.when.begins
    if stop.sign not in BY_SCHEDULER or event.when.ends is not None or _is_in_one_file(event, stop):
        return False
    return began is None or stopped is None or stopped - limits().lag_s <= began < stopped


def _is_in_one_file(event: Event, stop: Event) -> bool:
    """Whether the lines of both tell which was first."""
    (file, line), (file_of_stop, line_of_stop) = _place(event), _place(stop)
    if stop.sign not in BY_SCHEDULER and event.rank != stop.rank:
        return False  # what a rank is told may come of the end of another, whose words are written later
    return file == file_of_stop and line is not None and line_of_stop is not None


def _place(event: Event) -> tuple[str, int | None]:
    file, _, line = event.source.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (event.source, None)
