"""Which evidence of nodes can have ended a job: what fits the time of its end and its symptoms.

What happened long before, or after, did not end it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Set

from clusterproof.plugins.case import Collected, Event, Fact, Span
from clusterproof.plugins.case.clocks import apart_s, utc_text
from clusterproof.plugins.case.node_log import BOOTED, XID
from clusterproof.plugins.case.stops import of_a_stop
from clusterproof.plugins.catalog.causes import CODE, HARDWARE, NETWORK, RESOURCES, STOPPED, STORAGE, UNKNOWN, limits
from clusterproof.plugins.core.message import listed, number_of

MEMORY_SIGN = "ecc"  # the sign of a memory error, as CUDA tells it


def window(case: Collected) -> Span:
    """From `before_s` before the first sign on, not counting the job's own wait; to `lag_s` after that sign.

    Evidence followed by further steps did not end the job. Without a sign, the job's end counts.
    """
    known = [event for event in case.events if event.when.begins is not None]
    ended = next((time for time in (case.job.ran.ends, case.last) if time is not None), None)
    own = [event for event in known if not event.is_cascade and not event.is_warning]
    first = min((_stopped(event) for event in known), default=ended)
    shown = min((_begins(event) for event in own or known), default=ended)
    if first is None or shown is None:
        return Span(None, None)
    lag_s = _lag_s(case)
    begins = first - limits().before_s
    earliest = [begins]
    if case.job.ran.begins is not None:
        earliest.append(case.job.ran.begins - lag_s)
    if case.progress is not None and case.progress <= shown + lag_s:
        earliest.append(case.progress - lag_s)
        if all(event.row.cause == STOPPED for event in own):  # it may have hung since
            earliest[0] = min(begins, case.progress - lag_s)
    return Span(max(earliest), shown + lag_s)


def _lag_s(case: Collected) -> float:
    """How much later a node's line may be than what a rank says of the same fault, by clocks that differ."""
    return limits().lag_s + apart_s(case) - limits().clocks_apart_s


def _stopped(event: Event) -> float:
    """When the job stopped making progress, according to this event."""
    return (event.when.begins or 0.0) - event.waited_s


def _begins(event: Event) -> float:
    return event.when.begins or 0.0


def is_within(when: Span, within: Span) -> bool:
    """Whether a time falls into it."""
    if when.begins is None or within.begins is None or within.ends is None:
        return False
    return within.begins <= when.begins <= within.ends


def confirms(fact: Fact, case: Collected, rank: int | None = None) -> bool:
    """Whether a rank of that node, or this rank, reports right afterwards what a broken GPU causes.

    When a check ran is not when that which it found happened.
    """
    begins = fact.when.begins
    if begins is None or fact.cause != HARDWARE or not fact.is_strong or fact.is_of_run:
        return False
    return any(
        event.node == fact.node
        and rank in (None, event.rank)
        and _is_of_broken_gpu(event)
        and not event.when.is_before(fact.when)
        and event.when.begins is not None
        and event.when.begins <= begins + limits().lag_s
        for event in case.events
    )


def _is_of_broken_gpu(event: Event) -> bool:
    return not event.is_cascade and (event.row.cause == HARDWARE or event.row.of_broken_gpu)


def shown(case: Collected) -> Span:
    """From when to when evidence of a node is shown: from well before the job began until it ended."""
    within, ran = window(case), case.job.ran
    begins = within.begins if ran.begins is None else ran.begins
    ends = max((time for time in (within.ends, ran.ends, case.last) if time is not None), default=None)
    return Span(None if begins is None else begins - limits().before_s, ends)


def is_shown(fact: Fact, of: Span) -> bool:
    """Whether a node's evidence is of this time, or of no known time."""
    when = fact.when.begins
    return when is None or of.begins is None or of.begins <= when <= (of.ends or when)


def without_other_boots(case: Collected) -> tuple[Fact, ...]:
    """The facts, with boots only of nodes on which the job had run for a while: a node may boot for it to begin."""
    ran, apart = case.job.ran, apart_s(case)
    begun, ended = Span(None, (ran.begins or 0.0) + limits().before_s), Span((ran.ends or 0.0) - apart)
    return tuple(
        fact
        for fact in case.facts
        if fact.words != BOOTED or (ran.is_known and begun.is_before(fact.when) and fact.when.is_before(ended))
    )


def is_broken_since(fact: Fact, case: Collected) -> bool:
    """Whether a node's own log reports a hardware or network fault in the days of the job, or at an unknown time."""
    return fact.cause in (HARDWARE, NETWORK) and is_of_late(fact, case)


def fails_node(fact: Fact, case: Collected) -> bool:
    """Whether a node's evidence fails it, with a fault that no job causes: also a lost disk, or a stopped kernel."""
    return fact.cause not in (CODE, RESOURCES) and is_of_late(fact, case)


def is_of_late(fact: Fact, case: Collected) -> bool:
    """Whether it fails its node, and is from the days of the job, or of unknown time."""
    began, when = case.job.ran.begins or window(case).begins, fact.when.begins
    is_of_old = began is not None and when is not None and when < began - limits().stale_s
    return fact.is_strong and not is_of_old


def of_another_time(case: Collected) -> Iterator[str]:
    """The statement about evidence that is excluded because it is from another time."""
    of = shown(case)
    far = [fact for fact in case.facts if not is_shown(fact, of)]
    if far:
        listing = listed(f"{fact.node} {utc_text(fact.when.begins)}" for fact in far)
        yield f"evidence of another time than the job's, which is not shown: {number_of(len(far), 'line')}, {listing}"


def logs_of_later(case: Collected) -> tuple[str, ...]:
    """The nodes whose kernel logs begin after the job's end, or with a boot after its begin."""
    ran = case.job.ran
    ends = next((time for time in (ran.ends, case.last) if time is not None), math.inf)
    apart = apart_s(case)
    return tuple(
        node
        for node, log in case.logs_begin.items()
        if log.seconds > ends + apart or (log.is_boot and ran.begins is not None and log.seconds > ran.begins + apart)
    )


def dated(case: Collected) -> tuple[Fact, ...]:
    """The facts from the time in which the job ended, in order; none from after its end, as its record has it."""
    within = window(case)
    ended = Span(case.job.ran.ends, case.job.ran.ends)
    facts = [
        fact
        for fact in case.facts
        if (is_within(fact.when, within) or (within.is_before(fact.when) and confirms(fact, case)))
        and not ended.is_before(fact.when, _lag_s(case))
    ]
    return tuple(sorted(facts, key=lambda fact: fact.when.begins or 0.0))


def undated(case: Collected) -> tuple[Fact, ...]:
    """The facts without a known time, or all if the job has none."""
    is_known = window(case).is_known
    return tuple(fact for fact in case.facts if fact.when.begins is None or not is_known)


SEEN_AS = {  # signs that such a fault causes in a job, besides direct ones
    NETWORK: ("nccl_system", "efa_completion", "peer_gone", "watchdog", "observed_dump", "stuck_process"),
    STORAGE: ("watchdog", "observed_dump", "stuck_process", "told_to_end", "job_cancelled"),
    RESOURCES: ("killed",),
    CODE: ("crashed",),
}


def relevant(facts: Iterable[Fact], case: Collected) -> list[Fact]:
    """The facts that count."""
    ended_badly = _has_ended_badly(case)
    seen = {(event.sign, event.row.cause, event.node) for event in case.events}  # thousands of events have few kinds
    return [
        fact
        for fact in facts
        if not _is_of_another(fact, case) and (_is_of_rank(fact, case) or _is_relevant(fact, ended_badly, seen))
    ]


def _is_of_rank(fact: Fact, case: Collected) -> bool:
    """Whether the kernel killed the process of a rank, which says nothing of that itself."""
    return fact.cause == RESOURCES and fact.pid is not None and rank_of(fact, case) is not None


def _is_of_another(fact: Fact, case: Collected) -> bool:
    """Whether it names another job, or another process than the rank that crashed on its node."""
    if fact.cause == RESOURCES and fact.is_of_job is False:
        return True
    if fact.cause != CODE or fact.pid is None:
        return False
    crashed = [event.rank for event in case.events if event.sign in SEEN_AS[CODE] and event.node == fact.node]
    pids = [case.pids_of_ranks.get(rank) for rank in crashed if rank is not None]
    return bool(pids) and len(pids) == len(crashed) and None not in pids and fact.pid not in pids


def _is_relevant(fact: Fact, ended_badly: bool, seen: Set[tuple[str, str, str]]) -> bool:
    if is_of_program(fact):
        return False  # it only bears out what a rank says
    if fact.cause == HARDWARE:  # a contained memory error, Xid 94, fails no node, and ends the process that met it
        return ended_badly and (fact.is_strong or (fact.check == XID and (MEMORY_SIGN, HARDWARE, fact.node) in seen))
    if fact.cause == UNKNOWN:  # its kernel stopped, or a CPU did
        return fact.is_strong
    if fact.cause == RESOURCES and fact.is_of_job:
        return True
    is_everywhere, others = fact.cause in (NETWORK, STORAGE), SEEN_AS.get(fact.cause, ())
    is_named = fact.cause != CODE  # a crashed program explains no other kind of error in the job's code
    return any(
        ((is_named and cause == fact.cause) or sign in others) and (is_everywhere or node in ("", fact.node))
        for sign, cause, node in seen
    )


def is_of_program(fact: Fact) -> bool:
    """Whether it is an Xid that NVIDIA attributes to the program that used the GPU."""
    return fact.cause == CODE and fact.check == XID


def confirmed_program_fault(event: Event, case: Collected) -> Fact | None:
    """The program fault of the same process in the node's log; None if that has any hardware fault."""
    facts = dated(case)
    if any(fact.cause == HARDWARE for fact in facts):  # a contained memory error, Xid 94, ends a process as well
        return None
    ranks = {rank for rank in case.pids_of_ranks if event.rank in (None, rank)}
    return next((fact for fact in facts if is_of_program(fact) and rank_of(fact, case) in ranks), None)


def contradicting_evidence(case: Collected) -> tuple[str, ...]:
    """The nodes' own evidence, in words: it contradicts every other cause."""
    return tuple(dict.fromkeys(f"{fact.node}: {fact.words}" for fact in case.facts if fact.is_strong))


def rank_of(fact: Fact, case: Collected) -> int | None:
    """The rank whose process a node's log line names; None if unknown."""
    ranks = (rank for rank, pid in case.pids_of_ranks.items() if pid == fact.pid)
    return next((rank for rank in ranks if case.nodes_of_ranks.get(rank, fact.node) == fact.node), None)


def _has_ended_badly(case: Collected) -> bool:
    """Whether something other than a stop shows how the job ended; a job without any sign may have vanished."""
    if not any(event.row.cause == STOPPED for event in case.events):
        return True
    late = of_a_stop(case)
    of_end = [
        event for event in case.events if event.row.cause != STOPPED and not event.row.of_stop and event not in late
    ]
    return any(not event.is_cascade or event.row.hang for event in of_end) or _was_broken_before(late, case)


def _was_broken_before(late: Iterable[Event], case: Collected) -> bool:
    """Whether an apparent consequence of a stop confirms an earlier hardware fault in a node's log."""
    stops = (event.when.begins for event in case.events if event.row.cause == STOPPED)
    stopped = min((begins for begins in stops if begins is not None), default=math.inf)
    broken: dict[str, list[float]] = {}
    for fact in dated(case):
        if fact.cause == HARDWARE and fact.is_strong and fact.when.begins is not None and fact.when.begins < stopped:
            broken.setdefault(fact.node, []).append(fact.when.begins)
    for event in (event for event in late if _is_of_broken_gpu(event) and event.when.begins is not None):
        times, begins = broken.get(event.node, []), (event.when.begins or 0.0) - limits().lag_s
        at = bisect_left(times, begins)
        if at < len(times) and times[at] <= (math.inf if event.when.ends is None else event.when.ends):
            return True
    return False
