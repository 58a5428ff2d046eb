"""The second round trip: from nodes that answered to what their hardware did under load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from clusterproof.plugins.agent.payload import modules_for, new_nonce, started, started_by_shell
from clusterproof.plugins.benchmarks.load.options import SECONDS, TAKES_TURNS, LoadOptions
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.transport import Connection, Limits, Program
from clusterproof.plugins.transport.gather import OnAnswer, ask, room_of

T = TypeVar("T")
ROOM = "clusterproof.plugins.benchmarks.load"
CONNECT_S = 15.0  # beside what the node itself takes


def load(
    cluster: Cluster,
    connection: Connection,
    collectors: Iterable[str],
    options: LoadOptions,
    limits: Limits,
    answered: Mapping[str, NodeEvidence],
    on_answer: OnAnswer,
) -> None:
    """Load every node that has answered; `on_answer` is called with all it has told since, once for each round.

    All nodes are loaded at once, but for what they share: there they take turns, each time as many as ever.
    """
    known = dict(answered)
    options = replace(options, room=room_of(connection, limits))

    def merge(evidence: NodeEvidence) -> None:
        known[evidence.node] = merged(known[evidence.node], evidence, round_collectors)
        on_answer(known[evidence.node])

    reached = [target for target in cluster.targets if not known[target.name].unreached]
    for round_collectors, targets in rounds(frozenset(collectors), reached, options.fs_at_once):
        to_run, nonce = program(round_collectors, options, getattr(connection, "takes_stdin", True))
        patient = replace(limits, answer_s=options.whole_s(round_collectors) + CONNECT_S)
        ask(replace(cluster, targets=tuple(targets)), connection, to_run, nonce, patient, merge, round_collectors)


def rounds(collectors: frozenset[str], targets: Sequence[T], at_once: int) -> Iterator[tuple[list[str], Sequence[T]]]:
    """The collectors in their order with the nodes that run them at once, round by round."""
    alone = [collector for collector in SECONDS if collector in collectors and collector != TAKES_TURNS]
    if alone and targets:
        yield alone, targets
    if TAKES_TURNS in collectors:
        for first in range(0, len(targets), at_once):
            yield [TAKES_TURNS], targets[first : first + at_once]


def merged(before: NodeEvidence, evidence: NodeEvidence, collectors: Iterable[str]) -> NodeEvidence:
    """What a node told before, and what it tells of its load; one that is lost meanwhile leaves that to be said."""
    if not evidence.unreached:
        return replace(before, collectors={**before.collectors, **evidence.collectors})
    reason = evidence.unreached.value.replace("_", " ")
    lost = Collected(Status.BROKE, detail=f"the node answered before, and not under load: {reason}: {evidence.detail}")
    return replace(before, collectors={**before.collectors, **dict.fromkeys(collectors, lost)})


def program(collectors: Sequence[str], options: LoadOptions, on_stdin: bool = True) -> tuple[Program, str]:
    """The program that runs these collectors one after another, and the nonce that marks its answers."""
    nonce = new_nonce()
    modules = modules_for(f"{ROOM}.{name}" for name in ("run", *collectors))
    deadlines = {collector: options.deadline_s(collector) for collector in collectors}
    request = (deadlines, options.host_root, options.whole_s(collectors), options.settings, options.room)
    return started_by_shell(started(f"{ROOM}.run", modules, request), nonce, options.sudo, on_stdin), nonce
