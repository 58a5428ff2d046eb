"""`clusterproof gate remove X`: everything that a gate wrote is removed from every node, and nothing else."""

from __future__ import annotations

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.kubernetes.gate import CONDITION, TAINT, GateSettings
from clusterproof.plugins.kubernetes.gate.write import remove
from tests.kubernetes.gate import FIT, UNFIT, GateBed, api_of, kubectl
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubectl

pytestmark = needs_kubectl
STARTUP = {"key": "clusterproof.dev/unproven", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/team", "effect": "NoSchedule"}


def removed(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The command's exit code and output, as the user in KUBECONFIG."""
    status = main(["gate", "remove", "k8s:bed"])
    output = capsys.readouterr()
    return status, output.out + output.err


def test_its_condition_and_taints_go_from_every_node_and_others_stay(
    gate: GateBed, kubernetes: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    removed(capsys)  # left by other tests
    with (
        kubernetes.node("gpu401", spec={"taints": [FOREIGN]}),
        kubernetes.node("gpu402"),
        kubernetes.node("gpu403", spec={"taints": [STARTUP]}),
    ):
        gate.write({"gpu401": UNFIT, "gpu402": FIT}, GateSettings(TAINT, "5"))
        assert len(gate.taints("gpu401")) == 2
        kubectl(kubernetes, "cordon", "gpu402")
        status, output = removed(capsys)
        assert status == 0, output
        assert [gate.condition(name) for name in ("gpu401", "gpu402", "gpu403")] == [{}, {}, {}]
        assert gate.condition("gpu401", "Ready")["status"] == "True"
        assert [gate.taints(name) for name in ("gpu401", "gpu403")] == [[FOREIGN], []]
        assert gate.node("gpu402")["spec"]["unschedulable"] is True
        again = removed(capsys)
    assert f"gate: gpu401: lost the condition {CONDITION}; lost the taint clusterproof.dev/unfit:NoSchedule\n" in output
    assert f"gate: gpu402: lost the condition {CONDITION}\n" in output
    assert "gate: gpu403: lost the taint clusterproof.dev/unproven:NoSchedule\n" in output
    assert again[0] == 0
    assert f"nodes has the condition {CONDITION} or a taint of clusterproof" in again[1]


def test_the_gates_own_account_may_remove_it_too(gate: GateBed) -> None:
    with gate.bed.node("gpu404"):
        gate.write({"gpu404": UNFIT}, GateSettings(TAINT, "5"))
        written = remove(api_of(gate.kubeconfig))
        assert (gate.condition("gpu404"), gate.taints("gpu404")) == ({}, [])
    assert written.problems == ()


def test_a_user_who_may_not_change_nodes_is_told_which_right_is_missing(
    gate: GateBed, kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, token = kubernetes.granted()
    with kubernetes.node("gpu405"):
        gate.write({"gpu405": FIT})
        monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
        status, output = removed(capsys)
        assert gate.condition("gpu405")["status"] == "True"
    assert status == 11
    assert "gate: not removed: gpu405: 403 Forbidden: nodes NODE is forbidden" in output
    assert 'cannot patch resource "nodes/status"' in output


@pytest.mark.parametrize("x", ["local", "k8s:nowhere", "eks:a/b"])
def test_what_is_no_cluster_of_kubernetes_is_refused(
    x: str, kubernetes: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", "remove", x]) == 4
    assert "expected" in capsys.readouterr().err
