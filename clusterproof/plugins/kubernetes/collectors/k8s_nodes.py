"""The cluster's nodes: conditions, taints, resources, versions, and the labels in use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from clusterproof.plugins.catalog.kubernetes import bad_status
from clusterproof.plugins.kubernetes import OURS
from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.nodes import ApiNode, nodes
from clusterproof.plugins.kubernetes.values import quantity

RESOURCES = {
    "nvidia.com/gpu": "gpu",
    "nvidia.com/gpu.shared": "gpu_shared",
    "amd.com/gpu": "gpu_amd",
    "vpc.amazonaws.com/efa": "efa",
    "aws.amazon.com/neuron": "neuron",
    "aws.amazon.com/neurondevice": "neurondevice",
    "aws.amazon.com/neuroncore": "neuroncore",
    "hugepages-2Mi": "hugepages_2mi",
}
MIG = re.compile(r"nvidia\.com/mig-([0-9a-z.]{1,20})")
LABELS = {
    "nvidia.com/gpu.product": "gpu_product",
    "nvidia.com/gpu.count": "gpu_count",
    "nvidia.com/gpu.replicas": "gpu_replicas",
    "nvidia.com/mig.strategy": "mig_strategy",
    "nvidia.com/cuda.driver-version.full": "driver",
    "sagemaker.amazonaws.com/node-health-status": "hyperpod_health",
    "sagemaker.amazonaws.com/deep-health-check-status": "hyperpod_deep_check",
    "sagemaker.amazonaws.com/fault-type": "hyperpod_fault",
    "sagemaker.amazonaws.com/fault-types": "hyperpod_fault",
    "sagemaker.amazonaws.com/fault-reason": "hyperpod_reason",
    "sagemaker.amazonaws.com/fault-reasons": "hyperpod_reason",
}
OF_CONDITION = ("kind", "status", "reason", "message", "since", "heard")
# Labels for the network above a node, the topmost first: the first set with a label on the node is used.
LAYERS = (
    tuple(f"topology.k8s.aws/network-node-layer-{number}" for number in range(1, 9)),
    ("network.topology.nvidia.com/core", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"),
    ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
)
ULTRASERVERS = ("topology.k8s.aws/ultraserver-id", "nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator")


def read(api: Api, names: frozenset[str]) -> object:
    """The nodes with these names. Raises KubernetesError."""
    entries = [entry(node) for node in nodes(api, with_images=False) if node.name in names]
    return {"asked_at": api.now(), "nodes": entries}


def entry(node: ApiNode) -> dict[str, Any]:
    """One node, in the form that checks read."""
    return {
        "name": node.name,
        "instance_id": node.instance_id,
        "group": node.group,
        "instance_type": node.instance_type,
        "zone": node.zone,
        "region": node.region,
        "created": node.created,
        "cordoned": node.is_cordoned,
        "conditions": [
            {"bad": bad_status(condition.kind), **{key: getattr(condition, key) for key in OF_CONDITION}}
            for condition in node.conditions
            if OURS not in condition.kind.lower()  # the suite's own is no evidence
        ],
        "taints": [
            {"key": taint.key, "value": taint.value, "effect": taint.effect, "ours": OURS in taint.key}
            for taint in node.taints
        ],
        "capacity": _resources(node.capacity),
        "allocatable": _resources(node.allocatable),
        "info": {
            "kubelet": node.info.get("kubeletVersion", ""),
            "runtime": node.info.get("containerRuntimeVersion", ""),
            "os": node.info.get("osImage", ""),
            "kernel": node.info.get("kernelVersion", ""),
        },
        "labels": _labels(node),
        "layers": _first(_values(node.labels, labels) for labels in LAYERS),
        "ultraserver": next((node.labels[label] for label in ULTRASERVERS if node.labels.get(label)), ""),
    }


def _labels(node: ApiNode) -> dict[str, str]:
    """The labels in use; how HAMi splits GPUs counts as the label for the same, which is 1 then: it is not HAMi's."""
    labels = {own: _plain(own, node.labels[label]) for label, own in LABELS.items() if label in node.labels}
    is_split = node.split_into and labels.get("gpu_replicas", "1") == "1"
    return {**labels, "gpu_replicas": node.split_into} if is_split else labels


def _plain(own: str, label: str) -> str:
    """A label's value; product labels have hyphens in place of blanks."""
    return label.replace("-", " ") if own == "gpu_product" else label


def _resources(amounts: Mapping[str, str]) -> dict[str, Any]:
    parts = {match[1]: quantity(amount) for name, amount in amounts.items() if (match := MIG.fullmatch(name))}
    return {**{own: quantity(amounts[name]) for name, own in RESOURCES.items() if name in amounts}, "mig": parts}


def _values(labels: Mapping[str, str], names: Iterable[str]) -> list[str]:
    return [labels[name] for name in names if labels.get(name)]


def _first(candidates: Iterable[list[str]]) -> list[str]:
    return next(filter(None, candidates), [])
