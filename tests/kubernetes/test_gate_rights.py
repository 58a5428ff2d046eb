"""The gate's rights: the manifests grant enough and no more, and missing rights are reported in the server's words."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterproof.plugins.kubernetes.api import MERGE, STRATEGIC, Api
from clusterproof.plugins.kubernetes.gate import CONDITION, TAINT, GateSettings, object_writer
from tests.kubernetes.gate import ACCOUNT, AGENT, FIT, MANIFESTS, OVERLAY, UNFIT, GateBed, api_of, kubectl, rights
from tests.testbed.kubernetes.bed import NAMESPACE, RBAC
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
ORDERS = GateSettings(TAINT, "5", "clusterproof.dev/unproven")
STARTUP = {"key": "clusterproof.dev/unproven", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/team", "effect": "NoSchedule"}
EVICTING = {"key": "clusterproof.dev/unfit", "effect": "NoExecute"}
JSON_PATCH = "application/json-patch+json"
RIGHTS = [  # verb, resource, namespace of the grant
    ("list", "nodes", ""),
    ("patch", "nodes/status", ""),
    ("patch", "nodes", ""),
    ("list", "pods", ""),
    ("create", "events", "default"),
]


def person(gate: GateBed, rights: list[tuple[str, str, str]]) -> tuple[str, Api]:
    """A user with only these rights: name and access."""
    of_cluster = [_rule(verb, resource) for verb, resource, namespace in rights if not namespace]
    user, token = gate.bed.account([], of_cluster)
    name = user.rpartition(":")[2]
    for verb, resource, namespace in rights:
        if namespace:
            where = f"{RBAC}/namespaces/{namespace}"
            rule = {"metadata": {"name": name}, "rules": [_rule(verb, resource)]}
            gate.bed.plane.call("POST", f"{where}/roles", rule)
            subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
            ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            binding = {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
            gate.bed.plane.call("POST", f"{where}/rolebindings", binding)
    return user, api_of(gate.bed.plane.kubeconfig(token))


def _rule(verb: str, resource: str) -> Mapping[str, Any]:
    return {"apiGroups": [""], "resources": [resource], "verbs": [verb]}


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("list nodes", 'cannot list resource "nodes" in API group "" at the cluster scope'),
        ("patch nodes/status", 'cannot patch resource "nodes/status" in API group "" at the cluster scope'),
        ("patch nodes", 'cannot patch resource "nodes" in API group "" at the cluster scope'),
        ("list pods", 'cannot list resource "pods" in API group "" at the cluster scope'),
        ("create events", 'cannot create resource "events" in API group "" in the namespace "default"'),
    ],
)
def test_each_missing_right_is_reported_with_verb_resource_and_user(gate: GateBed, missing: str, expected: str) -> None:
    user, api = person(gate, [right for right in RIGHTS if f"{right[0]} {right[1]}" != missing])
    with gate.bed.node("gpu301"), gate.bed.node("gpu302"), gate.bed.node("gpu303", spec={"taints": [STARTUP]}):
        healths = {"gpu301": UNFIT, "gpu302": UNFIT, "gpu303": FIT}
        written = gate.write(healths, ORDERS, api=api)
        has_condition = bool(gate.condition("gpu301"))
        is_tainted = bool(gate.taints("gpu301"))
    assert len(written.problems) == 1, written
    assert f'User "{user}" {expected}' in written.problems[0]
    assert written.problems[0].endswith(f"; {object_writer.RIGHTS}")
    assert has_condition is (missing not in ("list nodes", "patch nodes/status"))
    assert is_tainted is (missing == "create events")


def test_with_these_rights_alone_all_of_it_is_written(gate: GateBed) -> None:
    _, api = person(gate, RIGHTS)
    with gate.bed.node("gpu304"), gate.bed.node("gpu305", spec={"taints": [STARTUP]}):
        written = gate.write({"gpu304": UNFIT, "gpu305": FIT}, ORDERS, api=api)
        assert [taint["key"] for taint in gate.taints("gpu304")] == ["clusterproof.dev/unfit"]
        assert gate.taints("gpu305") == []
    assert written.problems == ()


def test_the_account_of_the_manifests_may_do_that_and_read_logs_of_its_namespace(gate: GateBed) -> None:
    everywhere = {
        ("list", "nodes"),
        ("patch", "nodes/status"),
        ("patch", "nodes"),
        ("list", "pods"),
        ("create", "events"),
    }
    assert rights(gate.kubeconfig, "kube-system") == everywhere
    assert rights(gate.kubeconfig, "default") == everywhere
    assert rights(gate.kubeconfig, NAMESPACE) == everywhere | {("get", "pods/log"), ("get", "daemonsets")}


@pytest.mark.parametrize("namespace", [NAMESPACE, "default", "kube-system"])
def test_the_account_of_agents_may_do_nothing(gate: GateBed, namespace: str) -> None:
    assert rights(gate.of_agent, namespace) == set()


NODE, STATUS = "/api/v1/nodes/gpu306", "/api/v1/nodes/gpu306/status"


@pytest.mark.parametrize(
    ("path", "change", "kind", "words"),
    [
        (NODE, {"spec": {"unschedulable": True}}, MERGE, "cordons no node"),
        (NODE, {"spec": {"taints": []}}, MERGE, "no taints of others"),
        (NODE, {"spec": {"taints": [FOREIGN, {"key": "a", "effect": "NoSchedule"}]}}, MERGE, "no taints of others"),
        (NODE, [{"op": "add", "path": "/spec/taints/-", "value": EVICTING}], JSON_PATCH, "no taint that evicts"),
        (NODE, {"metadata": {"labels": {"a": "b"}}}, MERGE, "no labels"),
        (STATUS, {"metadata": {"annotations": {"a": "b"}}}, MERGE, "no labels, annotations"),
        (
            STATUS,
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            STRATEGIC,
            "no conditions of others",
        ),
        (STATUS, {"status": {"conditions": []}}, MERGE, "no conditions of others"),
        (STATUS, {"status": {"capacity": {"nvidia.com/gpu": "0"}}}, MERGE, "nothing of a node's status"),
        (STATUS, {"status": {"allocatable": {"nvidia.com/gpu": "0"}}}, MERGE, "nothing of a node's status"),
        (
            STATUS,
            {"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}},
            STRATEGIC,
            "nothing of a node's status",
        ),
        (STATUS, {"status": {"features": {"supplementalGroupsPolicy": True}}}, MERGE, "nothing of a node's status"),
        (STATUS, {"status": {"runtimeHandlers": [{"name": "x"}]}}, MERGE, "nothing of a node's status"),
        (STATUS, {"status": {"images": [{"names": ["a"]}]}}, MERGE, "nothing of a node's status"),
        (STATUS, {"status": {"volumesInUse": ["a"]}}, MERGE, "nothing of a node's status"),
        (NODE, {"spec": {"providerID": "aws:///us-west-2a/i-0123456789abcdef0"}}, MERGE, "nothing of its spec"),
        (NODE, {"metadata": {"finalizers": ["example.com/stay"]}}, MERGE, "finalizers"),
    ],
)
def test_what_rbac_cannot_withhold_the_policy_does(
    gate: GateBed, path: str, change: object, kind: str, words: str
) -> None:
    with gate.bed.node("gpu306", spec={"taints": [FOREIGN]}, ready="Unknown"):
        message = gate.refusal(path, change, kind)
        assert gate.taints("gpu306") == [FOREIGN]
    assert "ValidatingAdmissionPolicy 'clusterproof-gate'" in message
    assert words in message


def test_others_are_not_held_by_that_policy(gate: GateBed) -> None:
    with gate.bed.node("gpu307"):
        kubectl(gate.bed, "cordon", "gpu307")
        kubectl(gate.bed, "label", "node", "gpu307", "a=b")
        assert gate.node("gpu307")["spec"]["unschedulable"] is True


def test_its_expressions_are_of_the_type_of_nodes(gate: GateBed) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/clusterproof-gate"
    status = gate.bed.plane.call("GET", path).get("status", {})
    assert not status.get("typeChecking", {}).get("expressionWarnings"), json.dumps(status)


def test_without_taints_yaml_the_account_may_change_no_node(gate: GateBed) -> None:
    kept = [
        role for role in yaml.safe_load_all(kubectl(gate.bed, "kustomize", MANIFESTS)) if role["kind"] == "ClusterRole"
    ]
    rules = [(rule["resources"], rule["verbs"]) for role in kept for rule in role["rules"]]
    changes = [rule for rule in rules if set(rule[1]) - {"get", "list", "watch"}]
    assert changes == [(["nodes/status"], ["patch"]), (["events"], ["create"])]


def test_all_that_is_built_is_what_the_server_knows_and_observes(gate: GateBed, tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "base")
    (tmp_path / "kustomization.yaml").write_text(OVERLAY)
    built = kubectl(gate.bed, "kustomize", tmp_path)
    (tmp_path / "built.yaml").write_text(built)
    output = kubectl(gate.bed, "apply", "--dry-run=server", "--validate=strict", "--filename", tmp_path / "built.yaml")
    assert len(output.splitlines()) == len(list(yaml.safe_load_all(built)))
    objects = {(entry["kind"], entry["metadata"]["name"]): entry for entry in yaml.safe_load_all(built)}
    (settings,) = (entry for (kind, _), entry in objects.items() if kind == "ConfigMap")
    for kind, name in (("Deployment", ACCOUNT), ("DaemonSet", AGENT)):
        (container,) = objects[kind, name]["spec"]["template"]["spec"]["containers"]
        assert container["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"]}}]
    assert settings["data"] == {"CLUSTER": "k8s:in-cluster", "MODE": "observe", "EVERY": "60", "OPTIONS": ""}


@pytest.mark.parametrize("own", ["", "apiVersion: v1\nkind: Namespace\nmetadata: {name: elsewhere}\n"])
def test_it_may_be_installed_in_another_namespace_also_by_who_makes_that(
    gate: GateBed, tmp_path: Path, own: str
) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "base")
    (tmp_path / "own.yaml").write_text(own)
    resources = "[base, own.yaml]" if own else "[base]"
    (tmp_path / "kustomization.yaml").write_text(f"resources: {resources}\nnamespace: elsewhere\n")
    built = list(yaml.safe_load_all(kubectl(gate.bed, "kustomize", tmp_path)))
    subjects = [subject for entry in built for subject in entry.get("subjects", ())]
    assert {entry["metadata"].get("namespace", "elsewhere") for entry in built} == {"elsewhere"}
    assert {entry["namespace"] for entry in subjects} == {"elsewhere"}
    assert [entry["metadata"]["name"] for entry in built if entry["kind"] == "Namespace"] == (
        ["elsewhere"] if own else []
    )


def test_the_gates_own_pod_would_be_admitted_where_pods_are_restricted(gate: GateBed) -> None:
    name = f"restricted-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    every = yaml.safe_load_all((MANIFESTS / "gate.yaml").read_text())
    deployment = next(entry for entry in every if entry["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"] | {"serviceAccountName": "default"}
    spec["containers"][0]["image"] = "x"
    call = gate.bed.plane.call
    call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    try:
        path = f"/api/v1/namespaces/{name}"
        wait_until(lambda: bool(gate.bed.plane.items(f"{path}/serviceaccounts")), "given an account")
        admitted = call("POST", f"{path}/pods?dryRun=All", {"metadata": {"name": "gate"}, "spec": spec})
    finally:
        call("DELETE", f"/api/v1/namespaces/{name}")
    assert admitted["metadata"]["name"] == "gate"


def test_the_readiness_rule_is_about_the_condition_that_the_gate_writes_and_only_looks() -> None:
    rule = yaml.safe_load((MANIFESTS / "readiness-rule.yaml").read_text())
    assert rule["spec"]["dryRun"] is True
    assert rule["spec"]["conditions"] == [{"type": CONDITION, "requiredStatus": "True"}]
    assert rule["spec"]["taint"]["effect"] == "NoSchedule"
