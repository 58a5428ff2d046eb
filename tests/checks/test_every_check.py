"""What every check owes its reader, and that a run collects no more from a node than its checks need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterproof.plugins.agent.collectors import collector_names
from clusterproof.plugins.benchmarks.load.options import COLLECTORS
from clusterproof.plugins.catalog import owners
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.fact import ONLY_CAPTURED
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.recording import read_cluster
from clusterproof.plugins.inventory.recording import DEMO
from clusterproof.plugins.suite.all_checks import node_checks, occasions
from clusterproof.plugins.suite.check import Check
from clusterproof.plugins.suite.evaluate import evaluate
from clusterproof.plugins.transport.gather import replay

# Checks over logs of tests that no probe runs: not applicable where nobody has captured one, nor put it on the node.
CAPTURED = {
    "control_plane.slurm_nodes",
    "gpu.dcgm_diag",
    "network.nccl_correct",
    "network.nccl_transport",
    "neuron.nccom",
    "storage.fs_bandwidth",  # no folder was named to write into
}
CHECKS = [pytest.param(check, id=name) for name, check in node_checks().items()]


@pytest.fixture(scope="module")
def demo() -> dict[str, Node]:
    """The nodes of the demo cluster."""
    cluster = read_cluster(DEMO)
    return nodes(cluster, replay(DEMO, cluster))


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_says_what_it_finds_what_to_do_how_to_see_it_and_who_owns_it(check: Check) -> None:
    about = check.route
    assert about.title
    assert about.remedy
    assert about.evidence
    assert about.owner in {owner.name for owner in owners().values()}
    assert about.check == f"{about.subsystem}.{check.function.__name__.removeprefix('test_')}"
    assert occasions(check)


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_asks_only_for_collectors_that_there_are(check: Check) -> None:
    assert check.collectors <= set(collector_names()) | ONLY_CAPTURED | COLLECTORS


@pytest.mark.parametrize("check", CHECKS)
def test_the_collectors_found_for_a_check_are_all_that_it_reads(check: Check, demo: dict[str, Node]) -> None:
    for name, node in demo.items():
        fewer = {
            collector: data for collector, data in node.evidence.collectors.items() if collector in check.collectors
        }
        alone = Node(node.target, replace(node.evidence, collectors=fewer), group=node.group)
        whole, part = evaluate(check, node), evaluate(check, alone)
        if check.route.check != "node.evidence_complete":  # it looks at whatever collectors there are
            assert (part.verdict, part.message) == (whole.verdict, whole.message), name


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_passes_a_node_that_reported_nothing(check: Check, demo: dict[str, Node]) -> None:
    silent = Node(demo["gpu001"].target, NodeEvidence("gpu001"))
    spoke = {"node.reachable", "node.evidence_complete"}  # it answered, and nothing was asked
    if check.route.check not in spoke:
        says = Verdict.NOT_APPLICABLE if check.route.check in CAPTURED else Verdict.INCOMPLETE
        assert evaluate(check, silent).verdict is says


def test_a_finding_says_what_was_observed_and_what_was_expected(demo: dict[str, Node]) -> None:
    results = [evaluate(check, node) for check in node_checks().values() for node in demo.values()]
    found = [result for result in results if result.verdict in (Verdict.FAIL, Verdict.CONCERN)]
    assert len(found) > 10
    assert [result.message for result in found if not (result.observed and result.expected)] == []


def test_the_node_is_asked_for_little_before_a_job() -> None:
    needed = {name: check.collectors for name, check in node_checks().items() if "prolog" in occasions(check)}
    assert "mounts" in needed["host.dev_shm"]
    assert needed["network.memlock"] == {"limits", "rdma", "pci", "platform", "imds"}
    assert needed["node.reachable"] == set()
