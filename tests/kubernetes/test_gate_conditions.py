"""The gate's condition and events, written to a real API server with the manifests' account."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.api import STRATEGIC, Api
from clusterproof.plugins.kubernetes.gate import GateSettings, Health, bounded, resident
from clusterproof.plugins.kubernetes.gate.write import write
from tests.kubernetes.gate import FIT, UNFIT, UNKNOWN_YET, GateBed, api_of, kubectl
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
NOON = 1_800_000_000.0  # 2027-01-15T08:00:00Z
FOREIGN = {"type": "GPUMissing", "status": "False", "reason": "NoProblem", "message": "all are there"}


def test_a_verdict_is_a_condition_and_an_event(gate: GateBed) -> None:
    with gate.bed.node("gpu101"):
        written = gate.write({"gpu101": UNFIT}, now=NOON)
        assert gate.condition("gpu101") == {
            "type": "ClusterproofHealthy",
            "status": "False",
            "reason": "GpuGpuCount",
            "message": "gpu.gpu_count: NVML counts 7 GPUs; expected 8",
            "lastHeartbeatTime": "2027-01-15T08:00:00Z",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        }
        assert gate.events("gpu101") == [("Warning", f"ClusterproofHealthy is False, was not there: {UNFIT.message}")]
        assert "GpuGpuCount" in kubectl(gate.bed, "describe", "node", "gpu101").partition("Events:")[2]
    assert written.lines == ("ClusterproofHealthy of 1 of 1 nodes: 1 False; 1 changed",)
    assert written.problems == ()


def test_the_same_verdict_again_is_a_heartbeat_and_nothing_more(gate: GateBed) -> None:
    with gate.bed.node("gpu102"):
        gate.write({"gpu102": FIT}, now=NOON)
        gate.write({"gpu102": FIT}, now=NOON + 900)
        condition = gate.condition("gpu102")
        assert condition["lastHeartbeatTime"] == "2027-01-15T08:15:00Z"
        assert condition["lastTransitionTime"] == "2027-01-15T08:00:00Z"
        assert len(gate.events("gpu102")) == 1


def test_a_gate_that_looks_each_minute_writes_the_same_verdict_each_five(gate: GateBed) -> None:
    orders = resident(GateSettings(), 60)
    with gate.bed.node("gpu110"):
        for seconds in (0, 60, 240):
            written = gate.write({"gpu110": FIT}, orders, now=NOON + seconds)
        assert gate.condition("gpu110")["lastHeartbeatTime"] == "2027-01-15T08:00:00Z"
        assert written.lines == ("ClusterproofHealthy of 0 of 0 nodes: none; 0 changed; 1 as before",)
        gate.write({"gpu110": FIT}, orders, now=NOON + 301)
        assert gate.condition("gpu110")["lastHeartbeatTime"] == "2027-01-15T08:05:01Z"
        gate.write({"gpu110": UNFIT}, orders, now=NOON + 302)
        assert gate.condition("gpu110")["status"] == "False"


def test_a_node_whose_report_is_late_keeps_its_condition_until_that_is_old(gate: GateBed) -> None:
    orders, late = (
        resident(GateSettings(), 60),
        Health("Unknown", "NotReached", "its agent reported nothing within 105 s"),
    )
    with gate.bed.node("gpu111"), gate.bed.node("gpu112"):
        gate.write({"gpu111": FIT}, orders, now=NOON)
        gate.write({"gpu111": late, "gpu112": late}, orders, now=NOON + 460)
        assert [gate.condition(name)["status"] for name in ("gpu111", "gpu112")] == ["True", "Unknown"]
        gate.write({"gpu111": late}, orders, now=NOON + 481)
        assert gate.condition("gpu111")["status"] == "Unknown"


def test_it_flips_in_each_direction_with_an_event_and_the_time_of_it(gate: GateBed) -> None:
    turns = (FIT, UNFIT, UNKNOWN_YET, UNFIT, FIT)
    with gate.bed.node("gpu103"):
        for number, health in enumerate(turns):
            gate.write({"gpu103": health}, now=NOON + 60 * number)
            assert gate.condition("gpu103")["status"] == health.status
            assert gate.condition("gpu103")["lastTransitionTime"] == f"2027-01-15T08:0{number}:00Z"
        events = gate.events("gpu103")
    assert [message.partition(":")[0] for _, message in events] == [
        "ClusterproofHealthy is True, was not there",
        "ClusterproofHealthy is False, was True",
        "ClusterproofHealthy is Unknown, was False",
        "ClusterproofHealthy is False, was Unknown",
        "ClusterproofHealthy is True, was False",
    ]
    assert [kind for kind, _ in events] == ["Normal", "Warning", "Normal", "Warning", "Normal"]


def test_another_fault_of_an_unfit_node_is_an_event_but_no_transition(gate: GateBed) -> None:
    other = Health("False", "GpuNoXid", "gpu.no_xid: GPU 3: Xid 79; expected none")
    with gate.bed.node("gpu104"):
        gate.write({"gpu104": UNFIT}, now=NOON)
        gate.write({"gpu104": other}, now=NOON + 60)
        assert gate.condition("gpu104")["reason"] == "GpuNoXid"
        assert gate.condition("gpu104")["lastTransitionTime"] == "2027-01-15T08:00:00Z"
        assert len(gate.events("gpu104")) == 2


def test_conditions_of_others_that_come_in_between_stay_as_they_are(gate: GateBed, monkeypatch: Any) -> None:
    patch = Api.patch

    def after_another(api: Api, path: str, body: object, kind: str) -> Any:
        gate.bed.plane.call("PATCH", "/api/v1/nodes/gpu105/status", {"status": {"conditions": [FOREIGN]}}, STRATEGIC)
        return patch(api, path, body, kind)

    with gate.bed.node("gpu105"):
        ready = gate.condition("gpu105", "Ready")
        monkeypatch.setattr(Api, "patch", after_another)
        assert gate.write({"gpu105": UNFIT}).problems == ()
        assert gate.condition("gpu105")["status"] == "False"
        condition = gate.condition("gpu105", "GPUMissing")
        assert {key: condition[key] for key in FOREIGN} == FOREIGN
        assert gate.condition("gpu105", "Ready")["reason"] == ready["reason"]


def test_it_stands_beside_those_that_a_kubelet_writes_again_and_again(gate: GateBed) -> None:
    name = gate.bed.machine.name
    gate.write({name: FIT}, now=NOON)
    before = gate.condition(name, "Ready")["lastHeartbeatTime"]
    wait_until(lambda: gate.condition(name, "Ready")["lastHeartbeatTime"] > before, "reported again by the kubelet")
    assert gate.condition(name)["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    assert gate.condition(name, "Ready")["status"] == "True"


def test_a_node_that_was_recreated_since_the_run_began_gets_no_condition_of_its_predecessor(gate: GateBed) -> None:
    with gate.bed.node("gpu106"):
        written = gate.write({"gpu106": UNFIT, "gpu107": UNFIT}, began=time.time() - 600)
        assert gate.condition("gpu106") == {}
    assert written.lines == (
        "gpu106: created anew since the run began: the next run evaluates it",
        "gpu107: not in Kubernetes any more",
    )
    assert written.problems == ()


def test_what_stands_of_a_node_since_an_earlier_round_is_not_written_to_its_successor(gate: GateBed) -> None:
    now, earlier = time.time(), {"gpu106": time.time() - 600}
    with gate.bed.node("gpu106"), gate.bed.node("gpu107"):
        healths = {"gpu106": UNFIT, "gpu107": FIT}
        written = write(api_of(gate.kubeconfig), GateSettings(), healths, now + 60, now, earlier)
        assert (gate.condition("gpu106"), gate.condition("gpu107")["status"]) == ({}, "True")
    assert written.is_open


def test_a_node_that_goes_while_it_is_written_to_hinders_no_other(gate: GateBed, monkeypatch: Any) -> None:
    patch = Api.patch

    def after_it_went(api: Api, path: str, body: object, kind: str) -> Any:
        if "gpu108" in path:
            gate.bed.plane.call("DELETE", "/api/v1/nodes/gpu108")
        return patch(api, path, body, kind)

    gate.bed.add_node("gpu108")
    with gate.bed.node("gpu109"):
        monkeypatch.setattr(Api, "patch", after_it_went)
        written = gate.write({"gpu108": FIT, "gpu109": FIT})
        assert gate.condition("gpu109")["status"] == "True"
    assert "gpu108: not in Kubernetes any more" in written.lines
    assert written.problems == ()


@pytest.mark.parametrize("message", ["x" * 10_000, "\x1b[2J\u202e" + "ü" * 300, "a\nb"])
def test_the_server_takes_what_a_node_may_have_reported(gate: GateBed, message: str) -> None:
    with gate.bed.node("gpu110"):
        assert gate.write({"gpu110": Health("False", "HostMemlock", bounded(message))}).problems == ()
        stored = gate.condition("gpu110")["message"]
    assert len(stored) <= 240
    assert stored.isprintable()


OF_SOME_NODES = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: of-some-nodes}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes/status]}]
  matchConditions: [{name: those-nodes, expression: object.metadata.name.startsWith("gpu111")}]
  validations: [{expression: "false", message: in maintenance}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: of-some-nodes}
spec: {policyName: of-some-nodes, validationActions: [Deny]}
"""


def test_a_policy_of_the_site_over_some_nodes_keeps_no_verdict_from_the_others(gate: GateBed, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(OF_SOME_NODES)
    policed = ["gpu1111", "gpu1112", "gpu1113"]  # the first to be written
    with ExitStack() as stack:
        for name in (*policed, "gpu112"):
            stack.enter_context(gate.bed.node(name))
        kubectl(gate.bed, "apply", "--filename", tmp_path / "policy.yaml")
        try:
            conditions: dict[str, object] = {"status": {"conditions": []}}
            path = "/api/v1/nodes/gpu1111/status"
            wait_until(lambda: "in maintenance" in gate.refusal(path, conditions, STRATEGIC), "in force")
            written = gate.write({**dict.fromkeys(policed, FIT), "gpu112": UNFIT}, now=NOON)
        finally:
            kubectl(gate.bed, "delete", "--filename", tmp_path / "policy.yaml")
        assert gate.condition("gpu112")["status"] == "False"
    (problem,) = written.problems
    assert problem.startswith("gpu[1111-1113]: ")
    assert "in maintenance" in problem


def test_it_survives_the_api_server_and_one_that_is_away_is_reported(gate: GateBed) -> None:
    plane = gate.bed.plane
    assert plane.apiserver
    with gate.bed.node("gpu114"):
        gate.write({"gpu114": UNFIT}, now=NOON, began=NOON * 2)
        plane.apiserver.stop(signal.SIGKILL)
        try:
            (problem,) = gate.write({"gpu114": UNFIT}, now=NOON, began=NOON * 2).problems
        finally:
            plane.restart_apiserver()
        written = gate.write({"gpu114": UNFIT}, now=NOON + 60, began=NOON * 2)
        condition = gate.condition("gpu114")
    assert problem.startswith(f"no answer from {plane.url}")
    assert written.lines == ("ClusterproofHealthy of 1 of 1 nodes: 1 False; 0 changed",)
    assert condition["lastTransitionTime"] == "2027-01-15T08:00:00Z"
