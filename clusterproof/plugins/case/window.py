"""Which evidence of nodes falls into the time in which a job ended: what was long before, or after, did not end it."""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.case.clocks import apart_s
from clusterproof.plugins.case.records import Collected, Event, Fact, Span
from clusterproof.plugins.case.stamps import in_words
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.record import record


@record
class Window:
    """From when to when evidence of a node counts; None: no time of the job is known."""

    begins: float | None
    ends: float | None

    @property
    def is_known(self) -> bool:
        """Whether the job has any time."""
        return self.begins is not None and self.ends is not None


def window(case: Collected) -> Window:
    """From `before_s` before the first sign on, without what the job had waited; to `lag_s` after that sign.

    A job that made steps after some evidence did not end of it. Where nothing of the job is a sign, its end is.
    """
    known = [event for event in case.events if event.when.begins is not None]
    ended = next((time for time in (case.job.ran.ends, case.last) if time is not None), None)
    own = [event for event in known if not event.is_cascade]
    first = min((_stopped(event) for event in known), default=ended)
    shown = min((_line(event) for event in own or known), default=ended)
    if first is None or shown is None:
        return Window(None, None)
    lag_s = limits().lag_s + apart_s(case) - limits().clocks_apart_s
    begins = first - limits().before_s
    earliest = [begins]
    if case.job.ran.begins is not None:
        earliest.append(case.job.ran.begins - lag_s)
    if case.progress is not None and case.progress <= shown + lag_s:
        earliest.append(case.progress - lag_s)
    return Window(max(earliest), shown + lag_s)


def _stopped(event: Event) -> float:
    """When the job no longer went on, as this event has it."""
    return (event.when.begins or 0.0) - event.waited_s


def _line(event: Event) -> float:
    return event.when.begins or 0.0


def is_within(when: Span, within: Window) -> bool:
    """Whether a time falls into it."""
    if when.begins is None or within.begins is None or within.ends is None:
        return False
    return within.begins <= when.begins <= within.ends


def shown(case: Collected) -> Window:
    """From when to when evidence of a node is shown: from well before the job began until it ended."""
    within, began = window(case), case.job.ran.begins
    begins = within.begins if began is None else began
    return Window(None if begins is None else begins - limits().before_s, within.ends)


def is_shown(fact: Fact, of: Window) -> bool:
    """Whether a node's evidence is of this time, or of no known time."""
    when = fact.when.begins
    return when is None or of.begins is None or of.begins <= when <= (of.ends or when)


def of_another_time(case: Collected) -> Iterator[str]:
    """What is said of evidence that no order of events has, as it is not of the job's time."""
    of = shown(case)
    far = [fact for fact in case.facts if not is_shown(fact, of)]
    if far:
        whose = listed(f"{fact.node} {in_words(fact.when.begins)}" for fact in far)
        yield f"evidence of another time than the job's, which is not shown: {number_of(len(far), 'line')}, {whose}"


def dated(case: Collected) -> tuple[Fact, ...]:
    """The facts of the time in which the job ended, the first one first."""
    within = window(case)
    found = [fact for fact in case.facts if is_within(fact.when, within)]
    return tuple(sorted(found, key=lambda fact: fact.when.begins or 0.0))


def undated(case: Collected) -> tuple[Fact, ...]:
    """The facts of which no time is known, or of a job of which none is."""
    is_known = window(case).is_known
    return tuple(fact for fact in case.facts if fact.when.begins is None or not is_known)
