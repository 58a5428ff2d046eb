"""Which of a job's events may have been the first failure, and which are only consequences."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable

from clusterproof.plugins.case import Collected, Event, Fact
from clusterproof.plugins.case.clocks import apart_s, utc_text
from clusterproof.plugins.case.relevance import is_broken_since, is_of_late
from clusterproof.plugins.case.stops import ALL
from clusterproof.plugins.catalog.causes import CAUSE, STOPPED, limits
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import rank_names

FROM_OUTSIDE = ("launcher_stopped", "job_cancelled")  # its launcher, or its script, was told to stop
PEER_SIGNS = ("peer_gone", "store_gone")
ZONES_APART_S = 1_800.0  # zones of the world differ by multiples of half an hour, but for a few
FOLLOW = ("told_to_end",)  # passes its own signal on
FAILED = ("launcher", "aborted")  # of a rank according to a launcher, or because it aborted itself


@record
class Candidate:
    """An event that is no cascade. It is an echo if others had surely waited or ended before it."""

    event: Event
    is_echo: bool


def candidates(case: Collected) -> tuple[Candidate, ...]:
    """The first event of each rank and file; those with a known time first, in order."""
    cascades = _Cascades(event for event in case.events if event.is_cascade)
    own = _first_of_each(event for event in case.events if not event.is_cascade)
    most_s = apart_s(case)
    ordered = sorted(own, key=lambda event: (event.when.begins is None, event.when.begins or 0.0))
    return tuple(Candidate(event, _is_echo(event, cascades, most_s)) for event in ordered)


def long_before_the_end(case: Collected) -> frozenset[Event]:
    """Events that look like a cause, but after which the job continued: it failed much later.

    A stop before the job began belongs to an earlier run, whose output is in the same file. A job that hangs may wait:
    for as long as ranks report, plus `before_s`. If steps are known, some must follow the event; if not, a limit or an
    operator may have ended what had hung. A rank that wrote for so long before others ended had not failed either.
    """
    cascades = _Cascades(event for event in case.events if event.is_cascade)
    most_s = apart_s(case)
    own = [event for event in case.events if not event.is_cascade and not _is_echo(event, cascades, most_s)]
    considered = [event for event in own if case.progress is not None or event.row.cause != STOPPED]
    last = max((event.when.begins for event in considered if event.when.begins is not None), default=-math.inf)
    waited_s = max((event.waited_s for event in case.events), default=0.0)
    until = last - limits().before_s - waited_s - most_s
    dated = (event for event in own if "output" in event.row.read_in or event.row.of_start)
    progress = math.inf if case.progress is None else case.progress
    may_have_hung = case.progress is None and any(event.row.cause == STOPPED for event in case.events)
    began = case.job.ran.begins
    return frozenset(
        event
        for event in dated
        if event.when.ends is not None
        and (event.row.role == CAUSE or event.is_warning)
        and (
            event.when.ends < min(until, progress)
            or (event.ran_s > limits().before_s + waited_s and event.when.ends < progress and not may_have_hung)
            or (event.row.of_start and case.progress is not None and event.when.ends < progress)
            or (event.row.cause == STOPPED and began is not None and event.when.ends < began)
        )
    )


def stopped_from_outside(case: Collected) -> Event | None:
    """The event that told a job to stop, if nothing in the job had failed or timed out before; else None.

    What follows long after it is of another run, in the same log.
    """
    stop = next((event for event in case.events if event.sign in FROM_OUTSIDE), None)
    others = [event for event in case.events if event.sign not in (*FROM_OUTSIDE, *FOLLOW) and not event.is_warning]
    if stop is None or case.leads or any(event.sign in FAILED or not event.is_cascade for event in others):
        return None
    follow = (stop.when.is_before(event.when) for event in others)
    are_late = (stop.when.is_before(event.when, limits().teardown_s) for event in others)
    return stop if all(follow) and not any(are_late) else None


def silent_before(stop: Event, last: float | None) -> tuple[str, str] | None:
    """For how long a job had been silent when it was stopped, and what that means; None if it was not, or unknown."""
    if stop.when.begins is None or last is None or (silent_s := stop.when.begins - last) <= limits().silent_s:
        return None
    may_be_of_zone = silent_s % ZONES_APART_S < limits().lag_s
    means = "it hung, or its times are of another zone than those of its scheduler" if may_be_of_zone else "it hung"
    return f"{round(silent_s / 60)} minutes", means


def _first_of_each(events: Iterable[Event]) -> list[Event]:
    """Later events of a rank in the same file are consequences; unattributed events are all kept."""
    kept: dict[tuple[str, int | None, str, int], Event] = {}
    for event in events:
        file, line = event.position
        is_of_rank = event.rank is not None and line is not None and not event.is_warning
        key = file, event.rank, event.node, 0 if is_of_rank else len(kept) + 1
        known = kept.get(key)
        if known is None or (line or 0) < (known.position[1] or 0):
            kept[key] = event
    return list(kept.values())


class _Cascades:
    """The ends of others, by rank and of all, prepared so that events need not be compared pairwise."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._of: dict[int | None, list[tuple[float, float]]] = {}  # when each had ended, and the latest begin so far
        spans = ((event.rank, event.when) for event in events)
        known = [
            (rank, when.ends, when.begins) for rank, when in spans if when.ends is not None and when.begins is not None
        ]
        for rank, end, begins in sorted(known, key=lambda span: span[1]):
            for key in {rank, ALL}:
                before = self._of.setdefault(key, [])
                before.append((end, max(begins, before[-1][1] if before else begins)))

    def last_before(self, moment: float, rank: int | None) -> float | None:
        """When the last end of a rank, or of `ALL`, that had happened by then began."""
        before = self._of.get(rank, [])
        at = bisect_left(before, (moment, -math.inf))
        return before[at - 1][1] if at else None


def _is_echo(event: Event, cascades: _Cascades, most_s: float) -> bool:
    """Whether a rank had surely seen others end, or had waited to the end, shortly before.

    A scheduler gives everything that it reports about a job the time of the job's end.
    """
    if "output" not in event.row.read_in:
        return False
    begins = event.when.begins
    if begins is None:
        return False
    own = cascades.last_before(begins, event.rank)
    others = cascades.last_before(begins - most_s, ALL)
    return any(last is not None and begins - last <= limits().teardown_s for last in (own, others))


def has_hung(case: Collected) -> bool:
    """Whether ranks waited for others until their timeout."""
    return any(lead.is_late for lead in case.leads) or any(event.row.hang for event in case.events)


def why_unknown(case: Collected) -> str:
    """What is known instead of a cause, in words."""
    late = tuple(dict.fromkeys(lead.rank for lead in case.leads if lead.is_late))
    if late:
        return f"ranks waited in vain for {rank_names(late)}; nothing says what kept {'them' if late[1:] else 'it'}"
    if has_hung(case):
        return "ranks waited for others in vain; nothing says for what"
    if case.events:
        processes = {(event.position[0], event.rank, event.count) for event in case.events}
        is_of_one = len(processes) == 1 and all(event.sign in PEER_SIGNS and event.count == 1 for event in case.events)
        if is_of_one and not case.leads:
            return "all that was read is of one process, which says it where others end and for other reasons"
        subject = "why the first ended" if case.leads else "who ended first"
        return f"all that was read is the end of others; nothing says {subject}"
    known = [fact for fact in case.facts if is_of_late(fact, case) and not _is_of_unknown_time(fact)]
    broken = next((fact for fact in known if is_broken_since(fact, case)), known[0] if known else None)
    if broken:
        when = "at a time that is not known" if broken.when.begins is None else f"at {utc_text(broken.when.begins)}"
        return f"the job says nothing of its end; {broken.node} says {broken.words}, {when}"
    checked = dict.fromkeys(fact.node for fact in case.facts if _is_of_unknown_time(fact) and fact.is_strong)
    if checked:
        return f"the job says nothing of its end; checks failed on {listed(checked)}, at a time that is not known"
    return "nothing that was read is a known sign, which does not mean that all was well"


def _is_of_unknown_time(fact: Fact) -> bool:
    """Whether a run found it, which does not say when."""
    return fact.is_of_run and fact.when.begins is None
