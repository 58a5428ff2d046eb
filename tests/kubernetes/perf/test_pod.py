"""What a pod that loads a node requests, and which pods hold a node's devices."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.nodes import ApiNode, node_of
from clusterproof.plugins.kubernetes.pods import Pod, pod_of
from clusterproof.plugins.transport.kubernetes import RunObjects
from clusterproof.plugins.transport.kubernetes.perf import allocated, perf_pod, why_not_whole

RUN = RunObjects(
    "clusterproof-0123456789", "clusterproof", "public.ecr.aws/hpc-cloud/nccl-tests:1", "d9607e19-f88f-11e6"
)
EFA, GPU, PAGES = "vpc.amazonaws.com/efa", "nvidia.com/gpu", "hugepages-2Mi"
P5 = {GPU: "8", EFA: "32", PAGES: "10Gi", "cpu": "192"}


def node(capacity: dict[str, str], allocatable: dict[str, str] | None = None, **labels: str) -> ApiNode:
    status = {"capacity": capacity, "allocatable": capacity if allocatable is None else allocatable}
    return node_of({"metadata": {"name": "gpu001", "labels": labels}, "status": status})


def holder(name: str, phase: str = "Running", /, **requests: int) -> Pod:
    return pod_with({"containers": [container(**requests)]}, name, phase)


def pod_with(spec: dict[str, Any], name: str = "train-0", phase: str = "Running") -> Pod:
    return pod_of({"metadata": {"name": name, "namespace": "ml"}, "spec": spec, "status": {"phase": phase}})


def container(restarts: str | None = None, /, **requests: int) -> dict[str, Any]:
    resources = {"requests": {key.replace("_", "/"): str(value) for key, value in requests.items()}}
    return {"name": "one", "resources": resources, "restartPolicy": restarts}


UNCOUNTED = (
    "no device plugin counts its GPUs or Neuron devices; expected one, as a pod that requests none of them keeps "
    "no job away"
)
OF_PARTS = "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
ONE, TWO, ALL = ({"nvidia.com_gpu": count} for count in (1, 2, 8))


@pytest.mark.parametrize(
    ("capacity", "limits"),
    [
        (P5, {GPU: "8", EFA: "32", PAGES: "5120Mi"}),
        ({**P5, PAGES: "2Gi"}, {GPU: "8", EFA: "32", PAGES: "2Gi"}),
        ({**P5, PAGES: "0"}, {GPU: "8", EFA: "32"}),
        ({GPU: "8", PAGES: "10Gi"}, {GPU: "8"}),
        ({"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "128"}, {"aws.amazon.com/neuron": "16"}),
        ({"amd.com/gpu": "8"}, {"amd.com/gpu": "8"}),
        ({"cpu": "8", EFA: "0"}, {}),
    ],
)
def test_it_asks_for_all_devices_of_the_node_and_for_huge_pages_with_efa(
    capacity: dict[str, str], limits: dict[str, str]
) -> None:
    (container,) = perf_pod(RUN, "one", node(capacity), 900)["spec"]["containers"]
    assert container["resources"]["limits"] == limits
    pages = {key: value for key, value in limits.items() if key == PAGES}
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi", **pages}


def test_the_scheduler_places_it_and_it_has_no_privilege_and_nothing_of_the_hosts_files() -> None:
    made = perf_pod(RUN, f"{RUN.name}-12345", node(P5), 900)
    text = json.dumps(made, separators=(",", ":"))
    assert not {"nodeName", "privileged", "hostPath", "hostPID", "hostIPC"} & keys(made)
    assert '"capabilities":{"add":["IPC_LOCK"]}' in text
    assert '"matchFields":[{"key":"metadata.name","operator":"In","values":["gpu001"]}]' in text
    assert len(text) <= 2000


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([], ""),
        ([holder("done", "Succeeded", **{"nvidia.com_gpu": 8}), holder("cpu", cpu=4)], ""),
        (
            [holder("train-0", "Running", **{"nvidia.com_gpu": 1})],
            "taken: 1 of 8 nvidia.com/gpu by ml/train-0; expected all free",
        ),
        (
            [
                holder("a", "Running", **{"nvidia.com_gpu": 2, "vpc.amazonaws.com_efa": 4}),
                holder("b", "Running", **{"nvidia.com_gpu": 4}),
            ],
            "taken: 6 of 8 nvidia.com/gpu by ml/a, ml/b; 4 of 32 vpc.amazonaws.com/efa by ml/a; expected all free",
        ),
    ],
)
def test_the_holder_of_devices_is_named(pods: list[Pod], words: str) -> None:
    assert allocated(node(P5), pods) == words


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        ({"initContainers": [container("Always", **TWO)]}, 2),
        ({"initContainers": [container("Always", **TWO)], "containers": [container(**ONE)]}, 3),
        ({"initContainers": [container(**TWO)], "containers": [container(**ONE)]}, 2),
        ({"initContainers": [container("Always", **ONE), container(**TWO)], "containers": [container(**ONE)]}, 3),
        ({"initContainers": [container(**ALL)], "containers": [container(**ALL)]}, 8),
    ],
    ids=["of a sidecar", "and of another", "of an init container", "beside a sidecar", "of one after the other"],
)
def test_devices_of_init_containers_are_held_as_the_scheduler_counts_them(spec: dict[str, Any], held: int) -> None:
    words = f"taken: {held} of 8 nvidia.com/gpu by ml/train-0; expected all free"
    assert allocated(node(P5), [pod_with(spec)]) == words


@pytest.mark.parametrize(
    ("capacity", "spec", "words"),
    [
        (
            {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "128"},
            {"containers": [container(**{"aws.amazon.com_neuroncore": 64})]},
            "64 of 128 aws.amazon.com/neuroncore",
        ),
        (
            {GPU: "7", "nvidia.com/mig-1g.10gb": "7"},
            {"containers": [container(**{"nvidia.com_mig-1g.10gb": 2})]},
            "2 of 7 nvidia.com/mig-1g.10gb",
        ),
        ({GPU: "0", EFA: "32"}, {"containers": [container(**ALL)]}, "8 nvidia.com/gpu"),
        ({GPU: "8"}, {"resourceClaims": [{"name": "gpus", "resourceClaimName": "gpus"}]}, "1 resource claim"),
    ],
    ids=["cores of Neuron devices", "parts of GPUs", "GPUs whose device plugin has died", "a claim"],
)
def test_a_pod_holds_devices_by_whichever_resource_it_has_them(
    capacity: dict[str, str], spec: dict[str, Any], words: str
) -> None:
    assert allocated(node(capacity), [pod_with(spec)]) == f"taken: {words} by ml/train-0; expected all free"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (node(P5), ""),
        (node(P5, {**P5, GPU: "7"}), "7 of 8 nvidia.com/gpu can be allocated; expected all"),
        (node(P5, {}), "0 of 8 nvidia.com/gpu, 0 of 32 vpc.amazonaws.com/efa can be allocated; expected all"),
        (
            node(P5, None, **{"nvidia.com/gpu.sharing-strategy": "mps"}),
            "its GPUs are shared (nvidia.com/gpu.sharing-strategy=mps); expected whole ones, which a pod has to itself",
        ),
        (node(P5, None, **{"nvidia.com/gpu.sharing-strategy": "none"}), ""),
        (
            node({GPU: "0", "nvidia.com/mig-1g.10gb": "56", "nvidia.com/mig-3g.40gb": "0"}),
            "its GPUs are divided (56 nvidia.com/mig-1g.10gb); expected whole ones, which a pod has to itself",
        ),
        (node({GPU: "0", EFA: "32"}), UNCOUNTED),
        (node({"cpu": "192"}, None, **{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}), UNCOUNTED),
        (node({"cpu": "96", EFA: "1"}), ""),
        (
            node({"nvidia.com/gpu.shared": "32"}),
            "its GPUs are divided (32 nvidia.com/gpu.shared); expected whole ones, which a pod has to itself",
        ),
        (
            node({GPU: "56"}, None, **{"nvidia.com/gpu.product": OF_PARTS}),
            f"its GPUs are divided (nvidia.com/gpu.product={OF_PARTS}); expected whole ones, which a pod has to itself",
        ),
    ],
)
def test_a_node_whose_devices_no_pod_could_have_is_reported(found: ApiNode, words: str) -> None:
    assert why_not_whole(found) == words


def keys(document: Any) -> set[str]:
    if isinstance(document, dict):
        return set(document) | {key for value in document.values() for key in keys(value)}
    return {key for value in document for key in keys(value)} if isinstance(document, list) else set()
