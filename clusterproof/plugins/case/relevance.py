"""Whether what a node's own log says can have ended this job: it must fit what the job, or its scheduler, saw."""

from __future__ import annotations

from collections.abc import Iterable, Set

from clusterproof.plugins.case.node_log import XID
from clusterproof.plugins.case.records import Collected, Event, Fact
from clusterproof.plugins.case.window import dated
from clusterproof.plugins.catalog.causes import CODE, HARDWARE, NETWORK, RESOURCES, STOPPED, STORAGE, UNKNOWN

SEEN_AS = {  # signs that a fault of this kind makes in a job, besides those that say so
    NETWORK: ("nccl_system", "efa_completion", "peer_gone", "watchdog", "observed_dump", "stuck_process"),
    STORAGE: ("watchdog", "observed_dump", "stuck_process", "told_to_end"),
    RESOURCES: ("killed",),
    CODE: ("crashed",),
}


def relevant(facts: Iterable[Fact], case: Collected) -> list[Fact]:
    """Those of the facts that count."""
    ended_badly = _has_ended_badly(case)
    seen = {(event.sign, event.row.cause, event.node) for event in case.events}  # of thousands of events some kinds
    return [fact for fact in facts if _is_relevant(fact, case.job.number, ended_badly, seen)]


def _is_relevant(fact: Fact, job: str, ended_badly: bool, seen: Set[tuple[str, str, str]]) -> bool:
    if is_of_program(fact):
        return False  # it only bears out what a rank says
    if fact.cause == HARDWARE:
        return fact.is_strong and ended_badly
    if fact.cause == UNKNOWN:  # its kernel stopped, or a CPU did
        return fact.is_strong
    if fact.cause == RESOURCES and job and f"job_{job}" in fact.words:
        return True  # the control group is the job's own
    is_everywhere, others = fact.cause in (NETWORK, STORAGE), SEEN_AS.get(fact.cause, ())
    is_named = fact.cause != CODE  # a program that crashed explains no error of another kind in the job's code
    return any(
        ((is_named and cause == fact.cause) or sign in others) and (is_everywhere or node in ("", fact.node))
        for sign, cause, node in seen
    )


def is_of_program(fact: Fact) -> bool:
    """Whether it is an Xid that NVIDIA takes for a fault of the program that used the GPU."""
    return fact.cause == CODE and fact.check == XID


def borne_out(event: Event, case: Collected) -> Fact | None:
    """What the node's own log has of the same process as a fault of its program; None where it has any of hardware."""
    facts = dated(case)
    if any(fact.cause == HARDWARE for fact in facts):  # a contained memory error, Xid 94, ends a process as well
        return None
    ranks = {rank for rank in case.pids_of_ranks if event.rank in (None, rank)}
    return next((fact for fact in facts if is_of_program(fact) and rank_of(fact, case) in ranks), None)


def said_against(case: Collected) -> tuple[str, ...]:
    """What nodes themselves say, in words: it speaks against every cause that is not of them."""
    return tuple(dict.fromkeys(f"{fact.node}: {fact.words}" for fact in case.facts if fact.is_strong))


def rank_of(fact: Fact, case: Collected) -> int | None:
    """The rank whose process a line of its node's log is of; None where that is not known."""
    ranks = (rank for rank, pid in case.pids_of_ranks.items() if pid == fact.pid)
    return next((rank for rank in ranks if case.nodes_of_ranks.get(rank, fact.node) == fact.node), None)


def _has_ended_badly(case: Collected) -> bool:
    """Whether anything but a stop by somebody says that the job ended; a job without a sign may have vanished."""
    if not any(event.row.cause == STOPPED for event in case.events):
        return True
    of_end = [event for event in case.events if event.row.cause != STOPPED and not event.row.of_stop]
    return any(not event.is_cascade or event.row.hang for event in of_end)
