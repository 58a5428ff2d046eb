"""The second round trip: puts load on nodes that answered, and collects the measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from clusterproof.plugins.agent.payload import modules_for, new_nonce, started, started_by_shell
from clusterproof.plugins.benchmarks.load.options import FUNCTIONS, SECONDS, TAKES_TURNS, LoadOptions
from clusterproof.plugins.benchmarks.load.torch_python import EXACT
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.transport import Connection, Limits, Program, Unusable
from clusterproof.plugins.transport.gather import OnAnswer, probe_nodes

T = TypeVar("T")
PACKAGE = "clusterproof.plugins.benchmarks.load"
PYTORCH_MODULES = {  # not imported by collectors, but needed in the Python that has PyTorch
    "gpu_exact": f"{EXACT}.gpus",
    "exact_collective": f"{EXACT}.collectives",
    "exact_step": f"{EXACT}.steps",
}
NOT_BEGUN = (Unreached.BUSY, Unreached.NO_IMAGE, Unreached.API, Unreached.THROTTLED)  # nothing was run on it
CONNECT_S = 15.0  # in addition to the node's own time


def load(
    cluster: Cluster,
    connection: Connection,
    collectors: Iterable[str],
    options: LoadOptions,
    limits: Limits,
    answered: Mapping[str, NodeEvidence],
    on_answer: OnAnswer,
) -> None:
    """Load every node that has answered; `on_answer` is called with its merged evidence, once for each round.

    All nodes are loaded at once, except that they take turns at what they share, always as many at a time. Where
    devices are allocated, they are requested; file systems are not.
    """
    known = dict(answered)
    with_devices = connection.under_load()
    have_had_turn: set[str] = set()

    def merge(evidence: NodeEvidence) -> None:
        is_lost = evidence.unreached and evidence.unreached not in NOT_BEGUN
        if evidence.node in have_had_turn and not is_lost:
            return
        known[evidence.node] = merged(known[evidence.node], evidence, round_collectors)
        on_answer(known[evidence.node])

    reached = [target for target in cluster.targets if not known[target.name].unreached]
    for round_collectors, targets in rounds(frozenset(collectors), reached, options.fs_at_once):
        chosen = connection if TAKES_TURNS in round_collectors else with_devices
        options = replace(options, max_answer_chars=chosen.carries(limits))
        to_run = program(round_collectors, options, chosen.takes_stdin)
        longer = replace(limits, answer_s=options.whole_s(round_collectors) + CONNECT_S)
        part = replace(cluster, targets=tuple(targets))
        try:
            probe_nodes(part, chosen, to_run, longer, merge, round_collectors)
        except Unusable as problem:
            for target in targets:
                before = known[target.name]
                if target.name not in have_had_turn:
                    why = Collected(Status.NOT_ASKED, detail=str(problem))
                    known[target.name] = without(before, round_collectors, why)
                    on_answer(known[target.name])
        have_had_turn |= {target.name for target in targets} if TAKES_TURNS in round_collectors else set()


def rounds(collectors: frozenset[str], targets: Sequence[T], at_once: int) -> Iterator[tuple[list[str], Sequence[T]]]:
    """The collectors in order with the nodes that run them at once, round by round.

    The last of those that take turns have others beside them that had theirs, for the same share of what is shared.
    """
    alone = [collector for collector in SECONDS if collector in collectors and collector != TAKES_TURNS]
    if alone and targets:
        yield alone, targets
    if TAKES_TURNS in collectors:
        for first in range(0, len(targets), at_once):
            due = targets[first : first + at_once]
            yield [TAKES_TURNS], [*due, *targets[: min(at_once - len(due), first)]]


def merged(before: NodeEvidence, evidence: NodeEvidence, collectors: Iterable[str]) -> NodeEvidence:
    """A node's earlier evidence with the results of its load, or that it was lost meanwhile."""
    if not evidence.unreached:
        return replace(before, collectors={**before.collectors, **evidence.collectors})
    reason = evidence.unreached.value.replace("_", " ")
    if evidence.unreached in NOT_BEGUN:
        return without(before, collectors, Collected(Status.NOT_ASKED, detail=f"{reason}: {evidence.detail}"))
    lost = Collected(Status.BROKE, detail=f"the node answered before, and not under load: {reason}: {evidence.detail}")
    return without(before, collectors, lost)


def without(before: NodeEvidence, collectors: Iterable[str], why: Collected) -> NodeEvidence:
    """A node's earlier evidence, with the reason why there are no load results."""
    return replace(before, collectors={**before.collectors, **dict.fromkeys(collectors, why)})


def program(collectors: Sequence[str], options: LoadOptions, on_stdin: bool = True) -> Program:
    """The program that runs these collectors one after another."""
    of_pytorch = (PYTORCH_MODULES[name] for name in collectors if name in PYTORCH_MODULES)
    functions = {collector: FUNCTIONS[collector] for collector in collectors}
    modules = modules_for(
        [f"{PACKAGE}.run", *(f"{PACKAGE}.{name.partition(':')[0]}" for name in functions.values()), *of_pytorch]
    )
    to_call = {collector: (name, options.deadline_s(collector)) for collector, name in functions.items()}
    request = (to_call, options.host_root, options.whole_s(collectors), options.settings, options.max_answer_chars)
    return started_by_shell(started(f"{PACKAGE}.run", modules, request), new_nonce(), options.sudo, on_stdin)
