"""Why a job ended: decided of events and facts alone; what cannot be told is unknown.

Hardware is blamed only by the node's own evidence. The end of others, as a rank saw it, is never the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from clusterproof.plugins.case import Collected, Event, Fact, Lead, clocks
from clusterproof.plugins.case.first import (
    Candidate,
    candidates,
    has_hung,
    silent_before,
    told_from_outside,
    why_nobody_can_tell,
)
from clusterproof.plugins.case.relevance import borne_out, dated, rank_of, relevant, said_against, undated
from clusterproof.plugins.case.scheduler import has_completed
from clusterproof.plugins.catalog.causes import (
    CASCADE,
    CODE,
    HARDWARE,
    NETWORK,
    RESOURCES,
    STOPPED,
    SUSPICION,
    UNKNOWN,
    limits,
    probability,
)
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import record, replace

ESTABLISHED, SUPPORTED, CANDIDATE, COMPLETED = "established", "supported", "candidate", "completed"
OF_CRASH = 0.7  # that a crash which the kernel logged, of a library or of a kernel on a GPU, is the job's own code
DESYNC = "desync"  # of dumps: what ranks say of it in their own words came of it
OF_KERNEL = "illegal"  # the sign of a GPU's kernel that failed, by code or by hardware
SHARED = 0.6  # that several nodes with evidence at once have a cause in common


@record
class CaseVerdict:
    """The cause, how sure it is, whose it was, and why.

    `standing`: established (the node's own evidence, ahead of all else, and a rank of it says the same), supported
    (the node's evidence alone), candidate (the words of the job or its scheduler), completed, unknown.
    `nodes` are blamed, `suspects` are to be tested; `against` is what speaks against it, or was found and is no cause.
    """

    cause: str
    probability: float
    standing: str
    why: str
    first: Event | Fact | None = None
    nodes: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    rank: int | None = None
    against: tuple[str, ...] = ()


def decide(case: Collected) -> CaseVerdict:
    """The verdict on a case."""
    verdict = _of_completed(case) if has_completed(case.job) else _by_evidence(case) or _by_words(case)
    return replace(verdict, against=(*verdict.against, *_outlived(case)))


def _of_completed(case: Collected) -> CaseVerdict:
    """A job that Slurm says ended well: what looks like an end was none, and evidence is to be looked at."""
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
    """By what the nodes' own logs say of the time in which the job ended; None where they say nothing of it."""
    facts = relevant(dated(case), case)
    if not facts:
        return _by_undated(case)
    first = facts[0]
    apart_s = clocks.apart_s(case)
    at_once = [fact for fact in facts if fact.cause == first.cause and not first.when.is_before(fact.when, apart_s)]
    others = {fact.cause for fact in facts if not first.when.is_before(fact.when, apart_s)} - {first.cause}
    if others and HARDWARE in (first.cause, *others):
        first = next((fact for fact in facts if fact.cause == HARDWARE), first)
        at_once = [fact for fact in facts if fact.cause == HARDWARE and not first.when.is_before(fact.when, apart_s)]
    earlier = [candidate for candidate in candidates(case) if _is_earlier(candidate, first, apart_s)]
    if earlier:
        return None
    contested = [candidate for candidate in candidates(case) if _contests(candidate, first, apart_s)]
    if contested:
        return _of_contest(contested[0].event, first)
    return _of_fact(case, first, tuple(dict.fromkeys(fact.node for fact in at_once)))


def _of_contest(event: Event, fact: Fact) -> CaseVerdict:
    reason = f"{event.row.meaning}, and {fact.node}: {fact.words}; no time tells which came first"
    return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, reason, None, (), (fact.node,), event.rank)


def _of_fact(case: Collected, first: Fact, nodes: Sequence[str]) -> CaseVerdict:
    said = [event for event in case.events if event.node == first.node and not event.is_cascade and _is_same(event)]
    rank = next((event.rank for event in said if event.rank is not None), rank_of(first, case))
    if first.cause == UNKNOWN:
        return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, f"{first.node}: {first.words}", first, (), (first.node,), rank)
    if len(nodes) > 1:
        reason = f"{listed(nodes)} at once, first {first.node}: {first.words}; look for what they share"
        return CaseVerdict(first.cause, SHARED, SUPPORTED, reason, first, (), tuple(nodes), rank)
    worth = probability()
    is_sure = bool(said) and first.is_strong
    weight = OF_CRASH if first.cause == CODE else worth.established if is_sure else worth.supported
    standing = ESTABLISHED if is_sure else SUPPORTED
    device = f" (device {first.device})" if first.device else ""
    blamed = (first.node,) if first.cause != CODE else ()
    return CaseVerdict(first.cause, weight, standing, f"{first.node}{device}: {first.words}", first, blamed, (), rank)


def _is_same(event: Event) -> bool:
    """Whether a rank says what a fault of its node looks like."""
    is_doubt = event.row.role == SUSPICION and not event.row.unexplained
    return is_doubt or event.row.of_broken_gpu or event.row.cause == RESOURCES


def _by_undated(case: Collected) -> CaseVerdict | None:
    """By evidence without a time: only where a rank of the same node says the same, and nothing says another thing."""
    possible = [candidate.event for candidate in candidates(case)]
    if any(event.row.role != SUSPICION and not event.row.of_broken_gpu for event in possible):
        return None
    said = {event.node: event for event in reversed(possible) if event.row.cause == HARDWARE or event.row.of_broken_gpu}
    facts = [fact for fact in undated(case) if fact.cause == HARDWARE and fact.is_strong and fact.node in said]
    if not facts or possible[0].node != facts[0].node or len({fact.node for fact in facts}) > 1:
        return None
    first = facts[0]
    reason = f"{first.node}: {first.words}; its time is not known, but a rank of this node says the same"
    return CaseVerdict(
        HARDWARE, probability().undated, SUPPORTED, reason, first, (first.node,), (), said[first.node].rank
    )


def _is_earlier(candidate: Candidate, fact: Fact, apart_s: float) -> bool:
    """Whether the job's own words were surely before the evidence, and say another thing."""
    row = candidate.event.row
    if candidate.event.sign == DESYNC:
        apart_s = limits().lag_s  # whom its GPU fails may call what others do not
    return row.role != SUSPICION and not row.of_broken_gpu and candidate.event.when.is_before(fact.when, apart_s)


def _contests(candidate: Candidate, fact: Fact, apart_s: float) -> bool:
    """Whether the job's own words say another thing than a node's evidence, and may have come first."""
    row = candidate.event.row
    if row.role == SUSPICION or row.of_broken_gpu or row.cause == fact.cause:
        return False
    return not fact.when.is_before(candidate.event.when, apart_s)


def _by_words(case: Collected) -> CaseVerdict:
    """By the words of the job and its scheduler."""
    possible = candidates(case)
    stops = [event for event in case.events if event.row.cause == STOPPED]
    own = [
        candidate
        for candidate in possible
        if candidate.event.row.role != SUSPICION and candidate.event.row.cause != STOPPED
    ]
    suspicions = (candidate.event for candidate in possible if candidate.event.row.role == SUSPICION)
    doubts = sorted(suspicions, key=lambda event: event.row.unexplained)
    if own:
        return _of_words(case, own, doubts)
    if stops:
        return _of_stop(case, stops, doubts)
    doubt = doubts[0] if doubts else None
    if doubt and doubt.sign == OF_KERNEL and (fact := borne_out(doubt, case)):
        reason = f"{doubt.row.meaning}; {_says_so(fact)}, and nothing of the GPU"
        return CaseVerdict(CODE, OF_CRASH, SUPPORTED, reason, doubt, (), (), doubt.rank)
    told = told_from_outside(case) if not doubts else None
    if told:
        if silent := silent_before(told, case.progress):
            return _unknown(case, [told], f"it had made no step for {silent} when it was told to stop: it hung")
        why = told.row.meaning
        return CaseVerdict(STOPPED, probability().told_to_stop, CANDIDATE, why, told, against=said_against(case))
    return _unknown(case, doubts)


def _says_so(fact: Fact) -> str:
    kind = fact.words.partition(":")[0]
    return f"the kernel log of {fact.node} has {kind}, for this process, which is an error of the program"


def _of_words(case: Collected, own: Sequence[Candidate], doubts: Sequence[Event]) -> CaseVerdict:
    first, apart_s = own[0], clocks.apart_s(case)
    rivals = [rival for rival in own if not first.event.when.is_before(rival.event.when, apart_s)]
    causes = {rival.event.row.cause for rival in rivals}
    if len(causes) > 1:
        sure = [rival for rival in rivals if rival.event.rank is None and rival.event.row.cause == RESOURCES]
        if not sure:
            reason = "; ".join(dict.fromkeys(rival.event.row.meaning for rival in rivals))
            return _unknown(case, [rival.event for rival in rivals], f"several at once: {reason}")
        first = sure[0]
    first = next((rival for rival in rivals if rival.event.sign == DESYNC and first.event.row.cause == CODE), first)
    event = first.event
    before = [
        doubt
        for doubt in doubts
        if doubt.row.cause != event.row.cause and not doubt.is_warning and _may_have_led_to(doubt, event, apart_s)
    ]
    if before:
        return _unknown(case, before)
    broken = [fact for fact in undated(case) if fact.cause == HARDWARE and fact.is_strong]
    if event.sign == DESYNC and broken:
        return _of_contest(event, broken[0])
    if first.is_echo:
        return _unknown(case, [event], "others had waited or ended before it: it is an echo")
    weight = event.row.probability * (1.0 if event.when.is_known else probability().unordered)
    fact = borne_out(event, case) if event.row.cause == CODE else None
    reason = _quoted(event) + (f"; {_says_so(fact)}" if fact else "")
    weight, standing = (max(weight, probability().supported), SUPPORTED) if fact else (weight, CANDIDATE)
    ranks = (candidate.event.rank for candidate in own if candidate.event.sign == event.sign)
    rank = next((rank for rank in ranks if rank is not None), None)
    return CaseVerdict(event.row.cause, weight, standing, reason, event, (), (), rank, said_against(case))


def _may_have_led_to(doubt: Event, event: Event, most_s: float) -> bool:
    """Whether a suspicion came before: by time, or in the same file by line.

    A rank that met an error of its GPU or its network may go on with another collective than the others: then it is
    enough that the error was not surely later.
    """
    apart_s = 0.0 if doubt.node == event.node and doubt.node else most_s
    if event.sign == DESYNC and doubt.row.cause in (HARDWARE, NETWORK):
        return not event.when.is_before(doubt.when, apart_s)
    return doubt.when.is_before(event.when, apart_s)


def _of_stop(case: Collected, stops: Sequence[Event], doubts: Sequence[Event]) -> CaseVerdict:
    """A job that was stopped: unless it had hung or failed before, that is why it ended."""
    stop = stops[0]
    hung = [event for event in case.events if event.row.role == CASCADE and event.row.hang]
    apart_s = limits().teardown_s  # so long before, nothing is of the stop
    failed = [doubt for doubt in doubts if not doubt.row.of_stop or doubt.when.is_before(stop.when, apart_s)]
    if hung or failed:
        return _unknown(case, [*failed, *hung], f"before {stop.row.meaning}, it had hung or failed")
    if stop.sign == "time_limit" and (silent := silent_before(stop, case.last)):
        return _unknown(case, [stop], f"it had said nothing for {silent} when its time was over: it hung")
    weight = stop.row.probability * (1.0 if case.last or not case.events else probability().unordered)
    return CaseVerdict(STOPPED, weight, CANDIDATE, stop.row.meaning, stop)


def _unknown(case: Collected, events: Iterable[Event], reason: str = "") -> CaseVerdict:
    events = list(events)
    first = events[0] if events else None
    if not reason:
        reason = _in_words(case, first) if first else why_nobody_can_tell(case)
    suspects = {event.node for event in events if event.row.cause in (HARDWARE, NETWORK) and event.node}
    suspects |= {lead.node for lead in case.leads if lead.node and lead.is_late}
    suspects = suspects.intersection(case.job.nodes or suspects)  # a job's words name any node
    rank = next((event.rank for event in events if event.rank is not None), None)
    leads: Sequence[Lead] = case.leads
    rank = leads[0].rank if rank is None and len(leads) == 1 else rank
    return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, reason, first, (), tuple(sorted(suspects)), rank)


def _in_words(case: Collected, first: Event) -> str:
    """What an event means; and what is said beside it where it does not tell what failed."""
    text = _quoted(first)
    if first.rank in {lead.rank for lead in case.leads if not lead.is_late}:
        return text  # others waited for it, as it had ended
    return f"{why_nobody_can_tell(case)}; {text}" if first.row.unexplained and has_hung(case) else text


def _quoted(event: Event) -> str:
    meaning = event.row.meaning
    return f"{meaning}: {event.words}" if event.row.quoted and event.words != meaning else meaning
