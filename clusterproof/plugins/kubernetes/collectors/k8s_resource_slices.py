"""Devices offered by Dynamic Resource Allocation drivers on the cluster's nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.collectors import first_version
from clusterproof.plugins.kubernetes.values import number, parts, table, tables, text

GROUP, VERSIONS = "/apis/resource.k8s.io", ("v1", "v1beta2", "v1beta1")
GPUS = ("gpu", "amdgpu")  # types of whole ones: NVIDIA's, AMD's
KEEPS_AWAY = ("NoSchedule", "NoExecute")  # effects of a device's taints; `None` only informs


def read(api: Api, names: frozenset[str]) -> object:
    """The slices of these nodes; none if the cluster does not support them. Raises KubernetesError."""
    slices = first_version(api, GROUP, VERSIONS, "resourceslices") or ()
    return {"slices": [entry for entry in map(_entry, slices) if entry["node"] in names]}


def _entry(resource: Mapping[str, Any]) -> dict[str, Any]:
    _, spec, _ = parts(resource)
    pool, devices = table(spec.get("pool")), tables(spec.get("devices"))
    kinds = [_kind(device) for device in devices]
    return {
        "driver": text(spec.get("driver")),
        "node": text(spec.get("nodeName")),
        "pool": text(pool.get("name")),
        "generation": number(pool.get("generation")),
        "devices": len(devices),
        "gpus": sum(map(kinds.count, GPUS)) if any(kinds) else None,
        "tainted": [f"{text(device.get('name'))} ({taint})" for device in devices for taint in _taints(device)],
    }


def _of(device: Mapping[str, Any], part: str) -> object:
    """A part of a device, which older versions nest a level deeper."""
    return device.get(part) or table(device.get("basic")).get(part)


def _taints(device: Mapping[str, Any]) -> Iterator[str]:
    """The taints that keep claims from a device: `gpu.nvidia.com/xid=79:NoSchedule`."""
    for taint in tables(_of(device, "taints")):
        key, value, effect = (text(taint.get(word)) for word in ("key", "value", "effect"))
        if effect in KEEPS_AWAY:
            yield f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def _kind(device: Mapping[str, Any]) -> str:
    """A device's attribute `type`."""
    return text(table(table(_of(device, "attributes")).get("type")).get("string"))
