"""Machines outside EC2 are known by their firmware and their GPUs, and evaluated by what they have."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.catalog.instance_types import machine_type
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.node import Node


@pytest.mark.parametrize(
    ("vendor", "product", "device", "name"),
    [
        ("NVIDIA", "DGXA100 920-23687-2530-000", "20b0", "DGX A100 40 GB"),
        ("NVIDIA", "DGXA100 920-23687-2531-001", "20b2", "DGX A100 80 GB"),
        ("NVIDIA", "DGXH100", "2330", "DGX H100"),
        ("NVIDIA", "NVIDIA DGX H100", "2330", "DGX H100"),
        ("NVIDIA", "DGXH100", "2335", "DGX H200"),  # as the GPUs have it, whatever the board's firmware says
        ("NVIDIA", "DGXH200", "2335", "DGX H200"),
        ("NVIDIA", "DGXB200", "2901", "DGX B200"),
        ("NVIDIA", "DGX Spark", "2e12", ""),
        ("NVIDIA", "DGX-1 with V100", "1db5", ""),
        ("NVIDIA", "DGXH100", "26b9", ""),
        ("Dell Inc.", "PowerEdge XE9680", "2330", "HGX H100"),
        ("Dell Inc.", "PowerEdge XE9680", "2335", "HGX H200"),
        ("Dell Inc.", "PowerEdge R760", "2330", ""),  # which takes single cards
        ("Supermicro", "SYS-821GE-TNHR", "2330", "HGX H100"),
        ("Amazon EC2", "DGXH100", "2330", ""),
        ("", "", "2330", ""),
    ],
)
def test_a_machine_is_known_by_its_firmware_and_its_gpus(vendor: str, product: str, device: str, name: str) -> None:
    assert machine_type(vendor, product, [device] * 8) == name
    assert not name or PACKAGED.instance_type(name) is not None


def test_a_machine_without_a_gpu_on_its_bus_is_not_known() -> None:
    assert machine_type("NVIDIA", "DGXH100", []) == ""


def test_a_machine_has_a_board_of_eight_and_no_efa() -> None:
    row = PACKAGED.instance_type("DGX H100")
    assert row is not None
    assert (row.gpus, row.nvlinks_per_gpu, row.nvswitches, row.ecc, row.efa) == (8, 18, 4, True, 0)
    assert PACKAGED.accelerators("DGX H100") == 8


def node(devices: list[str], **collectors: Any) -> Node:
    """A DGX H100 whose bus shows these GPUs."""
    gpus = [
        {"address": f"0000:{bus:02x}:00.0", "vendor": "10de", "device": device, "class": "030200", "driver": "nvidia"}
        for bus, device in enumerate(devices)
    ]
    data = {"platform": {"vendor": "NVIDIA", "product": "DGXH100", "serial": ""}, "pci": {"devices": gpus}} | collectors
    return Node(Target("n1"), NodeEvidence("n1", {name: Collected(Status.READ, value) for name, value in data.items()}))


def test_a_node_that_lost_a_gpu_should_still_have_eight() -> None:
    found = node(["2330"] * 7)
    assert (found.type_name, found.expected("gpus"), found.expected("efa")) == ("DGX H100", 8, 0)


def test_what_the_inventory_says_stands_first() -> None:
    evidence = node(["2330"] * 4).evidence
    assert Node(Target("n1", expect={"gpus": 4}), evidence).expected("gpus") == 4
    assert Node(Target("n1", instance_type="p5.48xlarge"), evidence).type_name == "p5.48xlarge"


def test_a_machine_that_nobody_knows_is_of_no_type() -> None:
    with pytest.raises(Incomplete, match="the instance type is unknown"):
        assert node(["2684"]).instance_type
