"""A real API server's answers about nodes and pods, and the checks' results on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.kubernetes import facts_cluster as places
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS, NODES, PODS, SLICES, STORAGE
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.kubernetes.collectors import ask
from tests.builders.runs import ROOT, Runs
from tests.kubernetes.control_plane import LAYER, P5, cluster_facts, expect, p5, pods, says
from tests.kubernetes.extensions import KUEUE, kueue, served
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubernetes

pytest_plugins = ["pytester"]
pytestmark = needs_kubernetes
OF_STORAGE = ("persistentvolumeclaims", "persistentvolumes", "csinodes", "storageclasses")
NEEDED_BY = {"nodes": NODES, "pods": PODS, "resourceslices": SLICES, **dict.fromkeys(OF_STORAGE, STORAGE)}
CHECKS = str(ROOT / "checks" / "control_plane")


def test_healthy_nodes_have_what_their_type_has(kubernetes: Bed) -> None:
    with p5(kubernetes, "gpu011", "gpu012"):
        facts = cluster_facts()
    assert {name: collected.status for name, collected in facts.collectors.items()} == dict.fromkeys(
        COLLECTORS, Status.READ
    )
    for check in ("k8s_gpu_allocatable", "k8s_topology_labels", "k8s_pod_shm", "k8s_pending_gpu_pods"):
        expect(says(check, facts), Verdict.PASS)
    expect(says("k8s_queues", facts), Verdict.NOT_APPLICABLE, "Kueue is not installed")
    expect(says("hyperpod_node_health", facts), Verdict.NOT_APPLICABLE)
    assert places.network_layers(facts) == dict.fromkeys(("gpu011", "gpu012"), ("nn-1", "nn-2", "nn-3"))
    assert places.zones(facts) == dict.fromkeys(("gpu011", "gpu012"), "us-west-2a")


def test_a_node_without_a_kubelet_is_not_ready_in_kubernetes_words(kubernetes: Bed) -> None:
    with kubernetes.node("gpu011", ready="False", reason="KubeletNotReady", message="no network", capacity=P5):
        expect(says("k8s_node_ready", cluster_facts()), Verdict.FAIL, "gpu011: Ready is ")


def test_a_cordon_and_a_taint_are_reported(kubernetes: Bed) -> None:
    with p5(kubernetes, "gpu011", "gpu012", "gpu013"):
        kubernetes.plane.patch("/api/v1/nodes/gpu011", {"spec": {"unschedulable": True}})
        odd = {"key": "site/hold", "effect": "NoSchedule"}
        kubernetes.plane.patch("/api/v1/nodes/gpu012", {"spec": {"taints": [odd]}})
        result = says("k8s_node_takes_pods", cluster_facts())
    expect(result, Verdict.FAIL, "gpu011: it is cordoned")
    expect(result, Verdict.FAIL, "gpu012: taint site/hold:NoSchedule")
    assert "gpu013" not in result.message


def test_fewer_devices_than_the_type_has_are_reported(kubernetes: Bed) -> None:
    with p5(kubernetes, "gpu011"), p5(kubernetes, "gpu012", capacity={**P5, "nvidia.com/gpu": "0"}):
        kubernetes.plane.patch("/api/v1/nodes/gpu011/status", {"status": {"allocatable": {"nvidia.com/gpu": "7"}}})
        result = says("k8s_gpu_allocatable", cluster_facts())
    expect(result, Verdict.FAIL, "gpu011: 7 of 8 nvidia.com/gpu allocatable")
    expect(result, Verdict.FAIL, "gpu012: 0 GPUs allocatable; expected 8")


def test_devices_that_are_offered_by_claims_count(kubernetes: Bed) -> None:
    devices = [{"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}}} for n in range(8)]
    pool = {"name": "gpu011", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "gpu011", "pool": pool, "devices": devices}
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    with p5(kubernetes, "gpu011", capacity={}):
        expect(says("k8s_gpu_allocatable", cluster_facts()), Verdict.FAIL, "0 GPUs allocatable")
        kubernetes.plane.call("POST", slices, {"metadata": {"name": "gpu011-gpus"}, "spec": spec})
        try:
            expect(says("k8s_gpu_allocatable", cluster_facts()), Verdict.PASS)
        finally:
            kubernetes.plane.call("DELETE", f"{slices}/gpu011-gpus")


def test_labels_of_hyperpod_are_read(kubernetes: Bed) -> None:
    labels = {"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReboot"}
    with p5(kubernetes, "hyperpod-i-0123456789abcdef0", labels=labels):
        expect(
            says("hyperpod_node_health", cluster_facts()),
            Verdict.FAIL,
            "UnschedulablePendingReboot; expected Schedulable",
        )


def test_pods_are_read_as_the_api_server_has_them(kubernetes: Bed) -> None:
    eight = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    shm = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    memory = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    crashing = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    state = {"name": "main", "ready": False, "restartCount": 9, "image": "x", "imageID": "", "state": crashing}
    added = (
        ("bare", {"nodeName": "gpu011", "container": eight}, {"phase": "Running"}),
        ("roomy", {"nodeName": "gpu011", "container": {**eight, **shm}, "volumes": memory}, {"phase": "Running"}),
        ("plugin", {"nodeName": "gpu011", "owner": "nvidia-device-plugin"}, {"containerStatuses": [state]}),
        ("waits", {"container": eight, "schedulerName": "nobody"}, None),
        ("ended", {"nodeName": "gpu011", "container": eight}, {"phase": "Succeeded"}),
        ("other", {"nodeName": kubernetes.machine.name, "schedulerName": "nobody"}, None),
    )
    with p5(kubernetes, "gpu011"), pods(kubernetes, *added):
        facts = cluster_facts()
    by_name = {pod.pod: pod for pod in facts.kubernetes_pods}
    assert by_name.keys() == {"bare", "roomy", "plugin", "waits"}
    assert {name: (pod.gpus, pod.shm) for name, pod in by_name.items()} == {
        "bare": (8, ""),
        "roomy": (8, "memory"),
        "plugin": (0, ""),
        "waits": (8, ""),
    }
    assert [container.description for container in by_name["plugin"].unready] == [
        "main: CrashLoopBackOff (back-off), 9 restarts"
    ]
    expect(says("k8s_pod_shm", facts), Verdict.CONCERN, "clusterproof/bare with 8 GPUs; expected memory at /dev/shm")


@pytest.mark.parametrize("lacked", NEEDED_BY)
def test_a_right_that_is_lacked_costs_its_collector_and_the_words_say_which(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, lacked: str
) -> None:
    user, token = kubernetes.granted(without=("list", lacked))
    with p5(kubernetes, "gpu011"):
        cluster = resolve("k8s:bed")
        monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
        answers = ask(cluster, (NODES, PODS, SLICES, STORAGE))
    (denied,) = [name for name, answer in answers.items() if answer.status is not Status.READ]
    assert denied == NEEDED_BY[lacked]
    assert answers[denied].status is Status.DENIED
    assert f'User "{user}" cannot list resource "{lacked}"' in answers[denied].detail
    needed = "pvc, pv, csinodes and storageclasses" if lacked in OF_STORAGE else lacked
    assert f"expected a ClusterRole that may list {needed}" in answers[denied].detail


def test_flavors_of_kueue_are_compared_with_nodes_by_the_api_server(kubernetes: Bed) -> None:
    levels = {"levels": [{"nodeLabel": f"{LAYER}3"}, {"nodeLabel": "kubernetes.io/hostname"}]}
    flavors: list[tuple[str, dict[str, Any]]] = [
        ("h100", {"nodeLabels": {"eks.amazonaws.com/nodegroup": "train"}, "topologyName": "rack"}),
        ("gone", {"nodeLabels": {"pool": "gone"}}),
    ]
    with (
        p5(kubernetes, "gpu011"),
        p5(kubernetes, "gpu012", labels={f"{LAYER}3": None}),
        kueue(kubernetes, resourceflavors=flavors, topologies=[("rack", levels)]),
    ):
        before = cluster_facts()
        kubernetes.plane.call("DELETE", f"/apis/{KUEUE}/v1beta1/topologies/rack")
        after = cluster_facts()
    message = f"gone (pool=gone) matches no node, h100: 1 of 2 nodes without {LAYER}3 (gpu012); expected"
    expect(says("k8s_queues", before), Verdict.CONCERN, message)
    expect(says("k8s_queues", after), Verdict.FAIL, "h100 names the topology rack, which does not exist")


def test_a_node_whose_imex_daemon_is_not_ready_is_named_with_its_compute_domain(kubernetes: Bed) -> None:
    group, kind = "resource.nvidia.com", "ComputeDomain"
    path = f"/apis/{group}/v1beta1/namespaces/default/computedomains"
    nodes = [
        {"name": "gpu011", "ipAddress": "10.0.0.11", "cliqueID": "c0ffee.0", "index": 0, "status": "Ready"},
        {"name": "gpu012", "ipAddress": "10.0.0.12", "cliqueID": "c0ffee.0", "index": 1, "status": "NotReady"},
    ]
    domain = {
        "apiVersion": f"{group}/v1beta1",
        "kind": kind,
        "metadata": {"name": "train"},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "train"}}},
        "status": {"status": "NotReady", "nodes": nodes},
    }
    policy = Policy(thresholds={"kubernetes.settle_minutes": -1})
    with p5(kubernetes, "gpu011", "gpu012"):
        expect(says("k8s_compute_domains", cluster_facts()), Verdict.NOT_APPLICABLE, "DRA driver")
        with served(kubernetes, group, {"computedomains": kind}, "Namespaced"):
            kubernetes.plane.call("POST", path, domain)
            named = cluster_facts(policy)
            kubernetes.plane.call("DELETE", f"{path}/train")
            none = cluster_facts(policy)
    expect(says("k8s_compute_domains", named), Verdict.CONCERN, "default/train: NotReady on gpu012; expected")
    expect(says("k8s_compute_domains", none), Verdict.NOT_APPLICABLE, "no workload has a compute domain")


def test_an_api_server_that_is_not_there_breaks_every_answer(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    with p5(kubernetes, "gpu011"):
        cluster = resolve("k8s:bed")
    path = kubernetes.plane.kubeconfig("gone-from-here", server="https://127.0.0.1:9")
    monkeypatch.setenv("KUBECONFIG", str(path))
    answers = ask(cluster, sorted(COLLECTORS))
    assert {answer.status for answer in answers.values()} == {Status.BROKE}
    assert isinstance(next(iter(answers.values())), Collected)


def test_a_run_evaluates_records_and_replays_what_kubernetes_says(kubernetes: Bed, runs: Runs, tmp_path: Path) -> None:
    results, recorded = ("--results", str(runs.results_file)), tmp_path / "recorded"
    checks = (CHECKS, "-m", "preflight", "-k", "k8s_node_takes_pods or k8s_gpu_seen")
    name = kubernetes.machine.name
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    kubernetes.plane.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}, "spec": {"unschedulable": True}})
    try:
        shown = runs.run("--cluster", "k8s:bed", "--record", str(recorded), *results, *checks)
    finally:
        restored = {"metadata": {"labels": dict.fromkeys(labels)}, "spec": {"unschedulable": None}}
        kubernetes.plane.patch(f"/api/v1/nodes/{name}", restored)
    before = [(result.check, result.verdict, result.message) for result in runs.results]
    assert [result for result, *_ in before] == ["control_plane.k8s_gpu_seen", "control_plane.k8s_node_takes_pods"], (
        shown.outlines
    )
    message, *taints = before[1][2].splitlines()  # nothing initialises the nodes here, which a taint shows
    assert (before[1][1], message) == (Verdict.FAIL, "it is cordoned; expected a node that takes pods")
    assert all(line.startswith("concern: taint node.cloudprovider.kubernetes.io/") for line in taints)
    assert json.loads((recorded / "cluster.json").read_text())["kubernetes"] == {"kubernetes": "context:bed"}
    runs.run("--cluster", f"replay:{recorded}", *results, *checks)
    assert [(result.check, result.verdict, result.message) for result in runs.results] == before
