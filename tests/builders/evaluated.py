"""The verdicts of all checks on a fake node, read by the real probe."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Sequence
from typing import Any

from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.benchmarks.load.asking import merged
from clusterproof.plugins.benchmarks.load.asking import program as load_program
from clusterproof.plugins.benchmarks.load.options import COLLECTORS, SECONDS
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node as FactsOfNode
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.transport import Answer, Program
from clusterproof.plugins.transport.gather import evidence_of
from tests.testbed.image import NodeImage
from tests.testbed.load import OPTIONS
from tests.testbed.node import Node, entered


def probed(
    image: NodeImage,
    name: str = "gpu001",
    collector_s: float = 5.0,
    beside: str = "",
    checkpoints: tuple[str, ...] = (),
    loads: Collection[str] = (),
) -> NodeEvidence:
    """The real probe's report on a fake node: every collector in one run, then in a second those that load the node.

    `beside` is a shell script that runs on the node during the probe, which starts after the script's first line.
    """
    to_run = program(collector_names(), ProbeOptions(collector_s=collector_s, checkpoints=checkpoints))
    with entered(image, name) as node:
        if beside:
            running = node.start(["/bin/sh", "-c", beside], stdout=subprocess.PIPE)
            assert running.stdout
            running.stdout.readline()
        evidence = _answered(node, to_run)
        if not loads:
            return evidence
        in_order = [collector for collector in SECONDS if collector in loads]
        return merged(evidence, _answered(node, load_program(in_order, OPTIONS)), in_order)


def minified_once() -> None:
    """Minify the collectors, so that the processes that this one forks from now on need not."""
    program(collector_names(), ProbeOptions())


def _answered(node: Node, to_run: Program) -> NodeEvidence:
    ran = node.run(["/bin/sh", "-c", to_run.command], input=to_run.stdin, timeout=600)
    return evidence_of(Target(node.name), Answer(output=ran.stdout + ran.stderr), to_run.nonce)


def results(
    evidence: NodeEvidence,
    occasion: str = "preflight",
    peers: Sequence[NodeEvidence] = (),
    policy: Policy = NO_POLICY,
    **target: Any,
) -> dict[str, Result]:
    """The result of every check on one node, by check id; `peers` are the other nodes of its group.

    Checks that only evaluate a load are left out if the node was not loaded, as in a run.
    """
    node = among(evidence, occasion, peers, policy, **target)
    return {name: evaluate(check, node) for name, check in asked_of(evidence).items()}


def result_of(
    check: str,
    evidence: NodeEvidence,
    *peers: NodeEvidence,
    occasion: str = "preflight",
    policy: Policy = NO_POLICY,
    is_part: bool = False,
    **target: Any,
) -> Result:
    """The result of one check on one node, compared with others of its group."""
    return evaluate(node_checks()[check], among(evidence, occasion, peers, policy, is_part, **target))


def among(
    evidence: NodeEvidence,
    occasion: str = "preflight",
    peers: Sequence[NodeEvidence] = (),
    policy: Policy = NO_POLICY,
    is_part: bool = False,
    **target: Any,
) -> FactsOfNode:
    """A node with this evidence among the others of its group; `is_part`: the inventory has more of them."""
    everyone = {own.node: own for own in (evidence, *peers)}
    cluster = Cluster("fakes", "local", tuple(Target(name, **target) for name in everyone), is_part=is_part)
    return nodes(cluster, everyone, occasion, policy)[evidence.node]


def asked_of(evidence: NodeEvidence) -> dict[str, Check]:
    """The checks that run on the node, by id: those of load only if it was loaded."""
    is_loaded = not COLLECTORS.isdisjoint(evidence.collectors)
    return {name: check for name, check in node_checks().items() if is_loaded or occasions(check) != ["perf"]}


def verdict_of(check: str, count: int = 1, **collectors: Any) -> Result:
    """The verdict on the first of `nodes` identical nodes that report this."""
    collected = {name: Collected(Status.READ, value) for name, value in collectors.items()}
    return result_of(check, *(NodeEvidence(f"node{number}", collected) for number in range(count)))


def expect(result: Result, verdict: Verdict, message: str) -> None:
    """Assert this verdict, and these words in its message."""
    assert result.verdict is verdict, result.message
    assert message in result.message
