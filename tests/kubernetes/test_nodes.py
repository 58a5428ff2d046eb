"""What the labels and annotations of a node say of it: its instance, its group, and how its GPUs are shared."""

from __future__ import annotations

import json

import pytest

from clusterproof.plugins.evidence.kubernetes.facts import KubernetesNode
from clusterproof.plugins.kubernetes.collectors import k8s_nodes
from clusterproof.plugins.kubernetes.nodes import ApiNode, node_of


def node(provider_id: str, name: str = "n") -> ApiNode:
    return node_of({"metadata": {"name": name}, "spec": {"providerID": provider_id}})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node("aws:///us-west-2a/i-0123456789abcdef0"), "i-0123456789abcdef0"),
        (node("aws:///usw2-az2/sagemaker/cluster/x", "hyperpod-i-0123456789abcdef0"), "i-0123456789abcdef0"),
        (node("", "hyperpod-i-0123456789abcdef0"), "i-0123456789abcdef0"),
        (node("gce://project/us-east5-a/gke-1"), ""),
        (node("kind://podman/kind/kind-worker"), ""),
        (node(""), ""),
    ],
)
def test_the_instance_id_is_ec2s_or_none(found: ApiNode, expected: str) -> None:
    assert found.instance_id == expected


@pytest.mark.parametrize(
    "label",
    [
        "sagemaker.amazonaws.com/instance-group-name",
        "eks.amazonaws.com/nodegroup",
        "karpenter.sh/nodepool",
        "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
    ],
)
def test_a_node_is_of_the_group_that_its_cloud_says(label: str) -> None:
    assert node_of({"metadata": {"name": "n", "labels": {label: "h100"}}}).group == "h100"


UUIDS = ("GPU-9a3603f4-f66e-d48b-11ea-13e327064cca", "GPU-b7c4eb59-dd76-ca5a-8482-56fd796b0a75")


BY_HAMI = "".join(f"{uuid},10,81559,100,NVIDIA-NVIDIA H100 80GB HBM3,0,true:" for uuid in UUIDS)


def replicas(annotation: str, gpus: int, by_label: str = "") -> int:
    """How many pods may share each GPU of a node that offers `gpus` devices."""
    metadata = {
        "name": "n",
        "annotations": {"hami.io/node-nvidia-register": annotation},
        "labels": {"nvidia.com/gpu.replicas": by_label} if by_label else {},
    }
    node = node_of({"metadata": metadata, "status": {"capacity": {"nvidia.com/gpu": str(gpus)}}})
    return KubernetesNode(k8s_nodes.entry(node), 0.0).replicas


@pytest.mark.parametrize(
    "annotation",
    [
        BY_HAMI,
        json.dumps(
            [{"id": uuid, "count": 10, "devmem": 81559, "health": True} for uuid in UUIDS], separators=(",", ":")
        ),
        json.dumps([{"id": uuid, "index": 1, "count": 10} for uuid in UUIDS], separators=(",", ":")),
    ],
)
def test_gpus_that_hami_splits_count_once(annotation: str) -> None:
    assert replicas(annotation, gpus=20) == 10


@pytest.mark.parametrize(
    ("gpus", "by_label", "expected"),
    [
        (20, "1", 10),  # GPU feature discovery knows nothing of HAMi
        (2, "", 1),  # NVIDIA's device plugin has taken over since, or HAMi offers its own under another name
        (2, "1", 1),
        (8, "4", 4),  # NVIDIA's device plugin, with time-slicing
        (0, "", 1),
    ],
)
def test_an_annotation_that_hami_left_does_not_divide_gpus(gpus: int, by_label: str, expected: int) -> None:
    assert replicas(BY_HAMI, gpus, by_label) == expected
