"""The gate's taint and the startup taint of new nodes, on a real API server, beside those of others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.api import Api
from clusterproof.plugins.kubernetes.gate import OBSERVE, TAINT, GateSettings
from tests.kubernetes.gate import FIT, UNFIT, UNKNOWN_YET, GateBed, kubectl
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
OURS = {"key": "clusterproof.dev/unfit", "effect": "NoSchedule"}
STARTUP = {"key": "clusterproof.dev/unproven", "effect": "NoExecute"}
FOREIGN = {"key": "example.com/team", "value": "a", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}
SEE = "see first whether one thing is wrong with all of them"
ONE, TWO = GateSettings(TAINT, "1"), GateSettings(TAINT, "2")


@contextlib.contextmanager
def nodes(gate: GateBed, *names: str, taints: tuple[dict[str, str], ...] = ()) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(gate.bed.node(name, labels={"of": "gate"}, spec={"taints": list(taints)}))
        yield


SIDECAR = {
    "name": "server",
    "image": "x",
    "restartPolicy": "Always",
    "resources": {"limits": {"nvidia.com/gpu": "8"}},
}


@contextlib.contextmanager
def pod_on(gate: GateBed, node: str, **spec: Any) -> Iterator[None]:
    path = "/api/v1/namespaces/default/pods"
    container = {"name": "train", "image": "x", **spec.pop("container", {})}
    body = {"metadata": {"name": f"on-{node}"}, "spec": {"nodeName": node, "containers": [container], **spec}}
    gate.bed.plane.call("POST", path, body)
    try:
        yield
    finally:
        gate.bed.plane.call("DELETE", f"{path}/on-{node}?gracePeriodSeconds=0")


def test_a_node_that_failed_is_tainted_and_one_that_passes_is_not_any_more(gate: GateBed) -> None:
    with nodes(gate, "gpu201", taints=(FOREIGN,)):
        written = gate.write({"gpu201": UNFIT}, ONE)
        assert gate.taints("gpu201") == [FOREIGN, OURS]
        assert "gpu201: got the taint clusterproof.dev/unfit:NoSchedule" in written.lines
        gate.write({"gpu201": UNFIT}, ONE)
        assert gate.taints("gpu201") == [FOREIGN, OURS]
        written = gate.write({"gpu201": FIT}, ONE)
        assert gate.taints("gpu201") == [FOREIGN]
        assert "gpu201: lost the taint clusterproof.dev/unfit:NoSchedule" in written.lines
        changes = [message.partition(" the taint")[0] for _, message in gate.events("gpu201") if "the taint" in message]
        assert changes == ["got", "lost"]


def test_to_observe_changes_no_taint_and_says_which_stays(gate: GateBed) -> None:
    with nodes(gate, "gpu202"), nodes(gate, "gpu203", taints=(OURS,)):
        written = gate.write({"gpu202": UNFIT, "gpu203": FIT}, GateSettings(OBSERVE))
        assert (gate.taints("gpu202"), gate.taints("gpu203")) == ([], [OURS])
    assert "gpu203: the taint clusterproof.dev/unfit stays, as only --k8s-gate taint takes it away" in written.lines


def test_what_is_incomplete_neither_gives_a_taint_nor_takes_it(gate: GateBed) -> None:
    with nodes(gate, "gpu204"), nodes(gate, "gpu205", taints=(OURS, STARTUP)):
        orders = GateSettings(TAINT, "5", STARTUP["key"])
        gate.write({"gpu204": UNKNOWN_YET, "gpu205": UNKNOWN_YET}, orders)
        assert (gate.taints("gpu204"), gate.taints("gpu205")) == ([], [OURS, STARTUP])


def test_where_40_nodes_fail_at_once_none_is_tainted_and_one_line_says_why(gate: GateBed) -> None:
    names = [f"many{number:03d}" for number in range(40)]
    for name in names:
        gate.bed.add_node(name, labels={"many": "yes"})
    try:
        written = gate.write(dict.fromkeys(names, UNFIT), GateSettings(TAINT))
        every = gate.bed.plane.items("/api/v1/nodes?labelSelector=many%3Dyes")
    finally:
        gate.bed.plane.call("DELETE", "/api/v1/nodes?labelSelector=many%3Dyes")
    keys = {taint["key"] for entry in every for taint in entry["spec"].get("taints", ())}
    assert OURS["key"] not in keys
    verdicts = [
        entry for node in every for entry in node["status"]["conditions"] if entry["type"] == "ClusterproofHealthy"
    ]
    assert [entry["status"] for entry in verdicts] == ["False"] * 40
    assert written.lines == (
        "ClusterproofHealthy of 40 of 40 nodes: 40 False; 40 changed",
        f"no node is tainted: 40 of 40 nodes would be; expected at most 4: {SEE}",
    )
    assert written.problems == ()


def test_those_that_have_it_already_count(gate: GateBed) -> None:
    with nodes(gate, "gpu206", taints=(OURS,)), nodes(gate, "gpu207", "gpu208"):
        written = gate.write({"gpu207": UNFIT, "gpu208": UNFIT}, TWO)
        assert gate.taints("gpu207") == gate.taints("gpu208") == []
        assert "3 of 2 nodes would be (1 already); expected at most 2" in written.lines[-1]


def test_those_that_lose_it_in_the_same_run_count_no_more(gate: GateBed) -> None:
    with nodes(gate, "gpu209", taints=(OURS,)), nodes(gate, "gpu210"):
        gate.write({"gpu209": FIT, "gpu210": UNFIT}, ONE)
        assert (gate.taints("gpu209"), gate.taints("gpu210")) == ([], [OURS])


@pytest.mark.parametrize(
    "spec",
    [
        {"container": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}},
        {"container": {"resources": {"limits": {"aws.amazon.com/neuron": "1"}}}},
        {"resourceClaims": [{"name": "gpus", "resourceClaimName": "gpus"}]},
        {"initContainers": [SIDECAR]},
    ],
    ids=["GPUs", "Neuron devices", "a claim", "GPUs of a sidecar"],
)
def test_a_node_whose_accelerators_pods_have_is_spared(gate: GateBed, spec: dict[str, Any]) -> None:
    with nodes(gate, "gpu211", "gpu212"), pod_on(gate, "gpu211", **spec):
        written = gate.write({"gpu211": UNFIT, "gpu212": UNFIT}, TWO)
        assert (gate.taints("gpu211"), gate.taints("gpu212")) == ([], [OURS])
    assert "not tainted while pods have their accelerators: gpu211" in written.lines


def test_the_taint_that_new_nodes_begin_with_goes_with_the_first_pass_and_no_other(gate: GateBed) -> None:
    other = {"key": "clusterproof.dev/other", "effect": "NoSchedule"}
    orders = GateSettings(OBSERVE, startup=STARTUP["key"])
    with nodes(gate, "gpu213", "gpu214", taints=(other, STARTUP, FOREIGN)):
        gate.write({"gpu213": FIT, "gpu214": UNFIT}, orders)
        assert gate.taints("gpu213") == [other, FOREIGN]
        assert gate.taints("gpu214") == [other, STARTUP, FOREIGN]


OTHERS = (  # other startup taints, which their own controllers remove
    {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
    {"key": "startup-taint.cluster-autoscaler.kubernetes.io/gpu-driver", "effect": "NoSchedule"},
    {"key": "readiness.k8s.io/network-unready", "effect": "NoSchedule"},
    {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"},
)


@pytest.mark.parametrize(
    "key",
    [
        "clusterproof.dev/unproven",
        "startup-taint.cluster-autoscaler.kubernetes.io/clusterproof-unproven",
        "sagemaker.amazonaws.com/clusterproof-unproven",
    ],
)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_whatever_a_node_group_calls_it_only_our_own_startup_taint_goes(gate: GateBed, key: str, effect: str) -> None:
    own = {"key": key, "value": "true", "effect": effect}
    with nodes(gate, "gpu217", taints=(OTHERS[0], own, *OTHERS[1:])):
        orders = GateSettings(OBSERVE, startup=key)
        for not_yet in (UNKNOWN_YET, UNFIT):
            gate.write({"gpu217": not_yet}, orders)
            assert own in gate.taints("gpu217")
        written = gate.write({"gpu217": FIT}, orders)
        left = [(taint["key"], taint["effect"]) for taint in gate.taints("gpu217")]
    assert written.problems == ()
    assert left == [(taint["key"], taint["effect"]) for taint in OTHERS]


@pytest.mark.parametrize(("health", "before", "after"), [(UNFIT, [], [FOREIGN, OURS]), (FIT, [OURS], [FOREIGN])])
def test_a_taint_of_another_that_comes_in_between_is_kept(
    gate: GateBed, monkeypatch: Any, health: Any, before: list[dict[str, str]], after: list[dict[str, str]]
) -> None:
    patch, tries = Api.patch, []

    def after_another(api: Api, path: str, body: Any, kind: str) -> Any:
        if "spec" in body:
            tries.append(path)
        if len(tries) == 1 and "spec" in body:
            change = {"spec": {"taints": [FOREIGN, *before]}}
            gate.bed.plane.patch(path, change)
        return patch(api, path, body, kind)

    with nodes(gate, "gpu215", taints=tuple(before)):
        monkeypatch.setattr(Api, "patch", after_another)
        assert gate.write({"gpu215": health}, ONE).problems == ()
        assert gate.taints("gpu215") == after
    assert len(tries) >= 2


def test_where_others_change_a_node_each_time_that_is_reported_and_the_next_run_comes_to_it(
    gate: GateBed, monkeypatch: Any
) -> None:
    patch = Api.patch
    changes = iter(range(100))

    def after_another(api: Api, path: str, body: Any, kind: str) -> Any:
        if "spec" in body:
            gate.bed.plane.patch(path, {"metadata": {"labels": {"changed": str(next(changes))}}})
        return patch(api, path, body, kind)

    with nodes(gate, "gpu216"):
        with monkeypatch.context() as patched:
            patched.setattr(Api, "patch", after_another)
            (problem,) = gate.write({"gpu216": UNFIT}, ONE).problems
        assert problem == "gpu216: others changed it 5 times meanwhile; expected to write it in the next run"
        gate.write({"gpu216": UNFIT}, ONE)
        assert gate.taints("gpu216") == [OURS]


def test_pods_that_run_stay_and_nothing_is_cordoned(gate: GateBed) -> None:
    with nodes(gate, "gpu217"), pod_on(gate, "gpu217"):
        gate.write({"gpu217": UNFIT}, ONE)
        assert gate.taints("gpu217") == [OURS]
        assert "on-gpu217" in kubectl(gate.bed, "get", "pods", "--namespace", "default")
        assert "unschedulable" not in gate.node("gpu217")["spec"]
