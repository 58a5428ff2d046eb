"""Runs the probe on all nodes of a cluster at once, and returns what every node answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, EvidenceError, NodeEvidence, Status, Unreached, load
from clusterproof.plugins.core.opened import Budget, read_whole
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.transport import Answer, Connection, Limits, Program, Unusable, begins_container

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from pathlib import Path

    from clusterproof.plugins.agent.parts import Parts

MAY_ANSWER = (None, Unreached.CUT, Unreached.GARBLED, Unreached.TIMED_OUT)  # another program may still succeed
COMMAND_FAILURES = (Unreached.CUT, Unreached.GARBLED, Unreached.LOST, Unreached.NO_PYTHON, Unreached.TIMED_OUT)
NOT_SAID = "its connection ended without an answer of it, or why there is none"
OnAnswer = Callable[[NodeEvidence], "NodeEvidence | None"]  # returns what to keep, if not the evidence itself


def gather(
    cluster: Cluster,
    connection: Connection,
    collectors: Iterable[str],
    options: ProbeOptions,
    limits: Limits,
    on_answer: OnAnswer,
    further: Sequence[Path] = (),
) -> dict[str, NodeEvidence]:
    """Probe every node once; `on_answer` is called for each answer, one at a time.

    `further` are files of third parties, each a collector that always runs. A node that does not answer has evidence
    too: every node of the cluster is in the result.
    """
    options = replace(options, max_characters=connection.carries(limits))
    if options.in_container or begins_container(limits.settings.get("srun_options", "")):
        on_answer = _of_container(on_answer)
    wanted = frozenset({*collectors, *(path.stem for path in further)})
    own = connection.program()
    if own:
        return probe_nodes(cluster, connection, own, limits, on_answer, wanted)
    from clusterproof.plugins.agent.parts import parts  # not needed by a prolog

    programs = parts(wanted, options, further, connection.takes_stdin, connection.longest_program(limits))
    if len(programs.programs) == 1 and not programs.left_out:
        return probe_nodes(cluster, connection, programs.programs[0][1], limits, on_answer, wanted)
    return _ask_for_each(cluster, connection, programs, limits, on_answer)


def _of_container(on_answer: OnAnswer) -> OnAnswer:
    """Treat output of the command that starts a container as coming from it, not from the node."""

    def answered(evidence: NodeEvidence) -> NodeEvidence:
        if evidence.unreached in COMMAND_FAILURES:
            evidence = replace(evidence, unreached=Unreached.NO_CONTAINER)
        return on_answer(evidence) or evidence

    return answered


def probe_nodes(
    cluster: Cluster,
    connection: Connection,
    to_run: Program,
    limits: Limits,
    on_answer: OnAnswer,
    collectors: Iterable[str] = (),
) -> dict[str, NodeEvidence]:
    """Run a program with these collectors on every node; `on_answer` takes each answer, one at a time."""
    import threading  # a prolog asks only one node

    gathered: dict[str, NodeEvidence] = {}
    lock, began = threading.Lock(), time.time()

    def answered(target: Target, answer: Answer) -> None:
        now = time.time()
        evidence = evidence_of(target, answer, to_run.nonce, collectors)
        requested_at = (now - answer.seconds if answer.seconds else began) - answer.age_s
        evidence = replace(evidence, asked=requested_at, answered=now)
        with lock:
            known = gathered.get(target.name)
            if not known or known.unreached:  # an answer stands where the connection then gives the node up
                gathered[target.name] = on_answer(evidence) or evidence

    connection.run(cluster.targets, to_run, limits, answered)
    for target in cluster.targets:
        if target.name not in gathered:
            answered(target, Answer(unreached=Unreached.LOST, detail=NOT_SAID))
    return gathered


def _ask_for_each(
    cluster: Cluster, connection: Connection, parts: Parts, limits: Limits, on_answer: OnAnswer
) -> dict[str, NodeEvidence]:
    """Run several programs on every node, one after another; a node that is not reached is not asked again.

    If the cluster becomes unusable, earlier answers are kept. Raises Unusable if there are none.
    """
    from clusterproof.plugins.agent.parts import joined

    answers: dict[str, list[NodeEvidence]] = {}
    gathered: dict[str, NodeEvidence] = {}

    def note(evidence: NodeEvidence) -> None:
        so_far = answers.setdefault(evidence.node, [])
        so_far.append(evidence)
        if len(so_far) == len(parts.programs) or evidence.unreached not in MAY_ANSWER:
            evidence_of_all = joined(so_far, parts)
            gathered[evidence.node] = on_answer(evidence_of_all) or evidence_of_all

    for collectors, to_run in parts.programs:
        rest = tuple(target for target in cluster.targets if target.name not in gathered)
        if not rest:
            break
        try:
            probe_nodes(replace(cluster, targets=rest), connection, to_run, limits, note, collectors)
        except Unusable as problem:
            if not answers:
                raise
            for target in rest:
                if target.name not in gathered:
                    note(NodeEvidence(target.name, unreached=Unreached.LOST, detail=str(problem)))
            break
    return gathered


def evidence_of(target: Target, answer: Answer, nonce: str, collectors: Iterable[str] = ()) -> NodeEvidence:
    """Decode one answer for these collectors strictly; a node whose answer cannot be decoded counts as not reached.

    If an answer was truncated, but not by a lost connection, its complete collectors are kept.
    """
    from clusterproof.plugins.agent.frame import decode

    evidence = decode(target.name, replace(answer, unreached=None), nonce)
    was_cut = not evidence.unreached and bool(evidence.detail)
    is_lost = answer.unreached not in (None, Unreached.CUT)
    if answer.unreached and (evidence.unreached or (was_cut and is_lost)):
        return NodeEvidence(
            target.name,
            unreached=answer.unreached,
            detail=answer.detail,
            seconds=answer.seconds,
            too_long=answer.too_long,
        )
    if not was_cut:
        return evidence  # a connection that breaks after the whole answer does no harm
    cut = Collected(Status.CUT, detail=answer.detail or evidence.detail, too_long=answer.too_long)
    return replace(evidence, collectors={**dict.fromkeys(collectors, cut), **evidence.collectors})


def replay(folder: Path, cluster: Cluster) -> dict[str, NodeEvidence]:
    """Read a recording: what every node of the cluster returned at the time."""
    return {evidence.node: evidence for evidence in replayed(folder, cluster)}


def replayed(folder: Path, cluster: Cluster) -> Iterator[NodeEvidence]:
    """Read a recording, node by node."""
    from clusterproof.plugins.evidence.recording import MAX_WHOLE_BYTES  # most runs read none

    budget = Budget(MAX_WHOLE_BYTES)
    for target in cluster.targets:
        yield _recorded(folder, target.name, budget)


def _recorded(folder: Path, node: str, budget: Budget) -> NodeEvidence:
    from clusterproof.plugins.evidence.recording import MAX_BYTES, recording_file

    path = folder / "nodes" / recording_file(node)
    try:
        text = read_whole(path, MAX_BYTES, folder)
        budget.take(len(text))
        recorded = load(text)
    except FileNotFoundError:
        return NodeEvidence(node, unreached=Unreached.UNRECORDED, detail=f"the recording has no {path.name}")
    except (OSError, EvidenceError) as problem:
        return NodeEvidence(node, unreached=Unreached.UNRECORDED, detail=f"{path.name}: {_why(problem)}")
    if recorded.node != node:
        return NodeEvidence(node, unreached=Unreached.UNRECORDED, detail=f"{path.name} is of {recorded.node!r:.60}")
    return recorded


def _why(problem: Exception) -> object:
    return getattr(problem, "strerror", None) or problem
