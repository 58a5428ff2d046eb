"""Whether what a node's own log says can have ended this job: it must fit what the job, or its scheduler, saw."""

from __future__ import annotations

from collections.abc import Iterable, Set

from clusterproof.plugins.case.records import Collected, Fact
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
    if fact.cause == HARDWARE:
        return fact.is_strong and ended_badly
    if fact.cause == UNKNOWN:  # its kernel stopped, or a CPU did
        return fact.is_strong
    if fact.cause == RESOURCES and job and f"job_{job}" in fact.words:
        return True  # the control group is the job's own
    is_everywhere, others = fact.cause in (NETWORK, STORAGE), SEEN_AS.get(fact.cause, ())
    return any(
        (cause == fact.cause or sign in others) and (is_everywhere or node in ("", fact.node))
        for sign, cause, node in seen
    )


def _has_ended_badly(case: Collected) -> bool:
    """Whether anything but a stop by somebody says that the job ended; a job without a sign may have vanished."""
    if not any(event.row.cause == STOPPED for event in case.events):
        return True
    of_end = [event for event in case.events if event.row.cause != STOPPED and not event.row.of_stop]
    return any(not event.is_cascade or event.row.hang for event in of_end)
