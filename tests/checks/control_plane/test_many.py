"""A list that is too long for a message ends with how many more there are."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.evaluated import result_of
from tests.checks.control_plane.kubernetes_cluster import (
    FSX,
    HALF_AN_HOUR_AGO,
    NAMES,
    claim,
    healthy,
    held,
    node_in_kubernetes,
    pod,
    waiting,
)
from tests.checks.control_plane.kubernetes_fault import PLUGIN, ill, unbound, without_driver
from tests.checks.control_plane.kubernetes_verdicts import verdicts
from tests.checks.control_plane.slurm_faults import healthy as healthy_slurm
from tests.checks.network.given import roce_host, roce_port

STOPPED = {"InstanceGroupName": "workers", "InstanceStatus": {"Status": "Pending"}}


def message(check: str, names: list[str], **collectors: Any) -> str:
    """What a check of the cluster says of these nodes of HyperPod."""
    settings = {"arn": "arn:aws:sagemaker:us-west-2:1:cluster/c", "region": "us-west-2"}
    cluster = Cluster("c", "ssm", tuple(map(Target, names)), settings)
    data = {name: Collected(Status.READ, value) for name, value in collectors.items()}
    facts = ClusterFacts(cluster, NodeEvidence("c", data), nodes(cluster, {name: NodeEvidence(name) for name in names}))
    return evaluate(all_checks()[f"control_plane.{check}"], facts).message


def test_nodes_that_do_not_run_are_counted() -> None:
    every = [{"InstanceId": f"i-{number}", **STOPPED} for number in range(25)]
    text = message("nodes_running", ["a"], hyperpod={"InstanceGroups": []}, hyperpod_nodes={"nodes": every})
    assert "i-19 (workers) is Pending and 5 more; expected every node Running" in text


def test_the_image_that_one_node_has_is_counted_beside_many() -> None:
    images = [f"image-{min(number // 2, 6)}" for number in range(13)]
    every = [{"InstanceGroupName": "w", "CurrentImageReleaseVersion": image} for image in images]
    assert "2 of image-4 and 2 more" in message("image_uniform", ["a"], hyperpod_nodes={"nodes": every})


def test_nodes_that_slurm_does_not_know_are_counted() -> None:
    assert message("slurm_gres", ["x", "y", "z"], slurm=healthy_slurm()) == "Slurm knows no node x; and 2 more nodes"


def test_processes_outside_pods_are_counted() -> None:
    words = healthy()
    strays = [held("/user.slice", pid=100 + number) for number in range(12)]
    words.of_nodes[NAMES[1]]["nvml"]["gpus"][3]["processes"] = strays
    assert "process 109 (python), and 2 more belongs to no pod" in verdicts(words)["k8s_gpu_pods"].message


def test_containers_of_a_pod_are_counted() -> None:
    words = healthy()
    ill(words, PLUGIN, waiting("CrashLoopBackOff"))
    words.pod_of(PLUGIN, NAMES[1])["unready"] *= 3
    assert "CrashLoopBackOff and 1 more; expected" in verdicts(words)["k8s_system_pods"].message


@pytest.mark.parametrize("check", ["k8s_pending_gpu_pods", "k8s_volume_claims"])
def test_pods_that_wait_and_were_not_read_are_counted(check: str) -> None:
    words = healthy()
    words.kubernetes["k8s_pods"]["waiting_left_out"] = 7
    of_all = verdicts(words)
    assert of_all[check].message == "7 more pods waiting for accelerators not checked; expected fewer"
    assert of_all["k8s_system_pods"].verdict is Verdict.PASS


def test_a_pod_that_waits_for_long_does_not_hide_that_others_were_not_read() -> None:
    words = healthy()
    words.pods.append(pod("worker-9", phase="Pending", created=HALF_AN_HOUR_AGO, accelerators=8))
    words.kubernetes["k8s_pods"]["waiting_left_out"] = 7
    found = verdicts(words)["k8s_pending_gpu_pods"]
    assert "train/worker-9 has been pending for 30 min" in found.message
    assert "7 more pods waiting for accelerators not checked" in found.message
    assert found.verdict is Verdict.INCOMPLETE


def test_in_an_older_recording_every_pod_that_waits_was_read() -> None:
    words = healthy()
    del words.kubernetes["k8s_pods"]["waiting_left_out"]
    assert {check: result for check, result in verdicts(words).items() if result.verdict is Verdict.INCOMPLETE} == {}


def test_claims_that_were_not_read_hide_no_driver_that_a_node_lacks_and_no_claim_that_waits() -> None:
    words = healthy()
    without_driver(words, 2, FSX)
    unbound(words, claim("scratch", "Pending"), gates=0)
    words.pods[-1]["volume_claims"].append("not-read")
    words.storage["is_cut"] = True
    of_all = verdicts(words)
    assert of_all["k8s_storage"].verdict is Verdict.FAIL
    assert "gpu003: no CSI driver fsx.csi.aws.com, as 3 of 3 others" in of_all["k8s_storage"].message
    assert "train/scratch of train/worker-9" in of_all["k8s_volume_claims"].message
    assert "not-read" not in of_all["k8s_volume_claims"].message
    assert "there are more volumes than were read" in of_all["k8s_volume_claims"].message


def test_a_version_that_one_kubelet_has_is_counted_beside_many() -> None:
    words = healthy()
    more = [node_in_kubernetes(name) for name in ("gpu005", "gpu006")]
    words.kubernetes["k8s_nodes"]["nodes"] += more
    words.of_nodes.update({"gpu005": {}, "gpu006": {}})
    for number, listed in enumerate(words.nodes):
        listed["info"] = {**listed["info"], "kubelet": f"v1.{number}"}
    assert "v1.3 on 1 and 2 more; expected one version" in verdicts(words)["k8s_versions_uniform"].message


@pytest.mark.parametrize(("count", "end"), [(8, "mlx5_7 port 1: "), (10, "mlx5_7 port 1, and 2 more: ")])
def test_ports_that_lose_packets_are_counted(count: int, end: str) -> None:
    ports = [roce_port(number, pfc="0" * 8, notifies="0" * 8) for number in range(count)]
    assert f"{end}RoCE packets have priority" in result_of("network.roce_settings", roce_host(*ports)).message
