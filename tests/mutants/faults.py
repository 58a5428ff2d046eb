"""Cases from the fault matrix: every fault, and every node and capture that faults are injected into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TypeAlias

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.evaluated import among, asked_of, minified_once
from tests.faults import ALL_FAULTS, proof
from tests.faults.captured_fault import NODE, CapturedFault, read
from tests.faults.fault import Fault
from tests.mutants.cases import Case
from tests.testbed.image import NodeImage

AnyFault: TypeAlias = "Fault | CapturedFault"


def begin(executor: Executor, chosen: Iterable[AnyFault]) -> dict[str, Future[NodeEvidence]]:
    """Start collecting each fault's evidence, in the executor's processes."""
    minified_once()
    faults = [fault for fault in chosen if isinstance(fault, Fault) and not proof.reason_to_skip(fault)]
    return {fault.name: executor.submit(_evidence_of, fault.name) for fault in faults}


def _evidence_of(name: str) -> NodeEvidence:
    return proof.evidence_of(next(fault for fault in ALL_FAULTS if fault.name == name and isinstance(fault, Fault)))


def cases(evidence_by_name: dict[str, Future[NodeEvidence]], chosen: Sequence[AnyFault]) -> Iterator[Case]:
    """The chosen faults' cases, from what `begin` started."""
    bases: dict[Callable[[], NodeImage], None] = {}
    for fault in chosen:
        if isinstance(fault, CapturedFault):
            yield _of_files(fault)
        elif fault.name in evidence_by_name:
            bases[fault.base] = None
            yield _of_fault(fault, evidence_by_name[fault.name].result())
    for base in bases:
        evidence = proof.healthy(base)
        yield Case(f"a healthy {base.__name__}", among(evidence, peers=proof.peers(base)), asked_of(evidence))
    for files in {
        id(captured.healthy): captured for captured in chosen if isinstance(captured, CapturedFault)
    }.values():
        yield _of_files(CapturedFault("a healthy collection", {}, {}, "", files.healthy))


def _of_fault(fault: Fault, evidence: NodeEvidence) -> Case:
    node = among(evidence, fault.occasion, proof.peers(fault.base), fault.policy)
    return Case(fault.name, node, asked_of(evidence), {next(iter(fault.expect)): fault.words})


def _of_files(fault: CapturedFault) -> Case:
    files = {name: text for name, text in {**fault.healthy, **fault.files}.items() if text}
    cluster, evidence = read(files)
    node = nodes(cluster, {NODE: evidence})[NODE]
    return Case(fault.name, node, node_checks(), dict.fromkeys(list(fault.expect)[:1], fault.words))
