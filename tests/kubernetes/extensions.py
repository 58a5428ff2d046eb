"""Kinds and objects of Kueue and other extensions in the API server; no controller acts on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.control_plane import RefusedError
from tests.testbed.kubernetes.processes import wait_until

KUEUE = "kueue.x-k8s.io"


@contextlib.contextmanager
def kueue(kubernetes: Bed, **objects: list[tuple[str, dict[str, Any]]]) -> Iterator[None]:
    """Kueue's kinds as custom resources, and objects of them."""
    kinds = {"resourceflavors": "ResourceFlavor", "topologies": "Topology"}
    with served(kubernetes, KUEUE, kinds, "Cluster"):
        for plural, kind in kinds.items():
            for name, of_object in objects[plural]:
                whole = {"apiVersion": f"{KUEUE}/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": of_object}
                kubernetes.plane.call("POST", f"/apis/{KUEUE}/v1beta1/{plural}", whole)
        yield


@contextlib.contextmanager
def served(kubernetes: Bed, group: str, kinds: Mapping[str, str], scope: str) -> Iterator[None]:
    """These kinds, by their plurals, as custom resources of version v1beta1."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    with contextlib.ExitStack() as stack:
        for plural, kind in kinds.items():
            names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
            version = {"name": "v1beta1", "served": True, "storage": True, "schema": schema}
            spec = {"group": group, "names": names, "scope": scope, "versions": [version]}
            kubernetes.plane.call("POST", definitions, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})
            stack.callback(kubernetes.plane.call, "DELETE", f"{definitions}/{plural}.{group}")
        for plural in kinds:
            path = f"/apis/{group}/v1beta1/{plural}"
            wait_until(lambda path=path: is_served(kubernetes, path), "served")  # type: ignore[misc]
        yield


def is_served(kubernetes: Bed, path: str) -> bool:
    try:
        kubernetes.plane.call("GET", path)
    except RefusedError:
        return False
    return True
