"""What a thief of the gate's tokens could try, each refused by a real server."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.api import MERGE, STRATEGIC, KubernetesError
from clusterproof.plugins.kubernetes.gate import GateSettings, resident
from clusterproof.plugins.kubernetes.gate.write import UNCONFINED
from tests.counterparts import installed
from tests.kubernetes.gate import ACCOUNT, AGENT, FIT, MANIFESTS, GateBed, api_of, kubectl, rights
from tests.testbed.kubernetes.bed import NAMESPACE
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
HERE, SYSTEM = f"/api/v1/namespaces/{NAMESPACE}", "/api/v1/namespaces/kube-system"
APPS, BATCH = f"/apis/apps/v1/namespaces/{NAMESPACE}", f"/apis/batch/v1/namespaces/{NAMESPACE}"
TEAM = "/api/v1/namespaces/team-a"
NODE = "/api/v1/nodes/gpu601"
SHOWN = ("--show-only", "templates/wait.yaml", "--set", "image=x,wait.namespaces={team-a}")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
JSON = "application/json"
ROOT = {"name": "root", "image": "x", "securityContext": {"privileged": True}}
POD = {"metadata": {"name": "root"}, "spec": {"nodeName": "gpu601", "hostPID": True, "containers": [ROOT]}}
OF_PODS = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, **POD}}
TOKEN: dict[str, Any] = {"spec": {"expirationSeconds": 600}}
READY = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
OURS = {"status": {"conditions": [{"type": "ClusterproofHealthy", "status": "True"}]}}
EVENT = {"metadata": {"generateName": "x-"}, "involvedObject": {"kind": "Pod", "name": "x"}, "reason": "X"}
ELSEWHERE = {"kind": "Pod", "name": "x", "namespace": "kube-system"}
ADMIN = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
BINDING = {"metadata": {"name": "root"}, "roleRef": ADMIN, "subjects": []}
BY_BOTH = {
    "a privileged pod in the gate's namespace": ("POST", f"{HERE}/pods", POD),
    "a privileged pod beside the system's": ("POST", f"{SYSTEM}/pods", POD),
    "pods by a daemon set": ("POST", f"{APPS}/daemonsets", {"metadata": {"name": "root"}, "spec": OF_PODS}),
    "pods by a job": ("POST", f"{BATCH}/jobs", {"metadata": {"name": "root"}, "spec": {"template": POD}}),
    "another program in an agent": (MERGE, f"{APPS}/daemonsets/{AGENT}", {"spec": {"template": POD}}),
    "a container in a pod that runs": (STRATEGIC, f"{HERE}/pods/x/ephemeralcontainers", POD),
    "a command in an agent": ("POST", f"{HERE}/pods/x/exec", {}),
    "a token of the gate": ("POST", f"{HERE}/serviceaccounts/{ACCOUNT}/token", TOKEN),
    "a token of an agent": ("POST", f"{HERE}/serviceaccounts/{AGENT}/token", TOKEN),
    "a token of the system's": ("POST", f"{SYSTEM}/serviceaccounts/node-controller/token", TOKEN),
    "all rights": ("POST", f"{RBAC}/clusterrolebindings", BINDING),
    "another policy": (
        MERGE,
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/clusterproof-gate",
        {},
    ),
    "the settings of the gate": (MERGE, f"{HERE}/configmaps/clusterproof-gate", {}),
    "secrets": ("GET", f"{SYSTEM}/secrets", {}),
    "logs of others": ("GET", f"{SYSTEM}/pods/x/log", {}),
    "a kubelet's own API": ("GET", f"{NODE}/proxy/runningpods", {}),
    "another condition": (STRATEGIC, f"{NODE}/status", READY),
    "a node that is gone": ("DELETE", NODE, {}),
    "a cordon": (MERGE, NODE, {"spec": {"unschedulable": True}}),
    "an event of a pod": ("POST", "/api/v1/namespaces/default/events", EVENT),
    "an event elsewhere": ("POST", f"{SYSTEM}/events", {**EVENT, "involvedObject": ELSEWHERE}),
}
BY_AGENTS = {
    "the gate's condition of another node": (STRATEGIC, f"{NODE}/status", OURS),
    "the names of nodes": ("GET", "/api/v1/nodes", {}),
    "what other agents report": ("GET", f"{HERE}/pods/x/log", {}),
    "which pods there are": ("GET", f"{HERE}/pods", {}),
    "a lease": ("POST", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases", {"metadata": {"name": "x"}}),
}


BY_WAITING = {
    **BY_BOTH,
    **BY_AGENTS,
    "a privileged pod in its own namespace": ("POST", f"{TEAM}/pods", POD),
    "the condition that it waits for": (STRATEGIC, f"{NODE}/status", OURS),
    "its own node's taints": (MERGE, NODE, {"spec": {"taints": []}}),
    "secrets of its own namespace": ("GET", f"{TEAM}/secrets", {}),
    "pods of its own namespace": ("GET", f"{TEAM}/pods", {}),
    "a token of itself": ("POST", f"{TEAM}/serviceaccounts/default/token", TOKEN),
    "the kubelet's metrics": ("GET", f"{NODE}/proxy/metrics", {}),
    "the status of a node": ("GET", f"{NODE}/status", {}),
}


@pytest.fixture(scope="module")
def of_waiting(gate: GateBed) -> Iterator[Path]:
    """The access of a pod in a namespace of `wait.namespaces`, as the chart grants it."""
    call = gate.bed.plane.call
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "team-a"}})
    rules = subprocess.run(
        [installed.folder("kubernetes") / "helm", "template", "x", MANIFESTS / "chart", *SHOWN],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    file = gate.bed.plane.folder / "wait.yaml"
    file.write_text(rules)
    kubectl(gate.bed, "apply", "--filename", file)
    try:
        kubectl(gate.bed, "create", "serviceaccount", "waiting", "--namespace", "team-a")
        way = gate.bed.plane.kubeconfig(
            kubectl(gate.bed, "create", "token", "waiting", "--namespace", "team-a").strip()
        )
        wait_until(lambda: bool(rights(way, "team-a")), "granted")
        yield way
    finally:
        kubectl(gate.bed, "delete", "--filename", file)
        call("DELETE", "/api/v1/namespaces/team-a")


def answer(gate: GateBed, account: str, how: str, path: str, body: object) -> KubernetesError | None:
    """The server's refusal of a request by a gate account; None if it complies."""
    return answer_to(gate.kubeconfig if account == ACCOUNT else gate.of_agent, how, path, body)


def answer_to(kubeconfig: Path, how: str, path: str, body: object) -> KubernetesError | None:
    api = api_of(kubeconfig)
    try:
        if how == "GET":
            api.get(path)
        elif how == "POST":
            api.create(path, body)
        elif how == "DELETE":
            api.delete(path)
        else:
            api.patch(path, body, how)
    except KubernetesError as refused:
        return refused
    return None


@pytest.mark.parametrize("account", [ACCOUNT, AGENT])
@pytest.mark.parametrize("wanted", BY_BOTH)
def test_neither_account_gets(gate: GateBed, account: str, wanted: str) -> None:
    with gate.bed.node("gpu601"):
        refused = answer(gate, account, *BY_BOTH[wanted])
    assert refused is not None
    assert refused.status in (403, 422), refused
    assert account in str(refused) or "clusterproof-gate" in str(refused)


@pytest.mark.parametrize("wanted", BY_AGENTS)
def test_an_agents_account_has_no_right_at_all_not_even_to(gate: GateBed, wanted: str) -> None:
    with gate.bed.node("gpu601"):
        refused = answer(gate, AGENT, *BY_AGENTS[wanted])
    assert refused is not None
    assert f'User "system:serviceaccount:{NAMESPACE}:{AGENT}" cannot' in str(refused)


@pytest.mark.parametrize("wanted", BY_WAITING)
def test_a_pod_that_waits_reads_nodes_and_gets_nothing_of(gate: GateBed, of_waiting: Path, wanted: str) -> None:
    with gate.bed.node("gpu601"):
        refused = answer_to(of_waiting, *BY_WAITING[wanted])
        assert api_of(of_waiting).get(NODE)["metadata"]["name"] == "gpu601"
    assert refused is not None
    assert 'User "system:serviceaccount:team-a:waiting" cannot' in str(refused)


AS_AGENT = {"app.kubernetes.io/name": "clusterproof", "app.kubernetes.io/component": "agent"}


@pytest.mark.parametrize("namespace", [NAMESPACE, "default"])
def test_nobody_makes_a_pod_that_looks_like_an_agent(gate: GateBed, namespace: str) -> None:
    call, pods = gate.bed.plane.call, f"/api/v1/namespaces/{namespace}/pods"
    plain = {"metadata": {"name": "plain"}, "spec": {"containers": [ROOT]}}
    message = "only a DaemonSet makes agents of clusterproof"
    admin = api_of(gate.bed.plane.kubeconfig())
    with pytest.raises(KubernetesError, match=message):
        admin.create(pods, {**plain, "metadata": {"name": "agent", "labels": AS_AGENT}})
    admin.create(pods, plain)
    try:
        with pytest.raises(KubernetesError, match=message):
            admin.patch(f"{pods}/plain", {"metadata": {"labels": AS_AGENT}}, MERGE)
    finally:
        call("DELETE", f"{pods}/plain?gracePeriodSeconds=0")


def test_a_gate_that_nothing_confines_says_so(gate: GateBed) -> None:
    with gate.bed.node("gpu602"):
        held = gate.write({"gpu602": FIT}, resident(GateSettings(), 60))
        free = gate.write({"gpu602": FIT}, resident(GateSettings(), 60), api=api_of(gate.bed.plane.kubeconfig()))
        assert "clusterproof.dev/trial" not in gate.node("gpu602")["metadata"].get("annotations", {})
    assert UNCONFINED not in held.lines
    assert UNCONFINED in free.lines


def test_the_gate_is_held_by_its_policy_in_any_namespace(gate: GateBed) -> None:
    call = gate.bed.plane.call
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    try:
        accounts = "/api/v1/namespaces/elsewhere/serviceaccounts"
        call("POST", accounts, {"metadata": {"name": ACCOUNT}})
        token = call("POST", f"{accounts}/{ACCOUNT}/token", TOKEN)["status"]["token"]
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "elsewhere"}
        call("POST", f"{RBAC}/clusterrolebindings", {**BINDING, "subjects": [subject]})
        with gate.bed.node("gpu601"), pytest.raises(KubernetesError, match="cordons no node"):
            api_of(gate.bed.plane.kubeconfig(str(token))).patch(NODE, {"spec": {"unschedulable": True}}, MERGE)
    finally:
        call("DELETE", f"{RBAC}/clusterrolebindings/root")
        call("DELETE", "/api/v1/namespaces/elsewhere")
