"""Which of a job's events may have been the first abnormal one, and which are only its echo."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.case.records import Collected, Event
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.core.record import record


@record
class Candidate:
    """An event that is no cascade. It is an echo where others had surely waited or ended before it."""

    event: Event
    is_echo: bool


def candidates(case: Collected) -> tuple[Candidate, ...]:
    """One for each rank and file: the first that it has; those of a known time first, by it."""
    cascades = [event for event in case.events if event.is_cascade and event.when.is_known]
    own = _first_of_each(event for event in case.events if not event.is_cascade)
    ordered = sorted(own, key=lambda event: (event.when.begins is None, event.when.begins or 0.0))
    return tuple(Candidate(event, _is_echo(event, cascades)) for event in ordered)


def _first_of_each(events: Iterable[Event]) -> list[Event]:
    """What a rank says later in the same file is of its own end; what nobody can be told apart by stays."""
    kept: dict[tuple[str, int | None, str, int], Event] = {}
    for event in events:
        file, _, line = event.source.rpartition(":")
        is_told = event.rank is not None and line.isdecimal()
        key = file, event.rank, event.node, 0 if is_told else len(kept) + 1
        if key not in kept or (is_told and _line(event) < _line(kept[key])):
            kept[key] = event
    return list(kept.values())


def _line(event: Event) -> int:
    return int(event.source.rpartition(":")[2])


def _is_echo(event: Event, cascades: Iterable[Event]) -> bool:
    """Whether a rank had surely seen others end, or had waited to the end, not long before.

    A scheduler dates all that it says of a job by the job's end.
    """
    if "output" not in event.row.read_in:
        return False
    limit = limits()
    begins = event.when.begins
    return any(
        cascade.when.is_before(event.when, 0.0 if cascade.rank == event.rank else limit.clocks_apart_s)
        and begins is not None
        and begins - (cascade.when.begins or 0.0) <= limit.teardown_s
        for cascade in cascades
    )
