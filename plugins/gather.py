"""One probe per node, all nodes at once: from a cluster to what every node told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from clusterproof.plugins.connection import Answer, Connection, Limits, Program
from clusterproof.plugins.evidence import EvidenceError, NodeEvidence, Unreached, load
from clusterproof.plugins.inventory.model import Cluster, Target
from clusterproof.plugins.inventory.recording import recording_file
from clusterproof.plugins.probe.options import ProbeOptions

Told = Callable[[NodeEvidence], None]


def gather(
    cluster: Cluster,
    connection: Connection,
    leaves: Iterable[str],
    options: ProbeOptions,
    limits: Limits,
    told: Told,
    further: Sequence[Path] = (),
) -> dict[str, NodeEvidence]:
    """Probe every node once; `told` is called for each as it answers, one at a time.

    `further` are files of third parties, each a leaf that is always read. A node that does not answer is evidence too:
    every node of the cluster is in the result.
    """
    on_stdin = getattr(connection, "takes_stdin", True)
    program = getattr(connection, "program", None) or _payload
    to_run, nonce = program({*leaves, *(path.stem for path in further)}, options, further, on_stdin)
    return ask(cluster, connection, to_run, nonce, limits, told)


def ask(
    cluster: Cluster, connection: Connection, to_run: Program, nonce: str, limits: Limits, told: Told
) -> dict[str, NodeEvidence]:
    """Run a program on every node; `told` is called with what each answers, one at a time."""
    gathered: dict[str, NodeEvidence] = {}
    lock = threading.Lock()

    def answered(target: Target, answer: Answer) -> None:
        evidence = evidence_of(target, answer, nonce)
        with lock:
            gathered[target.name] = evidence
            told(evidence)

    connection.run(cluster.targets, to_run, limits, answered)
    return gathered


def _payload(
    leaves: Iterable[str], options: ProbeOptions, further: Sequence[Path], on_stdin: bool
) -> tuple[Program, str]:
    """The probe packed up for a machine that has nothing of it."""
    from clusterproof.plugins.probe.payload import program  # a replayed run needs no payload

    return program(leaves, options, further, on_stdin)


def evidence_of(target: Target, answer: Answer, nonce: str) -> NodeEvidence:
    """What one answer says, decoded strictly; what cannot be decoded is a node that was not reached."""
    from clusterproof.plugins.probe.frame import decode

    told = decode(target.name, replace(answer, unreached=None), nonce)
    if answer.unreached and told.unreached:  # a connection that breaks after the whole answer came does no harm
        return NodeEvidence(target.name, unreached=answer.unreached, detail=answer.detail, seconds=answer.seconds)
    return told


def replay(folder: Path, cluster: Cluster) -> dict[str, NodeEvidence]:
    """Read a recording: what every node of the cluster told then."""
    return {target.name: _recorded(folder, target.name) for target in cluster.targets}


def _recorded(folder: Path, node: str) -> NodeEvidence:
    path = folder / "nodes" / recording_file(node)
    try:
        told = load(path.read_bytes())
    except FileNotFoundError:
        return NodeEvidence(node, unreached=Unreached.LOST, detail=f"the recording has no {path.name}")
    except (OSError, EvidenceError) as problem:
        return NodeEvidence(node, unreached=Unreached.GARBLED, detail=f"{path.name}: {problem}")
    if told.node != node:
        return NodeEvidence(node, unreached=Unreached.GARBLED, detail=f"{path.name} is of {told.node!r:.60}")
    return told
