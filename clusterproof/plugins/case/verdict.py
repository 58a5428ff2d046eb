"""Decides why a job ended, from events and facts alone; what cannot be told is unknown.

Hardware is only blamed by a node's own evidence. The end of other ranks, as a rank saw it, is never the cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clusterproof.plugins.case import (
    COMPLETED,
    CRASH_PRIOR,
    DESYNC,
    ESTABLISHED,
    SUPPORTED,
    CaseVerdict,
    Collected,
    Event,
    Fact,
    clocks,
    of_contest,
)
from clusterproof.plugins.case.by_words import verdict_by_messages
from clusterproof.plugins.case.first_event import Candidate, candidates
from clusterproof.plugins.case.node_log import BOOTED
from clusterproof.plugins.case.relevance import confirms, dated, rank_of, relevant, undated
from clusterproof.plugins.case.scheduler import has_completed
from clusterproof.plugins.catalog.causes import (
    CAUSE,
    CODE,
    HARDWARE,
    NETWORK,
    RESOURCES,
    SUSPICION,
    UNKNOWN,
    limits,
    probability,
)
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import replace

SHARED = 0.6  # chance that evidence on several nodes at once has a common cause


def decide(case: Collected) -> CaseVerdict:
    """The verdict on a case."""
    verdict = _of_completed(case) if has_completed(case.job) else _by_evidence(case) or verdict_by_messages(case)
    return replace(verdict, against=(*verdict.against, *_outlived(case)))


def _of_completed(case: Collected) -> CaseVerdict:
    """For a job that ended well according to Slurm: apparent ends were none, and evidence is only to be reviewed."""
    facts = [fact for fact in dated(case) if fact.is_strong]
    signs = [
        f"rank {event.rank}: {event.row.meaning}" if event.rank is not None else event.row.meaning
        for event in case.events
    ]
    against = (*(f"{fact.node}: {fact.words}" for fact in facts), *signs)
    code = f", exit code {case.job.exit_code}" if case.job.exit_code else ""
    reason = f"it completed, as {'Slurm' if code else 'Kubernetes'} says: {case.job.state}{code}"
    suspects = tuple(dict.fromkeys(fact.node for fact in facts if fact.cause == HARDWARE))
    return CaseVerdict(UNKNOWN, 0.0, COMPLETED, reason, None, (), suspects, None, tuple(dict.fromkeys(against)))


def _outlived(case: Collected) -> Iterator[str]:
    for event in case.outlived:
        of_rank = f"rank {event.rank}: " if event.rank is not None else ""
        yield f"{of_rank}{event.row.meaning}, after which the job went on"


def _by_evidence(case: Collected) -> CaseVerdict | None:
    """By the nodes' own logs from the time in which the job ended; None if they show nothing."""
    facts = [fact for fact in relevant(dated(case), case) if fact.cause != NETWORK or not _is_explained(case)]
    facts = _without_boots_of_broken(facts)
    if not facts:
        return _by_undated(case)
    first = facts[0]
    apart_s = clocks.apart_s(case)
    at_once = [fact for fact in facts if fact.cause == first.cause and not first.when.is_before(fact.when, apart_s)]
    others = {fact.cause for fact in facts if not first.when.is_before(fact.when, apart_s)} - {first.cause}
    if others and HARDWARE in (first.cause, *others):
        first = next((fact for fact in facts if fact.cause == HARDWARE), first)
        at_once = [fact for fact in facts if fact.cause == HARDWARE and not first.when.is_before(fact.when, apart_s)]
    earlier = [candidate.event for candidate in candidates(case) if _is_earlier(candidate, first, apart_s)]
    outlived = [event for event in earlier if event.rank is not None and confirms(first, case, event.rank)]
    died = [event for event in earlier if event not in outlived]
    if died and died[0].wrote_s and confirms(first, case):
        return of_contest(died[0], first)  # a rank may survive what others die of
    if died:
        return None
    contested = [candidate.event for candidate in candidates(case) if _contests(candidate, first, apart_s)]
    contested = [event for event in contested if event not in outlived]
    if contested:
        return of_contest(contested[0], first)
    return _of_fact(case, first, tuple(dict.fromkeys(fact.node for fact in at_once)), is_alone=not outlived)


def _without_boots_of_broken(facts: Sequence[Fact]) -> list[Fact]:
    """The facts without boots of nodes whose hardware failed: its fault says more, also if it was logged later."""
    broken = {fact.node for fact in facts if fact.cause == HARDWARE}
    return [fact for fact in facts if fact.words != BOOTED or fact.node not in broken]


def _is_explained(case: Collected) -> bool:
    """Whether a rank failed by itself, with an error that no network causes, and no message is about the network."""
    own = [candidate for candidate in candidates(case) if not candidate.is_echo]
    is_own = any(
        explained.event.row.role == CAUSE and explained.event.row.cause in (CODE, RESOURCES) for explained in own
    )
    return is_own and all(event.row.cause != NETWORK for event in case.events)


def _of_fact(case: Collected, first: Fact, nodes: Sequence[str], is_alone: bool) -> CaseVerdict:
    """From this evidence; if the rank confirming it had reported something else before, its node is only a suspect."""
    events = [
        event for event in case.events if event.node == first.node and not event.is_cascade and _is_same(event, first)
    ]
    rank = next((event.rank for event in events if event.rank is not None), rank_of(first, case))
    reason = f"{first.node}: {first.words}"
    if len(nodes) > 1:
        reason = f"{listed(nodes)} at once, first {reason}; look for what they share"
    if first.cause == UNKNOWN:
        return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, reason, first, (), tuple(nodes), rank)
    if len(nodes) > 1:
        return CaseVerdict(first.cause, SHARED, SUPPORTED, reason, first, (), tuple(nodes), rank)
    worth = probability()
    is_sure = bool(events) and first.is_strong and is_alone and not first.is_of_run
    weight = CRASH_PRIOR if first.cause == CODE else worth.established if is_sure else worth.supported
    standing = ESTABLISHED if is_sure else SUPPORTED
    device = f" (device {first.device})" if first.device else ""
    blamed = (first.node,) if first.cause != CODE else ()
    return CaseVerdict(first.cause, weight, standing, f"{first.node}{device}: {first.words}", first, blamed, (), rank)


def _is_same(event: Event, fact: Fact) -> bool:
    """Whether a rank reports what this fault of its node causes."""
    is_doubt = event.row.role == SUSPICION and not event.row.unexplained
    return is_doubt or event.row.of_broken_gpu or event.row.cause == fact.cause == RESOURCES


def _by_undated(case: Collected) -> CaseVerdict | None:
    """From evidence without a time: only if a rank of the same node reports the same, and nothing contradicts it."""
    possible = [candidate.event for candidate in candidates(case)]
    if any(event.row.role != SUSPICION and not event.row.of_broken_gpu for event in possible):
        return None
    event_by_node = {
        event.node: event for event in reversed(possible) if event.row.cause == HARDWARE or event.row.of_broken_gpu
    }
    facts = [fact for fact in undated(case) if fact.cause == HARDWARE and fact.is_strong and fact.node in event_by_node]
    if not facts or possible[0].node != facts[0].node or len({fact.node for fact in facts}) > 1:
        return None
    first = facts[0]
    reason = f"{first.node}: {first.words}; its time is not known, but a rank of this node says the same"
    return CaseVerdict(
        HARDWARE, probability().undated, SUPPORTED, reason, first, (first.node,), (), event_by_node[first.node].rank
    )


def _is_earlier(candidate: Candidate, fact: Fact, apart_s: float) -> bool:
    """Whether the job's own messages were surely before the evidence, and disagree with it."""
    row = candidate.event.row
    if candidate.event.sign == DESYNC:
        apart_s = limits().lag_s  # a rank with a failing GPU may call different collectives
    return row.role != SUSPICION and not row.of_broken_gpu and candidate.event.when.is_before(fact.when, apart_s)


def _contests(candidate: Candidate, fact: Fact, apart_s: float) -> bool:
    """Whether the job's own messages disagree with a node's evidence, and may have come first."""
    row = candidate.event.row
    if row.role == SUSPICION or row.of_broken_gpu or row.cause == fact.cause:
        return False
    return not fact.when.is_before(candidate.event.when, apart_s)
