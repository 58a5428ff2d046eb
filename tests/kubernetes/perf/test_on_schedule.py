"""Measurements on a schedule: what their account may do suffices."""

from __future__ import annotations

import pytest

from clusterproof.plugins.benchmarks.meters.selection import METERS
from tests.kubernetes.load_account import granted
from tests.kubernetes.perf import NAMES, measurement
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.needs import needs_cluster, needs_kubectl, needs_openmpi


@needs_kubectl
@needs_cluster
@needs_openmpi
def test_pairs_are_measured_by_its_account(perf: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    with granted(perf) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        reading = measurement(METERS["nccl-tests"], "agents", ranks_per_node=2, size_bytes=2**20)
    assert (reading.problem, reading.ranks, sorted(reading.hosts), reading.is_correct) == ("", 4, sorted(NAMES), True)
    assert perf.left() == []
