"""How fast a node's CPUs may run."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import node

PASS, CONCERN, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.INCOMPLETE
EPYC = {"driver": "acpi-cpufreq", "governor": "performance", "max_khz": 3_420_000, "limit_khz": 2_250_000}


def with_policies(name: str, *limits_khz: int | None, driver: str = "acpi-cpufreq") -> NodeEvidence:
    """A node with two EPYC 7742 and a frequency policy for each limit."""
    policies = [
        {**EPYC, "driver": driver, "limit_khz": limit, "first": f"policy{at}", "count": 1}
        for at, limit in enumerate(limits_khz)
    ]
    return node(name, cpus={"policies": policies})


@pytest.mark.parametrize(
    ("driver", "limits_khz", "verdict", "message"),
    [
        ("acpi-cpufreq", (2_250_000, 2_250_000), PASS, ""),
        ("acpi-cpufreq", (2_250_000, 1_500_000), CONCERN, "limited: policy1 to 1500 of 2250 MHz; expected no limit"),
        ("acpi-cpufreq", (3_420_000, 2_250_000), CONCERN, "limited: policy1 to 2250 of 3420 MHz; expected no limit"),
        ("acpi-cpufreq", (1_500_000, 1_500_000), CONCERN, "limited: policy0 to 1500 of 3420 MHz, policy1 to 1500 of"),
        ("acpi-cpufreq", (2_250_000, None), INCOMPLETE, "limit_khz was not reported"),
        ("acpi-cpufreq", (2_250_000, None, 1_500_000), INCOMPLETE, "limited: policy2 to 1500 of 2250 MHz"),
        ("amd-pstate", (2_250_000, 2_250_000), CONCERN, "limited: policy0 to 2250 of 3420 MHz, policy1 to 2250"),
    ],
)
def test_a_limit_without_boost_is_compared_with_that_of_the_other_cpus(
    driver: str, limits_khz: tuple[int | None, ...], verdict: Verdict, message: str
) -> None:
    result = result_of("host.cpu_governor", with_policies("n0", *limits_khz, driver=driver))
    expect(result, verdict, message)
    assert result.message.count("limited: ") == message.count("limited: ")


@pytest.mark.parametrize(
    ("model", "khz", "verdict"),
    [
        ("Intel(R) Xeon(R) w9-3495X", 1_900_000, PASS),
        ("Intel(R) Xeon(R) w9-3495X", 1_800_000, CONCERN),
        ("AMD EPYC 9654 96-Core Processor", 1_900_000, CONCERN),
    ],
)
def test_a_limit_is_low_by_the_base_frequencies_of_the_cpus_vendor(model: str, khz: int, verdict: Verdict) -> None:
    policy = {**EPYC, "max_khz": 4_800_000, "limit_khz": khz, "first": "policy0", "count": 112}
    result = result_of("host.cpu_governor", node("n0", cpus={"policies": [policy], "info": {"model": model}}))
    expect(result, verdict, f"limited: policy0 to {khz // 1000} of 4800 MHz" if verdict is CONCERN else "")


def test_a_limit_is_said_where_that_of_another_cpu_is_unknown() -> None:
    result = result_of("host.cpu_governor", with_policies("n0", None, 1_500_000))
    expect(result, INCOMPLETE, "limited: policy1 to 1500 of 3420 MHz")


def test_a_maximum_that_differs_is_not_said_again_as_a_limit() -> None:
    def host(name: str, khz: int) -> NodeEvidence:
        policy = {**EPYC, "driver": "intel_pstate", "max_khz": khz, "limit_khz": khz, "first": "policy0", "count": 96}
        return node(name, cpus={"policies": [policy]})

    result = result_of("host.cpu_uniform", host("n0", 3_800_000), *(host(f"n{at}", 3_500_000) for at in (1, 2)))
    assert "maximum MHz 3800; expected 3500 as on 2 of 3 nodes" in result.message
    assert "limit" not in result.message


def test_a_limit_on_all_cpus_is_compared_with_other_nodes() -> None:
    slow, *others = (with_policies(f"n{at}", limit) for at, limit in enumerate((1_500_000, 2_250_000, 2_250_000)))
    assert "limit in MHz 1500; expected 2250 as on 2 of 3 nodes" in result_of("host.cpu_uniform", slow, *others).message
    assert "limit in MHz" not in result_of("host.cpu_uniform", *others, slow).message
