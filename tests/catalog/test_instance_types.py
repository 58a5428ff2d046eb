"""What is read of EC2's answer on a type, and that the catalogue's types are plausible."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

import pytest

from clusterproof.plugins.catalog import InstanceType, instance_types
from clusterproof.plugins.suite.refresh_catalog import RefreshError, compare, offered_type


class Answers:
    """Parts of what EC2 answers about one type."""

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
