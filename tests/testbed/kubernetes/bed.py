"""A control plane with one node: this machine."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.kubernetes.control_plane import ControlPlane, control_plane
from tests.testbed.kubernetes.machine import Machine, machine
from tests.testbed.kubernetes.processes import wait_until

NAMESPACE = "clusterproof"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


RIGHTS = list(yaml.safe_load_all((Path(__file__).parents[3] / "integrations/kubernetes/rbac.yaml").read_text()))


PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Role": f"{RBAC}/namespaces/{NAMESPACE}/roles",
    "ClusterRole": f"{RBAC}/clusterroles",
}


def _less(rule: Mapping[str, Any], verb: str, resource: str) -> Iterator[Mapping[str, Any]]:
    """A rule without one verb of one of its resources."""
    if verb not in rule["verbs"] or resource not in rule["resources"]:
        yield rule
        return
    resources = [kept for kept in rule["resources"] if kept != resource]
    verbs = [kept for kept in rule["verbs"] if kept != verb]
    if resources:
        yield {**rule, "resources": resources}
    if verbs:
        yield {**rule, "resources": [resource], "verbs": verbs}


@dataclass(frozen=True)
class Bed:
    """The control plane, and operations on it for tests."""

    plane: ControlPlane
    machine: Machine

    def account(self, namespaced: Sequence[Any], of_cluster: Sequence[Any] = ()) -> tuple[str, str]:
        """Create a user with these rules in the namespace and in the cluster; returns name and token."""
        name = f"person-{uuid.uuid4().hex[:8]}"
        at = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        user = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        self.plane.call("POST", at, {"metadata": {"name": name}})
        for where, kind, rules in ((f"/namespaces/{NAMESPACE}", "Role", namespaced), ("", "ClusterRole", of_cluster)):
            self.plane.call(
                "POST", f"{RBAC}{where}/{kind.lower()}s", {"metadata": {"name": name}, "rules": list(rules)}
            )
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
            binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [user]}
            self.plane.call("POST", f"{RBAC}{where}/{kind.lower()}bindings", binding)
        token = self.plane.call("POST", f"{at}/{name}/token", {"spec": {"expirationSeconds": 3600}})
        full = f"system:serviceaccount:{NAMESPACE}:{name}"
        for namespace, rules in ((NAMESPACE, namespaced), ("", of_cluster)):
            for rule in rules[:1]:
                wait_until(partial(self._may, full, rule, namespace), "allowed what it was granted")
        return full, str(token["status"]["token"])

    def _may(self, user: str, rule: Mapping[str, Any], namespace: str) -> bool:
        """Whether the API server, which learns of a role after a moment, grants a rule to a user."""
        resource, _, subresource = rule["resources"][0].partition("/")
        attributes = {
            "verb": rule["verbs"][0],
            "group": rule["apiGroups"][0],
            "resource": resource,
            "namespace": namespace,
        }
        attributes |= {"subresource": subresource, "name": next(iter(rule.get("resourceNames", [])), "")}
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.plane.call("POST", path, review)["status"]["allowed"])

    def granted(self, without: tuple[str, str] = ("", "")) -> tuple[str, str]:
        """A user with the rights of integrations/kubernetes/rbac.yaml, except one verb of one resource."""
        rules = {part["kind"]: part["rules"] for part in RIGHTS if "rules" in part}
        namespaced, of_cluster = (
            [less for rule in rules[kind] for less in _less(rule, *without)] for kind in ("Role", "ClusterRole")
        )
        return self.account(namespaced, of_cluster)

    def add_node(self, name: str, ready: str = "True", **parts: Any) -> None:
        """Add a node without a kubelet in one request; `parts` add to its labels, spec and status."""
        labels = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, **parts.get("labels", {})}
        condition = {
            "type": "Ready",
            "status": ready,
            "reason": parts.get("reason", "KubeletReady"),
            "message": parts.get("message", "so it is"),
            "lastHeartbeatTime": "2026-01-02T03:04:05Z",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        capacity = {"cpu": "8", "memory": "64Gi", "pods": "110", **parts.get("capacity", {})}
        status: dict[str, Any] = {"capacity": capacity, "allocatable": capacity, "conditions": [condition]}
        status |= {key: parts[key] for key in ("images", "addresses", "daemonEndpoints") if key in parts}
        node = {"metadata": {"name": name, "labels": labels}, "spec": parts.get("spec", {}), "status": status}
        self.plane.call("POST", "/api/v1/nodes", node)

    @contextlib.contextmanager
    def node(self, name: str, **parts: Any) -> Iterator[None]:
        """The same, removed when the block ends."""
        self.add_node(name, **parts)
        try:
            yield
        finally:
            self.plane.call("DELETE", f"/api/v1/nodes/{name}")

    def left(self) -> list[str]:
        """What remains of a run in the namespace."""
        return left(self.plane)


def left(plane: ControlPlane) -> list[str]:
    """What remains of a run in the namespace."""
    return [
        f"{kind.rpartition('/')[2]}/{entry['metadata']['name']}"
        for kind in (f"/api/v1/namespaces/{NAMESPACE}/pods", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")
        for entry in plane.items(kind)
    ] + [
        f"configmaps/{entry['metadata']['name']}"
        for entry in plane.items(f"/api/v1/namespaces/{NAMESPACE}/configmaps")
        if entry["metadata"]["name"] != "kube-root-ca.crt"
    ]


def grant(plane: ControlPlane) -> None:
    """Create the namespace and roles in the documents."""
    for part in RIGHTS:
        plane.call("POST", f"{PATHS[part['kind']]}?fieldValidation=Strict", part)
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    wait_until(lambda: bool(plane.items(path)), "given what each namespace has")


@contextlib.contextmanager
def bed() -> Iterator[Bed]:
    """Start everything, with the documents' namespace; nothing of it remains."""
    folder = Path(tempfile.mkdtemp(prefix="k8s-"))  # pytest's folder names are too long for sockets
    try:
        (folder / "node").mkdir()
        with control_plane(folder) as plane, machine(plane, folder / "node") as node:
            grant(plane)
            yield Bed(plane, node)
    finally:
        if f" {folder}/" not in Path("/proc/mounts").read_text():  # otherwise this would delete what is mounted there
            shutil.rmtree(folder, ignore_errors=True)
