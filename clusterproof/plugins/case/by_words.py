"""Why a job ended according to its own messages and its scheduler's, without evidence from a node."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from clusterproof.plugins.case import (
    CANDIDATE,
    CRASH_PRIOR,
    DESYNC,
    SUPPORTED,
    CaseVerdict,
    Collected,
    Event,
    Fact,
    Lead,
    clocks,
    of_contest,
    quoted,
)
from clusterproof.plugins.case.exceptions import HEADERS
from clusterproof.plugins.case.first_event import (
    Candidate,
    candidates,
    has_hung,
    silent_before,
    stopped_from_outside,
    why_unknown,
)
from clusterproof.plugins.case.relevance import confirmed_program_fault, contradicting_evidence, dated, undated
from clusterproof.plugins.case.stops import may_be_of_a_stop, of_a_stop
from clusterproof.plugins.case.survived import WHILE_IT_RUNS
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

SRUN_ADVICE = "where srun ends a step at once (-K), srun --error=task-%t.err keeps what a rank says last"
LOST = ("node_failed", "daemon_lost", "node_not_ready", "node_gone")  # signs of a lost node
OF_ANY_CONTAINER = "oom_told"  # kubectl's words for people: also of a container beside the ranks, or of an earlier run
KERNEL_SIGN = "illegal"  # the sign of a failed GPU kernel, by code or by hardware


def verdict_by_messages(case: Collected) -> CaseVerdict:
    """The verdict from the messages of the job and its scheduler."""
    late = of_a_stop(case)
    possible = [candidate for candidate in candidates(case) if candidate.event not in late]
    stops = sorted((event for event in case.events if event.row.cause == STOPPED), key=_begins)
    own = [
        candidate
        for candidate in possible
        if candidate.event.row.role != SUSPICION and candidate.event.row.cause != STOPPED
    ]
    suspicions = (candidate.event for candidate in possible if candidate.event.row.role == SUSPICION)
    doubts = sorted(suspicions, key=lambda event: event.row.unexplained)
    if own and may_be_of_a_stop([candidate.event for candidate in own], stops):
        reason = f"{stops[0].row.meaning}, and {own[0].event.row.meaning}; no time tells which came first"
        return _unknown(case, [own[0].event], reason)
    if own:
        return _message_verdict(case, own, doubts)
    if stops:
        return _of_stop(case, stops[0], doubts, late)
    doubt = doubts[0] if doubts else None
    if doubt and doubt.sign == KERNEL_SIGN and (fact := confirmed_program_fault(doubt, case)):
        reason = f"{doubt.row.meaning}; {_is_stated(fact)}, and nothing of the GPU"
        return CaseVerdict(CODE, CRASH_PRIOR, SUPPORTED, reason, doubt, (), (), doubt.rank)
    stop = stopped_from_outside(case) if all(doubt.is_warning for doubt in doubts) else None
    if stop:
        if silent := silent_before(stop, case.stepped):
            return _unknown(case, [stop], f"it had made no step for {silent[0]} when it was told to stop: {silent[1]}")
        why = stop.row.meaning
        return CaseVerdict(
            STOPPED, probability().told_to_stop, CANDIDATE, why, stop, against=contradicting_evidence(case)
        )
    return _unknown(case, _without_echoes(doubts, clocks.apart_s(case)))


def _without_echoes(doubts: Sequence[Event], apart_s: float) -> list[Event]:
    """Without errors of the network soon after another rank ended or hung, or where a node was lost.

    These do not make suspects of the nodes of its peers; a scheduler notices the loss of a node later than they do.
    """
    others = [
        doubt
        for doubt in doubts
        if doubt.row.cause != NETWORK and not doubt.is_warning and doubt.sign not in WHILE_IT_RUNS
    ]
    if any(doubt.sign in LOST and doubt.node for doubt in others):
        return [doubt for doubt in doubts if doubt.row.cause != NETWORK]
    ended = sorted(doubt.when.ends for doubt in others if doubt.when.ends is not None)

    def is_echo(doubt: Event) -> bool:
        if doubt.row.cause != NETWORK or doubt.when.begins is None:
            return False
        before = bisect_left(ended, doubt.when.begins - apart_s)
        return bool(before) and doubt.when.begins - ended[before - 1] <= limits().teardown_s

    return [doubt for doubt in doubts if not is_echo(doubt)]


def _is_stated(fact: Fact) -> str:
    kind = fact.words.partition(":")[0]
    return f"the kernel log of {fact.node} has {kind}, for this process, which is an error of the program"


def _message_verdict(case: Collected, own: Sequence[Candidate], doubts: Sequence[Event]) -> CaseVerdict:
    first, apart_s = own[0], clocks.apart_s(case)
    rivals = [rival for rival in own if not first.event.when.is_before(rival.event.when, apart_s)]
    causes = {rival.event.row.cause for rival in rivals}
    if len(causes) > 1:
        of_job = [rival for rival in rivals if rival.event.rank is None and rival.event.sign != OF_ANY_CONTAINER]
        sure = [rival for rival in of_job if rival.event.row.cause == RESOURCES]
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
        return of_contest(event, broken[0])
    if first.is_echo:
        return _unknown(case, [event], "others had waited or ended before it: it is an echo")
    weight = event.row.probability * (1.0 if event.when.is_known else probability().unordered)
    fact = confirmed_program_fault(event, case) if event.row.cause == CODE else None
    reason = quoted(event) + (f"; {_is_stated(fact)}" if fact else "")
    weight, standing = (max(weight, probability().supported), SUPPORTED) if fact else (weight, CANDIDATE)
    ranks = (candidate.event.rank for candidate in own if candidate.event.sign == event.sign)
    rank = next((rank for rank in ranks if rank is not None), None)
    return CaseVerdict(event.row.cause, weight, standing, reason, event, (), (), rank, contradicting_evidence(case))


def _may_have_led_to(doubt: Event, event: Event, most_s: float) -> bool:
    """Whether a suspicion came before: by time, or in the same file by line.

    A rank with an error of its GPU or network may continue with a different collective than the others: then it is
    enough that the error was not surely later.
    """
    apart_s = 0.0 if doubt.node == event.node and doubt.node else most_s
    if event.sign == DESYNC and doubt.row.cause in (HARDWARE, NETWORK):
        return not event.when.is_before(doubt.when, apart_s)
    if doubt.row.cause == HARDWARE and _is_above(doubt, event) and not event.when.is_before(doubt.when, apart_s):
        return True
    return doubt.when.is_before(event.when, apart_s)


def _is_above(doubt: Event, event: Event) -> bool:
    (file, line), (other, below) = doubt.position, event.position
    return file == other and line is not None and below is not None and line < below


def _begins(event: Event) -> float:
    return math.inf if event.when.begins is None else event.when.begins


def _of_stop(case: Collected, stop: Event, doubts: Sequence[Event], late: Collection[Event]) -> CaseVerdict:
    """The verdict on a job that was stopped: that is why it ended, unless it had hung or failed before."""
    hung = [event for event in case.events if event.row.role == CASCADE and event.row.hang and event not in late]
    apart_s = limits().teardown_s  # nothing this long before belongs to the stop
    failed = [
        doubt
        for doubt in doubts
        if not doubt.is_warning and (not doubt.row.of_stop or doubt.when.is_before(stop.when, apart_s))
    ]
    if hung or failed:
        return _unknown(case, [*failed, *hung], f"before {stop.row.meaning}, it had hung or failed")
    if broken := [fact for fact in dated(case) if _breaks_long_before(fact, stop)]:
        nodes = tuple(dict.fromkeys(fact.node for fact in broken))
        finding = f"{broken[0].node}: {broken[0].words}"
        others = tuple(other for other in contradicting_evidence(case) if other != finding)
        reason = f"long before {stop.row.meaning}, {finding}; the job may have hung since"
        return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, reason, stop, (), nodes, None, others)
    if stop.sign == "time_limit" and (silent := silent_before(stop, case.lived)):
        return _unknown(case, [stop], f"it had said nothing for {silent[0]} when its time was over: {silent[1]}")
    weight = stop.row.probability * (1.0 if case.last or not case.events else probability().unordered)
    return CaseVerdict(STOPPED, weight, CANDIDATE, quoted(stop), stop, against=contradicting_evidence(case))


def _breaks_long_before(fact: Fact, stop: Event) -> bool:
    """Whether a node's hardware failed so long before the job was stopped that the job may have hung."""
    return fact.cause == HARDWARE and fact.is_strong and fact.when.is_before(stop.when, limits().lag_s)


def _unknown(case: Collected, events: Iterable[Event], reason: str = "") -> CaseVerdict:
    events = list(events)
    first = events[0] if events else None
    if not reason:
        reason = _event_text(case, first) if first else why_unknown(case)
    own = (event for event in events if event.row.cause in (HARDWARE, NETWORK) and not event.row.of_peer)
    suspects = {event.node for event in own if event.node}
    suspects |= {lead.node for lead in case.leads if lead.node and lead.is_late}
    suspects = suspects.intersection(case.job.nodes or suspects)  # a job's output may name any node
    rank = next((event.rank for event in events if event.rank is not None), None)
    leads: Sequence[Lead] = case.leads
    rank = leads[0].rank if rank is None and len(leads) == 1 else rank
    return CaseVerdict(UNKNOWN, 0.0, UNKNOWN, reason, first, (), tuple(sorted(suspects)), rank)


def _is_of_slurm(case: Collected) -> bool:
    """Whether Slurm ran it: according to its record, or to its programs' messages."""
    return case.job.number.partition("_")[0].isdecimal() or any("srun: " in event.words for event in case.events)


def _event_text(case: Collected, first: Event) -> str:
    """The meaning of an event, with a remark if it does not show what failed."""
    text = quoted(first)
    if first.sign in HEADERS and _is_of_slurm(case):
        text += f"; {SRUN_ADVICE}"
    if first.rank in {lead.rank for lead in case.leads if not lead.is_late}:
        return text  # others waited for it because it had ended
    return f"{why_unknown(case)}; {text}" if first.row.unexplained and has_hung(case) else text
