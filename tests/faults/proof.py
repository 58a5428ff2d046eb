"""Injects a fault into a node among healthy ones, and reports which verdicts it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from clusterproof.integrations.slurm.checking import prepared
from clusterproof.integrations.slurm.settings import Settings
from clusterproof.plugins.benchmarks.load.options import COLLECTORS
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import verdict_on
from clusterproof.plugins.evaluation.index import make_index, of_occasions
from tests.builders.evaluated import among, probed, results
from tests.faults.fault import Fault
from tests.testbed.image import NodeImage
from tests.testbed.load import LOADABLE
from tests.testbed.needs import needs_nodes

if TYPE_CHECKING:
    from clusterproof.plugins.evaluation.index import Entry

NODE, PEERS = "gpu001", ("gpu002", "gpu003", "gpu004")
BOOT_ID = "b3f1c2d4-0000-4000-8000-0000000000"  # of a peer, followed by its number


@cache
def healthy(base: Callable[[], NodeImage]) -> NodeEvidence:
    """The evidence of the healthy node that a fault is injected into."""
    return probed(base(), NODE, loads=COLLECTORS if base in LOADABLE else ())


@cache
def verdicts_of_healthy(base: Callable[[], NodeImage]) -> dict[str, Verdict]:
    """Every check's verdict on it, compared with its peers."""
    return {name: result.verdict for name, result in results(healthy(base), peers=peers(base)).items()}


def peers(base: Callable[[], NodeImage]) -> list[NodeEvidence]:
    """The healthy nodes beside it."""
    return peers_of(healthy(base))


def peers_of(evidence: NodeEvidence) -> list[NodeEvidence]:
    """Healthy nodes like this one."""
    return [_another_machine(replace(evidence, node=name), number) for number, name in enumerate(PEERS, 1)]


def _another_machine(evidence: NodeEvidence, number: int) -> NodeEvidence:
    """Give it a boot ID, and its interface addresses, that no other node has."""
    naming, boot = evidence.collectors["naming"], evidence.collectors["boot"]
    address = {"name": "ens32", "driver": "ena", "mac": f"0a:53:00:00:00:{number:02x}", "ipv4": f"10.1.2.{number}"}
    return replace(
        evidence,
        collectors={
            **evidence.collectors,
            "naming": replace(naming, value={**naming.value, "addresses": [address]}),
            "boot": replace(boot, value={**boot.value, "boot_id": f"{BOOT_ID}{number:02x}"}),
        },
    )


def reason_to_skip(fault: Fault) -> str:
    """Why this machine cannot inject the fault, or empty."""
    needed = (needs_nodes, *fault.marks)
    return next((mark.kwargs["reason"] for mark in needed if mark.name == "skipif" and mark.args[0]), "")


def evidence_of(fault: Fault) -> NodeEvidence:
    """The evidence of a node with the fault."""
    evidence = probed(
        fault.put(fault.base()), NODE, fault.collector_s, fault.beside, fault.policy.checkpoints, fault.loads
    )
    if fault.base not in LOADABLE:
        return evidence
    loads = {name: collector for name, collector in healthy(fault.base).collectors.items() if name in COLLECTORS}
    return replace(evidence, collectors=loads | dict(evidence.collectors))


def changes(fault: Fault, evidence: NodeEvidence | None = None) -> dict[str, Result]:
    """The results of checks whose verdict the fault changes, by check id; `evidence` is the node's evidence."""
    by_check = results(evidence or evidence_of(fault), fault.occasion, peers(fault.base), fault.policy)
    before = verdicts_of_healthy(fault.base)
    return {name: result for name, result in by_check.items() if result.verdict is not before[name]}


def differing_checks(fault: Fault, evidence: NodeEvidence) -> tuple[str, ...]:
    """The ids of checks whose results differ between Slurm's scripts, which run them from the index, and pytest."""
    differing: list[str] = []
    for occasion in ("prolog", "epilog"):
        entries = of_occasions(index(), (occasion,))
        by_index = prepared(entries.values(), (occasion,), Settings(), fault.policy)(evidence)
        node = among(evidence, occasion, policy=fault.policy)
        by_suite = [verdict_on(fault.policy, node_checks()[name], node) for name in entries]
        pairs = zip(by_index, by_suite, strict=True)
        differing += [result.check for result, other in pairs if replace(result, duration_s=other.duration_s) != other]
    return tuple(differing)


@cache
def index() -> Mapping[str, Entry]:
    """The checks' current index."""
    return make_index()
