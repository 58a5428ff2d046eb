"""Verdicts on nodes (accepted, rejected, to be fixed, or open) and on the cluster.

Nothing is accepted without complete evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from clusterproof.plugins.accept import Failure, NodeRun
from clusterproof.plugins.accept.plan import SPEED
from clusterproof.plugins.accept.sequential import Decision
from clusterproof.plugins.accept.state import COLLECTIVES, AcceptanceState
from clusterproof.plugins.catalog import acceptance
from clusterproof.plugins.catalog.acceptance import Stage
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import HARDWARE_ACTIONS
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.perf.gpu_peers import UNKNOWN_WAYS

MAX_REASONS = 20
NOTED = "the inventory: "  # stands before what the inventory notes, such as nodes that it leaves out
MAX_SERIALS = 4  # serial numbers that are shown


class NodeVerdict(str, Enum):
    """The verdict on a node."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    TO_FIX = "to be fixed"
    OPEN = "open"


class ClusterVerdict(str, Enum):
    """The verdict on the cluster."""

    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not accepted"
    UNDECIDED = "undecided"


@record
class NodeOutcome:
    """One node's verdict and reasons; each reason of a failure names the folder of its evidence."""

    node: str
    said: NodeVerdict
    reasons: tuple[str, ...]
    concerns: tuple[str, ...]


@record
class ReachedNodes:
    """The nodes that a stage can measure: of all, and of those not rejected."""

    stage: Stage
    of_all: frozenset[str]
    left: frozenset[str]


def of_nodes(state: AcceptanceState) -> list[NodeOutcome]:
    """All nodes, in the order of the cluster."""
    reached = [_reached(stage, state) for stage in state.plan.stages]
    return [_outcome_of(node, state, reached) for node in state.nodes]


def outcome(
    state: AcceptanceState, outcomes: Sequence[NodeOutcome], is_as_bought: bool | None, stopped: str
) -> ClusterVerdict:
    """The cluster's verdict: any failure, missing evidence or open decision keeps it from being accepted."""
    of_nodes, of_others = (
        {node_outcome.said for node_outcome in outcomes},
        {other.result.verdict for other in state.others},
    )
    if is_as_bought is False or Verdict.FAIL in of_others or of_nodes & {NodeVerdict.REJECTED, NodeVerdict.TO_FIX}:
        return ClusterVerdict.NOT_ACCEPTED
    is_open = stopped or is_as_bought is None or Verdict.INCOMPLETE in of_others or of_nodes != {NodeVerdict.ACCEPTED}
    return ClusterVerdict.UNDECIDED if is_open else ClusterVerdict.ACCEPTED


def failed(node: str, state: AcceptanceState) -> tuple[str, ...]:
    """The failures of a node, those that reject it first, with the folders of the evidence."""
    failures = sorted(state.failures.get(node, []), key=lambda failure: not _is_of_hardware(failure, state))
    return _counted([f"{failure.check}: {failure.words} ({failure.folder})" for failure in failures])


def _is_of_hardware(failure: Failure, state: AcceptanceState) -> bool:
    """Whether a failure rejects its node: it asks for other hardware or a reset, or was found under load."""
    under_load = {stage.name for stage in state.plan.stages if stage.is_load}
    return failure.action in HARDWARE_ACTIONS or failure.stage in under_load


def _counted(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first of these reasons, and how many more there are."""
    more = [f"{len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
    return (*reasons[:MAX_REASONS], *more)


def _reached(stage: Stage, state: AcceptanceState) -> ReachedNodes:
    of_all = state.measured_in(stage, state.nodes)
    return ReachedNodes(stage, of_all, state.measured_in(stage, state.kept) if state.out else of_all)


def _outcome_of(node: str, state: AcceptanceState, reached: Sequence[ReachedNodes]) -> NodeOutcome:
    concerns = list(dict.fromkeys(_last_messages(node, state, Verdict.CONCERN)))
    failures = state.failures.get(node, [])
    if failures:
        is_of_hardware = any(_is_of_hardware(failure, state) for failure in failures)
        verdict = NodeVerdict.REJECTED if is_of_hardware else NodeVerdict.TO_FIX
        return NodeOutcome(node, verdict, failed(node, state), _counted(concerns))
    missing = tuple(dict.fromkeys((*_unsettled(node, state), *_missing(node, state, reached))))
    if missing:
        return NodeOutcome(node, NodeVerdict.OPEN, _counted(missing), _counted(concerns))
    in_some_runs = dict.fromkeys(_last_messages(node, state, Verdict.INCOMPLETE))
    return NodeOutcome(node, NodeVerdict.ACCEPTED, (), _counted([*concerns, *in_some_runs]))


def _last_messages(node: str, state: AcceptanceState, verdict: Verdict) -> Iterator[str]:
    """The last message of each check with this verdict, and in how many runs it occurred."""
    for (_, check), results in state.results_of(node).items():
        parts = [part for result in results for part in result.by_verdict if part.verdict is verdict]
        if parts:
            times = f"in {len(parts)} of {len(results)} runs: " if len(parts) < len(results) else ""
            yield f"{check}: {times}{parts[-1].message}"


def _unsettled(node: str, state: AcceptanceState) -> Iterator[str]:
    if node in state.unsettled:
        seen_identities = [
            of for seen in (*state.earlier[node], state.seen.get(node)) if seen for of in (_identity(seen),) if of
        ]
        named = ", ".join([*dict.fromkeys(seen_identities)][-MAX_SERIALS:])
        yield (
            f"it is another machine, or has other GPUs, in each run ({named}); expected the same: --again, once it is"
        )


def _identity(seen: NodeRun) -> str:
    return seen.machine.instance_id or seen.machine.serial or next((gpu.uuid for gpu in seen.machine.gpus), "")


def _missing(node: str, state: AcceptanceState, reached: Sequence[ReachedNodes]) -> Iterator[str]:
    """What keeps a node without failures from being accepted."""
    for of_stage in reached:
        if node in of_stage.of_all:
            yield from _missing_in(of_stage, node, state)
    seen = state.seen.get(node)
    for other in state.of_others:
        if other.speaks_of(node) and other.result.verdict is not Verdict.CONCERN:
            verdict = "failed" if other.result.verdict is Verdict.FAIL else "incomplete"
            yield f"{other.result.check}: {other.result.node} {verdict}: {other.result.message} ({other.folder})"
    for (_, name, what), population, own in state.populations.judged_populations(node, seen.kind) if seen else ():
        title = f"{acceptance.measures()[name].title}, {what}"
        if population.reference is None and not population.is_learned:
            yield f"{title}: too few runs so far to say what is usual"
        elif population.reference is None:
            yield f"{title}: too few nodes of its kind to say what is usual, and the plan has no floor"
        elif not own:
            yield f"{title}: not measured on it, and on others of its kind"
        elif any(judged.decision is not Decision.GOOD for judged in own):
            worst = min(own, key=lambda judged: (judged.decision is Decision.GOOD, judged.share))
            why = "at unknown distances" if UNKNOWN_WAYS in what else "in this noise"
            where = population.group_note(node)
            of_all = f"{where}, and {worst.of_all:.1%} of what is usual elsewhere," if where else ""
            yield f"{title}: {worst.share:.1%} of the usual{of_all} in {worst.runs} runs, which decides nothing {why}"


def _missing_in(reached: ReachedNodes, node: str, state: AcceptanceState) -> Iterator[str]:
    stage = reached.stage
    runs = state.runs[stage.name][node]
    least = state.plan.errors.least_runs if stage.is_repeated else 1
    if runs < least:
        why = ": too few nodes are left that did not fail" if node not in reached.left else ""
        yield f"{stage.title}: {runs} of {least} runs{why}"
        return
    own = {check: results for (name, check), results in state.results_of(node).items() if name == stage.name}
    proven = False
    for check, results in own.items():
        known = [result for result in results if result.verdict is not Verdict.INCOMPLETE]
        proven = proven or any(result.verdict in (Verdict.PASS, Verdict.CONCERN) for result in known)
        if len(known) < least:
            unknown = next((result.message for result in results if result.verdict is Verdict.INCOMPLETE), None)
            yield f"{check}: {f'incomplete: {unknown}' if unknown is not None else f'{len(known)} of {least} runs'}"
        if failed := [result for result in known if result.verdict is Verdict.FAIL]:
            yield f"{check}: failed in {len(failed)} of {len(known)} runs: {failed[0].message}"
    if not proven:
        yield f"{stage.title}: nothing of it applied to this node, or could be measured"


def left_out(state: AcceptanceState) -> Iterator[str]:
    """The stages that no run of this acceptance is to have, and why."""
    for name, row in acceptance.stages().items():
        if name not in {stage.name for stage in state.plan.stages}:
            yield f"{row.title}: the plan leaves it out"
        elif why := state.why_nothing_to_measure(row):
            yield f"{row.title}: {why}"


def not_covered(state: AcceptanceState) -> Iterator[str]:
    """What this acceptance does not prove, in words."""
    yield from (f"{NOTED}{printable(note, len(note))}" for note in state.notes)
    yield from left_out(state)
    largest = state.plan.largest_group(len(state.nodes))
    if COLLECTIVES in {stage.name for stage in state.plan.stages} and 0 < largest < len(state.nodes):
        yield f"{acceptance.stages()[COLLECTIVES].title}: on {largest} nodes at most, as the plan loads no more at once"
    measured = {name for _, name, _ in state.populations.by_key}
    if SPEED in {stage.name for stage in state.plan.stages}:
        yield from (
            f"{row.title}: measured on no node" for name, row in acceptance.measures().items() if name not in measured
        )
    yield from acceptance.not_covered()
