"""What sinfo and scontrol say of this cluster's nodes: which are drained by us, and which may be resumed."""

from __future__ import annotations

import pytest

from clusterproof.integrations.slurm import control, our_drains
from clusterproof.integrations.slurm.our_drains import Claim


def test_only_nodes_that_are_drained_for_reasons_of_ours_count() -> None:
    ours = "gpu001|drained|1700000002|clusterproof: gpu.no_xid: Xid 79 | more\n"
    listing = (
        f"{ours}gpu002|drained*|1700000001|a fan is loud\ngpu003|idle|Unknown|none\n{ours}"
        "gpu004|idle|1700000001|clusterproof: gpu.no_xid: Xid 79\n"  # 24.11 keeps it when a node is resumed
        "gpu005|draining|1700000001|clusterproof: gpu.no_xid: Xid 79\n"
    )
    claims, total = our_drains.parse_claims(listing)
    assert (claims, total) == ((Claim(1700000001, "gpu005"), Claim(1700000002, "gpu001")), 5)
    assert [our_drains.ahead(claims, name) for name in ("gpu005", "gpu001", "gpu002")] == [0, 1, 2]


@pytest.mark.parametrize("state", ["reboot", "reboot^", "reboot*", "inval"])
def test_a_drained_node_counts_though_sinfo_names_another_of_its_states_first(state: str) -> None:
    claims, _ = our_drains.parse_claims(f"gpu001|{state}|1700000001|clusterproof: gpu.no_xid: Xid 79\n")
    assert claims == (Claim(1700000001, "gpu001"),)


@pytest.mark.parametrize(
    ("state", "reason", "read", "may_be_resumed"),
    [
        ("IDLE+DRAIN", "clusterproof: x", "clusterproof: x", True),
        ("IDLE+DRAIN", "clusterproof: x : reboot issued", "clusterproof: x", True),
        ("DOWN", "clusterproof: x : reboot issued : reboot complete", "clusterproof: x", False),
        ("MIXED+DRAIN+REBOOT_REQUESTED", "clusterproof: x", "clusterproof: x", False),
        ("DOWN+DRAIN+REBOOT_ISSUED", "clusterproof: x : reboot issued", "clusterproof: x", False),
        ("IDLE+DRAIN", "a fan is loud : reboot issued", "a fan is loud", True),
        ("MIXED+CLOUD+DRAIN+POWER_DOWN", "clusterproof: x", "clusterproof: x", False),
        ("IDLE+CLOUD+DRAIN+POWERING_DOWN", "clusterproof: x", "clusterproof: x", False),
        ("REBOOT+DRAIN", "clusterproof: x", "clusterproof: x", False),  # from here on in Slurm 20.11's words
        ("REBOOT*+DRAIN", "clusterproof: x : reboot issued", "clusterproof: x", False),
        ("MIXED@+DRAIN", "clusterproof: x", "clusterproof: x", False),
        ("MIXED$+DRAIN", "clusterproof: x", "clusterproof: x", True),
    ],
)
def test_a_reboot_or_power_down_that_slurm_was_asked_for_is_awaited_and_changes_no_reason(
    state: str, reason: str, read: str, may_be_resumed: bool
) -> None:
    node = control.parse_node(f"NodeName=gpu001\n   State={state}\n   Reason={reason} [root@2026-03-01T08:00:00]\n")
    assert (node.reason, node.may_be_resumed) == (read, may_be_resumed)


def test_slurms_commands_are_asked_of_this_cluster_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_CLUSTERS", "SQUEUE_PARTITION", "SINFO_STATE"):
        monkeypatch.setenv(name, "other")
    variables = control.output_of("env").splitlines()
    assert not [line for line in variables if line.endswith("=other")]
    assert {"SQUEUE_LOCAL=1", "SINFO_LOCAL=1"} <= set(variables)


def test_what_scontrol_says_of_a_node_is_read() -> None:
    node = control.parse_node(
        "NodeName=gpu001 Arch=x86_64\n   State=IDLE+DRAIN+DYNAMIC_NORM ThreadsPerCore=1\n   Partitions=gpu,all \n"
        "   Reason=Prolog error [root@2026-03-01T08:00:00]\n"
    )
    assert (node.has_slurms_reason, node.reason, node.by) == (True, "Prolog error", "root")
    assert node.partitions == ("gpu", "all")
    with pytest.raises(control.SlurmError, match="expected the node's State"):
        control.parse_node("slurm_load_node error: Unable to contact slurm controller")
