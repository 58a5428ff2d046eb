"""Kueue's flavors and topologies, and their nodes: the API server itself matches labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.collectors import first_version
from clusterproof.plugins.kubernetes.values import parts, tables, text, texts

GROUP, VERSIONS = "/apis/kueue.x-k8s.io", ("v1beta2", "v1beta1", "v1alpha1")
NODES = "/api/v1/nodes"
MAX_FLAVORS = 50  # each is a request, plus one for each of its levels
MAX_LEVELS = 16  # the maximum of a Topology
MAX_NAMES = 100


def read(api: Api, _names: frozenset[str]) -> object:
    """The flavors with their nodes; none if Kueue is not installed. Raises KubernetesError."""
    flavors = first_version(api, GROUP, VERSIONS, "resourceflavors")
    if flavors is None:
        return {"is_installed": False, "flavors": []}
    wants_levels = any(parts(flavor)[1].get("topologyName") for flavor in flavors)
    levels = dict(_levels(first_version(api, GROUP, VERSIONS, "topologies") or ())) if wants_levels else {}
    return {
        "is_installed": True,
        "flavors": [_entry(api, flavor, levels) for flavor in flavors[:MAX_FLAVORS]],
        "left_out": max(0, len(flavors) - MAX_FLAVORS),
    }


def _levels(topologies: list[Mapping[str, Any]] | tuple[()]) -> Iterator[tuple[str, list[str]]]:
    for topology in topologies:
        metadata, spec, _ = parts(topology)
        yield text(metadata.get("name")), [text(level.get("nodeLabel")) for level in tables(spec.get("levels"))]


def _entry(api: Api, flavor: Mapping[str, Any], levels: Mapping[str, list[str]]) -> dict[str, Any]:
    metadata, spec, _ = parts(flavor)
    labels = ",".join(f"{key}={value}" for key, value in sorted(texts(spec.get("nodeLabels")).items()))
    topology = text(spec.get("topologyName"))
    nodes = _nodes(api, labels)
    lacking = {
        level: _nodes(api, ",".join(filter(None, (labels, f"!{level}"))))
        for level in levels.get(topology, ())[:MAX_LEVELS]
        if nodes
    }
    return {
        "name": text(metadata.get("name")),
        "labels": labels,
        "nodes": len(nodes),
        "topology": topology,
        "has_topology": not topology or topology in levels,
        "unlabelled": [
            {"level": level, "nodes": names[:MAX_NAMES], "count": len(names)}
            for level, names in lacking.items()
            if names
        ],
    }


def _nodes(api: Api, selector: str) -> list[str]:
    query = {"labelSelector": selector} if selector else {}
    return [text(parts(node)[0].get("name")) for node in api.listed(NODES, **query)]
