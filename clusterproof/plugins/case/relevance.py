"""Whether what a node's own log says can have ended this job: it must fit what the job, or its scheduler, saw."""

from __future__ import annotations

from clusterproof.plugins.case.records import Collected, Event, Fact
from clusterproof.plugins.catalog.causes import CODE, HARDWARE, NETWORK, RESOURCES, STOPPED, STORAGE, UNKNOWN

SEEN_AS = {  # signs that a fault of this kind makes in a job, besides those that say so
    NETWORK: ("nccl_system", "efa_completion", "peer_gone", "watchdog", "observed_dump", "stuck_process"),
    STORAGE: ("watchdog", "observed_dump", "stuck_process", "told_to_end"),
    RESOURCES: ("killed",),
    CODE: ("crashed",),
}


def is_relevant(fact: Fact, case: Collected) -> bool:
    """Whether it counts."""
    if fact.cause == HARDWARE:
        return fact.is_strong and _has_ended_badly(case)
    if fact.cause == UNKNOWN:  # its kernel stopped, or a CPU did
        return fact.is_strong
    if fact.cause == RESOURCES and case.job.number and f"job_{case.job.number}" in fact.words:
        return True  # the control group is the job's own
    return any(_says_so(event, fact) for event in case.events)


def _has_ended_badly(case: Collected) -> bool:
    """Whether anything but a stop by somebody says that the job ended; a job without a sign may have vanished."""
    if not any(event.row.cause == STOPPED for event in case.events):
        return True
    of_end = [event for event in case.events if event.row.cause != STOPPED and not event.row.of_stop]
    return any(not event.is_cascade or event.row.hang for event in of_end)


def _says_so(event: Event, fact: Fact) -> bool:
    is_there = not event.node or event.node == fact.node or fact.cause in (NETWORK, STORAGE)
    return is_there and (event.row.cause == fact.cause or event.sign in SEEN_AS.get(fact.cause, ()))
