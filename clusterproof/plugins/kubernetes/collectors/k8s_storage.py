"""Volume claims and what serves them: storage classes, volumes, and each node's registered CSI drivers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.values import parts, table, tables, text, texts

GROUP = "/apis/storage.k8s.io/v1"
MAX_VOLUMES = 50_000  # and the same number of claims
SELECTED = "volume.kubernetes.io/selected-node"  # set by the scheduler when the claim is to be served now
LATE = "WaitForFirstConsumer"


def read(api: Api, names: frozenset[str]) -> object:
    """Every claim with its volume's driver, the classes, and the drivers of these nodes. Raises KubernetesError."""
    nodes = [_node(node) for node in api.listed(f"{GROUP}/csinodes") if text(parts(node)[0].get("name")) in names]
    classes = list(map(_class, api.listed(f"{GROUP}/storageclasses")))
    volumes = dict(map(_volume, islice(api.listed("/api/v1/persistentvolumes"), MAX_VOLUMES)))
    listed = islice(api.listed("/api/v1/persistentvolumeclaims"), MAX_VOLUMES)
    claims = [_claim(claim, volumes) for claim in listed]
    is_cut = MAX_VOLUMES in (len(volumes), len(claims))
    return {"nodes": nodes, "classes": classes, "claims": claims, "is_cut": is_cut}


def _node(resource: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec, _ = parts(resource)
    return {
        "name": text(metadata.get("name")),
        "drivers": [text(driver.get("name")) for driver in tables(spec.get("drivers"))],
    }


def _class(resource: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": text(parts(resource)[0].get("name")),
        "provisioner": text(resource.get("provisioner")),
        "waits_for_pods": resource.get("volumeBindingMode") == LATE,
    }


def _volume(resource: Mapping[str, Any]) -> tuple[str, str]:
    """Its name and CSI driver, empty for another kind."""
    metadata, spec, _ = parts(resource)
    return text(metadata.get("name")), text(table(spec.get("csi")).get("driver"))


def _claim(resource: Mapping[str, Any], volumes: Mapping[str, str]) -> dict[str, Any]:
    metadata, spec, status = parts(resource)
    volume = text(spec.get("volumeName"))
    return {
        "namespace": text(metadata.get("namespace")),
        "name": text(metadata.get("name")),
        "created": text(metadata.get("creationTimestamp")),
        "phase": text(status.get("phase")),
        "class": text(spec.get("storageClassName")),
        "volume": volume,
        "driver": volumes.get(volume, ""),
        "selected": SELECTED in texts(metadata.get("annotations")),
    }
