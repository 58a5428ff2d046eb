"""Compute domains of NVIDIA's DRA driver: the nodes whose IMEX daemons share GPU memory for one workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.collectors import first_version
from clusterproof.plugins.kubernetes.values import number, parts, tables, text

GROUP, VERSIONS = "/apis/resource.nvidia.com", ("v1beta1",)
MAX_DOMAINS = 1000


def read(api: Api, names: frozenset[str]) -> object:
    """The domains with one of these nodes, or with none yet. Raises KubernetesError."""
    domains = first_version(api, GROUP, VERSIONS, "computedomains")
    entries = [_entry(domain) for domain in domains or () if not parts(domain)[0].get("deletionTimestamp")]
    ours = [entry for entry in entries if not entry["nodes"] or names.intersection(_names(entry))]
    return {
        "asked_at": api.now(),
        "is_installed": domains is not None,
        "domains": ours[:MAX_DOMAINS],
        "left_out": max(0, len(ours) - MAX_DOMAINS),
    }


def _entry(resource: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec, status = parts(resource)
    return {
        "namespace": text(metadata.get("namespace")),
        "name": text(metadata.get("name")),
        "created": text(metadata.get("creationTimestamp")),
        "wanted": number(spec.get("numNodes")) or 0,
        "nodes": [
            {"name": text(node.get("name")), "clique": text(node.get("cliqueID")), "status": text(node.get("status"))}
            for node in tables(status.get("nodes"))
        ],
    }


def _names(entry: Mapping[str, Any]) -> list[str]:
    return [node["name"] for node in entry["nodes"]]
