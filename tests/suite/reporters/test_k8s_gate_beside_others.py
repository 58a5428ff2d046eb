"""A gate's verdicts on nodes that fail only in comparison, when logs were read at different times."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evaluation.evaluate import verdict_on
from clusterproof.plugins.evaluation.index import load, make_index
from clusterproof.plugins.evidence.node import HEALTH_CHECK
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.kubernetes.gate import GateSettings
from clusterproof.plugins.kubernetes.gate.round import pop_stored
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome
from clusterproof.plugins.suite.reporters import k8s_gate
from clusterproof.plugins.suite.reporters.k8s_gate import K8sGateReporter
from clusterproof.plugins.suite.state import NODES
from clusterproof.plugins.transport.gather import replayed
from tests.builders.runs import ROOT

NAMES = [f"n{number}" for number in range(8)]
CHECKS = ("network.ib_ports", "gpu.gpu_count")
Evidence = Mapping[str, NodeEvidence]


@pytest.fixture(scope="module")
def whole() -> NodeEvidence:
    """A node with eight GPUs and eight InfiniBand ports at 400 Gb/s, which is no instance."""
    evidence = next(iter(replayed(ROOT / "fixtures" / "demo", resolve("demo"))))
    collectors = {name: deepcopy(collected) for name, collected in evidence.collectors.items()}
    collectors |= {"imds": Collected(Status.ABSENT), "resource_config": Collected(Status.ABSENT)}
    for number, device in enumerate(collectors["rdma"].value["devices"]):
        device |= {"name": f"mlx5_{number}", "driver": "mlx5_core", "vendor": "15b3", "device": "1021"}
        device["ports"][0] |= {"link_layer": "InfiniBand", "link_downed": 0, "symbol_errors": 0}
    collectors["rdma"].value["devices"] = collectors["rdma"].value["devices"][:8]
    return at_rate(replace(evidence, collectors=collectors), "400 Gb/sec (4X NDR)")


def at_rate(evidence: NodeEvidence, rate: str) -> NodeEvidence:
    collectors = {name: deepcopy(collected) for name, collected in evidence.collectors.items()}
    for device in collectors["rdma"].value["devices"]:
        device["ports"][0]["rate"] = rate
    return replace(evidence, collectors=collectors)


def slow(evidence: NodeEvidence) -> NodeEvidence:
    return at_rate(evidence, "200 Gb/sec (4X HDR)")


def without_gpu(evidence: NodeEvidence) -> NodeEvidence:
    collectors = {name: deepcopy(collected) for name, collected in evidence.collectors.items()}
    collectors["nvml"].value["gpus"].pop()
    collectors["nvml"].value["count"] = len(collectors["nvml"].value["gpus"])
    return replace(evidence, collectors=collectors)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A gate's round over these reports: the status of each node written, and its lines."""
    written: list[Mapping[str, Any]] = []
    monkeypatch.setattr(k8s_gate, "open_api", lambda _: None)
    monkeypatch.setattr(k8s_gate, "write", lambda *given: written.append(given[2]) or WriteOutcome(("written",), ()))
    index = make_index()

    def one(evidence: Evidence) -> tuple[dict[str, str], str]:
        cluster = Cluster("k8s:bed", "agents", tuple(map(Target, evidence)))
        every = nodes(cluster, evidence, HEALTH_CHECK, NO_POLICY)
        plugins = SimpleNamespace(get_plugin=lambda _: SimpleNamespace(broken=0, raised=None))
        config = SimpleNamespace(
            option=SimpleNamespace(k8s_keep=str(tmp_path), k8s_evidence=None),
            pluginmanager=plugins,
            stash={NODES: every},
        )
        session: Any = SimpleNamespace(config=config, shouldfail="", shouldstop="", exitstatus=1)
        reporter = K8sGateReporter.__new__(K8sGateReporter)
        reporter.orders, reporter.cluster, reporter.began = GateSettings(), cluster, 1000.0
        reporter.results = [
            verdict_on(NO_POLICY, load(index[name]), node) for name in CHECKS for node in every.values()
        ]
        reporter.pytest_sessionfinish(session)
        left = pop_stored(tmp_path)
        assert left
        return {name: health.status for name, health in written[-1].items()}, "\n".join(left.lines)

    return one


def of(*some: NodeEvidence) -> Evidence:
    return {name: replace(evidence, node=name) for name, evidence in zip(NAMES, some, strict=True)}


def test_nodes_that_all_changed_are_never_false_however_many_of_their_logs_were_read_again(
    rounds: Any, whole: NodeEvidence
) -> None:
    mixed, lines = rounds(of(*[whole] * 6, *[slow(whole)] * 2))
    assert mixed == dict.fromkeys(NAMES[:6], "True")
    assert "n[6-7]: NetworkIbPorts only beside other nodes, whose reports may be older or newer" in lines
    anew, _ = rounds(of(*[whole] * 8))
    assert anew == dict.fromkeys(NAMES, "True")


@pytest.mark.long
def test_a_node_that_still_fails_beside_others_once_all_logs_were_read_anew_is_false_and_stays_so(
    rounds: Any, whole: NodeEvidence
) -> None:
    seen = of(*[whole] * 7, slow(whole))
    statuses = [rounds(seen)[0].get("n7") for _ in range(3)]
    assert statuses == [None, "False", "False"]


def test_what_a_node_reports_by_itself_makes_it_false_at_once(rounds: Any, whole: NodeEvidence) -> None:
    statuses, lines = rounds(of(*[whole] * 7, without_gpu(whole)))
    assert statuses == {**dict.fromkeys(NAMES[:7], "True"), "n7": "False"}
    assert "only beside" not in lines


def test_another_node_that_fails_beside_others_later_is_waited_for_as_well(rounds: Any, whole: NodeEvidence) -> None:
    rounds(of(*[whole] * 7, slow(whole)))
    statuses, _ = rounds(of(*[whole] * 6, slow(whole), slow(whole)))
    assert (statuses.get("n6"), statuses["n7"]) == (None, "False")
