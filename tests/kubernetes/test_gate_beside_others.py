"""The gate beside other programs that look after nodes: what it reads, leaves alone, and reports of theirs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.kubernetes.api import MERGE, STRATEGIC, KubernetesError
from clusterproof.plugins.kubernetes.gate import OF_KUBERNETES, TAINT, GateSettings, Health
from clusterproof.plugins.kubernetes.gate.objects import moment
from tests.kubernetes.control_plane import cluster_facts, expect, p5, says
from tests.kubernetes.gate import FIT, MANIFESTS, UNFIT, UNKNOWN_YET, GateBed, api_of, kubectl
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
REPAIRED_BY_KARPENTER = {  # aws/karpenter-provider-aws @1d927085, pkg/cloudprovider: RepairPolicies
    "Ready",
    "AcceleratedHardwareReady",
    "StorageReady",
    "NetworkingReady",
    "KernelReady",
    "ContainerRuntimeReady",
}
# What it has reported as unhealthy: NVIDIA/NVSentinel @745095a3, kubernetes-object-monitor/pkg/annotations
MATCHES = "nvsentinel.nvidia.com/k8s-object-monitor-policy-matches"
WITH_XID = Health("False", "GpuNoXid", "gpu.no_xid: Xid 79")


def condition(kind: str, status: str) -> dict[str, Any]:
    """A condition as a third-party agent writes it."""
    fields = {"type": kind, "status": status, "reason": "TheirReason", "message": "theirs"}
    return {**fields, "lastHeartbeatTime": moment(0), "lastTransitionTime": moment(0)}


@contextlib.contextmanager
def refusing(bed: Bed, predicate: str) -> Iterator[None]:
    """A policy by which the API server's own CEL refuses changes of nodes for which this is true."""
    name = "predicate-of-nvsentinel"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}]
    trial = {"name": "trial", "expression": 'object.metadata.?labels["trial"].hasValue()'}
    of_object = predicate.replace("resource.", "object.")
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}, "matchConditions": [trial]}
    spec["validations"] = [{"expression": f"!({of_object})", "message": "the predicate is true"}]
    bound = {"policyName": name, "validationActions": ["Deny"]}
    kinds = ((POLICIES, spec), (POLICIES.replace("policies", "policybindings"), bound))
    for path, of_kind in kinds:
        bed.plane.call("POST", path, {"metadata": {"name": name}, "spec": of_kind})
    try:
        yield
    finally:
        for path, _ in kinds:
            bed.plane.call("DELETE", f"{path}/{name}")


def test_nvsentinels_monitor_sees_a_node_that_is_unfit_until_it_is_proven_and_no_other(gate: GateBed) -> None:
    values = yaml.safe_load((MANIFESTS / "nvsentinel-values.yaml").read_text())
    (policy,) = values["kubernetes-object-monitor"]["policies"]
    assert policy["resource"] == {"group": "", "version": "v1", "kind": "Node"}
    admin = api_of(gate.bed.plane.kubeconfig())

    def is_true(name: str) -> bool:
        try:
            admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"trial": "x"}}}, MERGE, dryRun="All")
        except KubernetesError as refused:
            return "the predicate is true" in str(refused)
        return False

    # A predicate that becomes false makes the monitor report the node healthy, which ends its cordon.
    cases = {
        "gpu711": (UNFIT, "", True),
        "gpu712": (FIT, policy["name"], False),
        "gpu713": (UNKNOWN_YET, "", False),
        "gpu714": (None, "", False),
        "gpu719": (UNKNOWN_YET, policy["name"], True),
        "gpu720": (UNKNOWN_YET, "another", False),
    }
    with contextlib.ExitStack() as stack:
        for name, (_, matched, _) in cases.items():
            stack.enter_context(gate.bed.node(name))
            matches = {MATCHES: json.dumps({f"{matched}/{name}": name})} if matched else {}
            admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": matches}}, MERGE)
        gate.write({name: health for name, (health, _, _) in cases.items() if health})
        stack.enter_context(refusing(gate.bed, policy["predicate"]["expression"]))
        wait_until(lambda: is_true("gpu711"), "known to the API server")
        assert {name: is_true(name) for name in cases} == {name: expected for name, (_, _, expected) in cases.items()}


@pytest.mark.parametrize("kind", [*sorted(REPAIRED_BY_KARPENTER), "KernelDeadlock"])
def test_conditions_of_others_stay_as_they_wrote_them_whatever_the_gate_finds(gate: GateBed, kind: str) -> None:
    theirs, path = condition(kind, "False"), "/api/v1/nodes/gpu715/status"
    admin = api_of(gate.bed.plane.kubeconfig())
    with gate.bed.node("gpu715"):
        admin.patch(path, {"status": {"conditions": [theirs]}}, STRATEGIC)
        gate.write({"gpu715": WITH_XID}, GateSettings(TAINT, "5"))
        assert gate.condition("gpu715", kind) == theirs
        admin.patch(path, {"status": {"conditions": [{**theirs, "status": "True"}]}}, STRATEGIC)
        assert gate.condition("gpu715")["reason"] == WITH_XID.reason


def test_a_node_that_others_cordoned_or_tainted_stays_so_when_it_passes(gate: GateBed) -> None:
    theirs = {"key": "node.nvsentinel/quarantined", "effect": "NoExecute"}
    with gate.bed.node("gpu716", spec={"taints": [theirs]}):
        kubectl(gate.bed, "cordon", "gpu716")
        gate.write({"gpu716": UNFIT}, GateSettings(TAINT, "5"))
        gate.write({"gpu716": FIT}, GateSettings(TAINT, "5"))
        assert gate.taints("gpu716") == [theirs]
        assert gate.node("gpu716")["spec"]["unschedulable"] is True


@pytest.mark.parametrize(
    ("kind", "status"),
    [("AcceleratedHardwareReady", "False"), ("KernelDeadlock", "True"), ("GPUMissing", "True")],
)
def test_what_others_found_is_said_in_reports_and_not_written_back_as_the_gates_own(
    kubernetes: Bed, kind: str, status: str
) -> None:
    with p5(kubernetes, "gpu717", "gpu718"):
        admin = api_of(kubernetes.plane.kubeconfig())
        admin.patch("/api/v1/nodes/gpu717/status", {"status": {"conditions": [condition(kind, status)]}}, STRATEGIC)
        result = says("k8s_node_ready", cluster_facts())
    expect(result, Verdict.CONCERN, kind)
    assert (result.node, result.subject) == ("gpu717", OF_KUBERNETES)
