"""Pairs of nodes by pods: a real mpirun that starts its ranks without ssh."""

from __future__ import annotations

import threading

import pytest

from clusterproof.plugins.benchmarks.launchers import MeterCampaign
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings
from clusterproof.plugins.benchmarks.meters.baseline import METERS
from clusterproof.plugins.evidence.pairs import Failure, NodeGroup, Reading
from clusterproof.plugins.suite.perf.pairs_planning import launcher_for
from clusterproof.plugins.transport import Unusable
from tests.benchmarks.launchers.launched import cluster_of, measured
from tests.kubernetes.perf import GPU, GPUS, GROUP, NAMES, PAIR, campaign, job, limits, measurement
from tests.kubernetes.programs import PODS
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_cluster, needs_kubernetes, needs_openmpi

pytestmark = [needs_kubernetes, needs_cluster, needs_openmpi]


@pytest.mark.parametrize("by", ["kubernetes", "agents"])
def test_ranks_of_nccl_tests_are_on_both_nodes(perf: Nodes, by: str) -> None:
    data = measurement(METERS["nccl-tests"], by, ranks_per_node=2, size_bytes=2**20)
    assert (data.problem, data.ranks, sorted(data.hosts), data.is_correct) == ("", 4, sorted(NAMES), True)
    assert perf.left() == []


def test_ranks_of_a_group_are_on_all_its_nodes(perf: Nodes) -> None:
    data = measurement(METERS["nccl-tests"], together=NodeGroup(GROUP), ranks_per_node=2, size_bytes=2**20)
    assert (data.problem, data.ranks, sorted(data.hosts), data.is_correct) == ("", 6, sorted(GROUP), True)
    assert f"mpirun --host {GROUP[2]}:2,{GROUP[0]}:2,{GROUP[1]}:2 -np 6" in data.command
    assert perf.left() == []


def test_of_a_group_only_the_node_is_named_that_a_job_has_taken(perf: Nodes) -> None:
    with job(perf, NAMES[0], 1) as name:
        data = measurement(METERS["nccl-tests"], together=NodeGroup(GROUP), ranks_per_node=1, size_bytes=2**20)
    words = f"{NAMES[0]} was not reached: by no fault of its own: busy: taken: 1 of {GPUS} {GPU} by {name}"
    assert data.problem == f"{words}; expected all free"
    assert (data.culprit, data.failure) == ("", Failure.NOT_AT_FAULT)
    assert perf.left() == []


def test_a_node_that_a_job_has_taken_meanwhile_is_not_held_responsible(perf: Nodes) -> None:
    with launcher_for(campaign(METERS["nccl-tests"], ranks_per_node=1, size_bytes=2**20)) as launcher:
        measured(launcher, [PAIR])
        with job(perf, NAMES[1], GPUS) as name:
            data = measured(launcher, [PAIR])[str(PAIR)]
    words = f"{NAMES[1]} did not answer: by no fault of its own: busy: taken: {GPUS} of {GPUS} {GPU} by {name}"
    assert words in data.problem
    assert (data.culprit, data.failure) == ("", Failure.NOT_AT_FAULT)
    assert perf.left() == []


def test_an_interrupted_round_is_ended_by_close(perf: Nodes) -> None:
    sleeping = Meter("sleeping", lambda *_: Reading(), server=lambda *_: "sleep 600", client=lambda *_: "sleep 600")
    launcher = launcher_for(campaign(sleeping, run_s=600.0))
    round_ = threading.Thread(target=lambda: measured(launcher, [PAIR]), daemon=True)
    round_.start()
    wait_until(lambda: len(of_the_round(perf)) == 2, "running")
    launcher.close()
    wait_until(lambda: not perf.left(), "clean")


def of_the_round(bed: Nodes) -> list[str]:
    """The pods that run a pair's ends: each the first of its own, where those that only ask are of one run."""
    names = [one["metadata"]["name"] for one in bed.plane.items(PODS) if one["status"].get("phase") == "Running"]
    return [name for name in names if name.endswith("-0")]


def test_elsewhere_the_launcher_is_refused() -> None:
    cluster = cluster_of(dict.fromkeys(NAMES, ""), "local")
    with pytest.raises(Unusable, match="the launcher pods is for clusters of Kubernetes"):
        launcher_for(MeterCampaign(METERS["iperf3"], MeterSettings(), cluster, limits()), "pods")
