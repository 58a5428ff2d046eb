"""EC2's answers about types and the catalogue's types; machines outside EC2 are recognised by firmware and GPUs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

import pytest

from clusterproof.plugins.catalog import PACKAGED, InstanceType, instance_types
from clusterproof.plugins.catalog.instance_types import machine_type
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.refresh_catalog import RefreshError, compare, offered_type


class Answers:
    """The relevant parts of EC2's answer about one type."""

    plain: ClassVar[dict[str, Any]] = {
        "InstanceType": "c1.large",
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 4096},
        "NetworkInfo": {"NetworkPerformance": "Up to 12.5 Gigabit"},
    }


def test_what_ec2_does_not_report_of_a_type_is_none_or_zero() -> None:
    offered = offered_type(Answers.plain)
    assert {name: value for name, value in asdict(offered).items() if value} == {"vcpus": 2, "memory_mib": 4096}
    assert offered.network_gbps is None


@pytest.mark.parametrize("key", ["VCpuInfo", "MemoryInfo", "NetworkInfo"])
def test_an_answer_without_what_every_type_has_is_not_understood(key: str) -> None:
    with pytest.raises(RefreshError, match=r"c1\.large is not understood"):
        offered_type({name: value for name, value in Answers.plain.items() if name != key})


@pytest.mark.parametrize(
    ("performance", "gbps"),
    [("3200 Gigabit", 3200), ("8x 100 Gigabit", 800), ("High", None), ("Up to 25 Gigabit", None)],
)
def test_network_performance_is_a_number_where_it_is_fixed(performance: str, gbps: int | None) -> None:
    offered = offered_type({**Answers.plain, "NetworkInfo": {"NetworkPerformance": performance}})
    assert offered.network_gbps == gbps


def test_what_is_not_known_and_what_there_is_none_of_are_alike() -> None:
    row = InstanceType(name="c1.large", source="ec2", vcpus=2, memory_mib=4096)
    comparison = compare({"c1.large": row}, {"c1.large": offered_type(Answers.plain)})
    assert comparison.differences == ()
    assert comparison.compared == 1


@pytest.mark.parametrize("row", instance_types().values(), ids=lambda row: row.name)
def test_the_host_of_an_instance_type_is_plausible(row: InstanceType) -> None:
    assert row.vcpus is None or row.vcpus % 4 == 0
    assert row.memory_mib is None or row.memory_mib % 1024 == 0
    assert (row.nvme_gb is None) == (not row.nvme)
    if row.gpus and row.gpu_memory_mib and row.memory_mib and row.gpus > 1:
        assert row.memory_mib >= row.gpus * 16 * 1024


@pytest.mark.parametrize(
    ("vendor", "product", "device", "name"),
    [
        ("NVIDIA", "DGXA100 920-23687-2530-000", "20b0", "DGX A100 40 GB"),
        ("NVIDIA", "DGXA100 920-23687-2531-001", "20b2", "DGX A100 80 GB"),
        ("NVIDIA", "DGXH100", "2330", "DGX H100"),
        ("NVIDIA", "NVIDIA DGX H100", "2330", "DGX H100"),
        ("NVIDIA", "DGXH100", "2335", "DGX H200"),  # by the GPUs, whatever the board's firmware says
        ("NVIDIA", "DGXH200", "2335", "DGX H200"),
        ("NVIDIA", "DGXB200", "2901", "DGX B200"),
        ("NVIDIA", "DGX Spark", "2e12", ""),
        ("NVIDIA", "DGX-1 with V100", "1db5", ""),
        ("NVIDIA", "DGXH100", "26b9", ""),
        ("Dell Inc.", "PowerEdge XE9680", "2330", "HGX H100"),
        ("Dell Inc.", "PowerEdge XE9680", "2335", "HGX H200"),
        ("Dell Inc.", "PowerEdge R760", "2330", ""),  # takes single cards
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
    usual = {
        "platform": {"vendor": "NVIDIA", "product": "DGXH100", "serial": ""},
        "pci": {"devices": gpus},
    } | collectors
    return Node(
        Target("n1"), NodeEvidence("n1", {name: Collected(Status.READ, value) for name, value in usual.items()})
    )


def test_a_node_that_lost_a_gpu_should_still_have_eight() -> None:
    facts = node(["2330"] * 7)
    assert (facts.type_name, facts.expected("gpus"), facts.expected("efa")) == ("DGX H100", 8, 0)


def test_what_the_inventory_says_stands_first() -> None:
    evidence = node(["2330"] * 4).evidence
    assert Node(Target("n1", expect={"gpus": 4}), evidence).expected("gpus") == 4
    assert Node(Target("n1", instance_type="p5.48xlarge"), evidence).type_name == "p5.48xlarge"


def test_a_machine_that_nobody_knows_is_of_no_type() -> None:
    with pytest.raises(Incomplete, match="the instance type is unknown"):
        assert node(["2684"]).instance_type
