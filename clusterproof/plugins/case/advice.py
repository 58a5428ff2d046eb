"""A complete case, and what to do after a job: nodes to drain or keep, what a restart excludes, confirming tests."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from clusterproof.plugins.case import ESTABLISHED, CaseVerdict, Collected, Event, Fact, Missing, MissingKind, label
from clusterproof.plugins.case.first_event import long_before_the_end
from clusterproof.plugins.case.relevance import (
    dated,
    fails_node,
    logs_of_later,
    of_another_time,
    relevant,
    without_other_boots,
)
from clusterproof.plugins.case.verdict import decide
from clusterproof.plugins.catalog.causes import (
    CODE,
    HARDWARE,
    NETWORK,
    RESOURCES,
    STOPPED,
    STORAGE,
    UNKNOWN,
    signs,
)
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.record import record, replace

DRAIN, TEST, KEEP, NOT_KNOWN = "drain", "test", "keep", "not known"
RESTARTS = {
    "yes": "A restart is likely to help.",
    "no": "A restart ends the same way: mend the code or its configuration first.",
    "after": "A restart helps once this is mended.",
    "without": "A restart without this node is likely to help.",
    "perhaps": "A restart without this node may help.",
    "unknown": "Whether a restart helps is not known.",
}
RESTART_BY_CAUSE = {STOPPED: "yes", CODE: "no", RESOURCES: "after", STORAGE: "after"}  # if a sign says no other
EARLIER = "journalctl -k -b -1 may have it"
OF_HARDWARE_LOAD = "gpu_exact"  # tests arithmetic and memory of GPUs under load


@record
class Advice:
    """What to do for each node; none of it is done here.

    Nothing was read from a node that is NOT_KNOWN, or its log only in part. `exclude` is for a restart; `commands` may
    be copied: they confirm the suspicion, with the checks in `proof` and under `load` (a `-k` expression), and then
    drain. `restart` is one of RESTARTS.
    """

    nodes: dict[str, str]
    exclude: tuple[str, ...]
    restart: str
    commands: tuple[str, ...]
    proof: str = ""
    load: str = ""


@record
class Case:
    """The complete result for a case."""

    collected: Collected
    verdict: CaseVerdict
    advice: Advice


def opened_case(collected: Collected) -> Case:
    """The verdict on what was collected, and its consequences."""
    collected = replace(collected, facts=without_other_boots(collected))
    early = long_before_the_end(collected)
    events = tuple(event for event in collected.events if event not in early)
    outlived = (*collected.outlived, *(event for event in collected.events if event in early))
    collected = replace(collected, events=events, outlived=outlived)
    others = (Missing(text, MissingKind.OF_ANOTHER_TIME) for text in of_another_time(collected))
    collected = replace(collected, lacks=(*others, *collected.lacks))
    if late := logs_of_later(collected):
        words = f"the kernel logs of {listed(late)} from the time of the job: what was read begins later; {EARLIER}"
        lacks = (*collected.lacks, Missing(words, MissingKind.LOGS_OF_SOME))
        collected = replace(collected, lacks=lacks, nodes_in_part=(*collected.nodes_in_part, *late))
    verdict = decide(collected)
    return Case(collected, verdict, advise(collected, verdict))


def advise(case: Collected, verdict: CaseVerdict) -> Advice:
    """The consequences of a verdict."""
    to_drain = verdict.nodes if verdict.standing == ESTABLISHED and verdict.cause == HARDWARE else ()
    suspects = tuple(node for node in dict.fromkeys((*verdict.nodes, *verdict.suspects)) if node not in to_drain)
    failed = (fact.node for fact in case.facts if fails_node(fact, case))
    to_test = tuple(dict.fromkeys((*suspects, *(node for node in failed if node not in to_drain))))
    nodes = dict.fromkeys((*case.job.nodes, *case.nodes_with_log, *to_drain, *to_test), NOT_KNOWN)
    read = [node for node in case.nodes_with_log if node not in case.nodes_in_part]
    for due, of in ((KEEP, (*read, *case.nodes_checked)), (TEST, to_test), (DRAIN, to_drain)):
        nodes |= dict.fromkeys((node for node in of if node in nodes), due)
    by_others = _nodes_with_evidence(case)
    left_out = (*to_drain, *(node for node in suspects if node in by_others))
    exclude = left_out if verdict.cause in (HARDWARE, NETWORK, UNKNOWN) and len(suspects) < len(nodes) else ()
    restart = _restart(verdict, exclude)
    commands = tuple(_commands(case, verdict, to_drain, to_test))
    return Advice(nodes, exclude, restart, commands, *_checks(verdict))


def _nodes_with_evidence(case: Collected) -> frozenset[str]:
    """The nodes against which there is more than the job's own output: their own evidence, Slurm or Kubernetes."""
    reported = (event.node for event in case.events if {"scheduler", "kubernetes"}.intersection(event.row.read_in))
    of_end = (fact for fact in relevant(dated(case), case) if fact.cause not in (CODE, RESOURCES))
    failed = (fact for fact in case.facts if fails_node(fact, case))
    return frozenset((*(fact.node for fact in (*of_end, *failed)), *reported))


def _restart(verdict: CaseVerdict, exclude: tuple[str, ...]) -> str:
    """Whether a restart helps: one of RESTARTS."""
    if verdict.cause in (HARDWARE, NETWORK) and verdict.nodes:
        return "without"
    if verdict.cause == UNKNOWN:
        return "perhaps" if len(exclude) == 1 else "unknown"
    of_sign = signs()[verdict.first.sign].restart if isinstance(verdict.first, Event) else ""
    return of_sign or RESTART_BY_CAUSE.get(verdict.cause, "unknown")


def _commands(
    case: Collected, verdict: CaseVerdict, to_drain: tuple[str, ...], to_test: tuple[str, ...]
) -> Iterator[str]:
    tested = (*to_drain, *to_test)
    proof, load = _checks(verdict)
    if not proof and not load:
        failed = (fact.check for fact in case.facts if fact.node in to_test and fails_node(fact, case))
        proof = " or ".join(dict.fromkeys(check.rpartition(".")[2] for check in failed))
    if tested and (proof or load):
        nodes = quote(f"ssh:{fold(tested)}")
        if case.cluster:
            whole = fold([case.names.get(node, node) for node in tested])
            nodes = f"{quote(case.cluster)} --nodes {quote(whole)}"
        if proof:
            yield f"clusterproof check {nodes} -k {quote(proof)}"
        if load:
            yield f"clusterproof check {nodes} -m perf -k {quote(load)}"
    for node in to_drain:
        if case.cluster:
            yield f"kubectl cordon {quote(case.names.get(node, node))}"
            continue
        number = f"job {case.job.number}: " if case.job.number else ""
        reason = f"{number}{verdict.why.partition(': ')[2] or verdict.why}"
        yield f"scontrol update nodename={quote(node)} state=drain reason={quote(_plain(reason)[:100])}"


def _checks(verdict: CaseVerdict) -> tuple[str, str]:
    """The checks that confirm a suspicion: those that read the node, and those that put load on it."""
    first = verdict.first
    if isinstance(first, Fact):
        load = OF_HARDWARE_LOAD if first.check.startswith("gpu.") else ""
        return first.check.rpartition(".")[2], load
    return (signs()[first.sign].proof, signs()[first.sign].load) if first else ("reachable or no_xid", "")


def _plain(text: str) -> str:
    """Names that a shell and Slurm take literally."""
    return "".join(char if char.isalnum() or char in " .,:_/()-" else " " for char in text).strip()


def of_rank(case: Collected, rank: int | None) -> str:
    """`rank 13 (gpu003)`; empty if no rank is known."""
    if rank is None:
        return ""
    node = label(case.nodes_of_ranks.get(rank, ""))
    return f"rank {rank} ({node})" if node else f"rank {rank}"
