"""GPUs compared with other nodes' and each other: which is odd, which is not blamed, what is unsupported."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import result_of
from tests.builders.recordings import node
from tests.checks.gpu.given import GPU, UNSUPPORTED, beside, bus, evaluated

H100: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "vbios": "96.00.A5.00.01",
    "memory_total_mib": 81559,
    "power_limit_w": 700,
    "power_limit_default_w": 700,
    "clock_max_mhz": 1980,
    "pcie_gen_max": 5,
    "pcie_width_max": 16,
    "mig_mode": False,
    "mig_pending": False,
}


def host(name: str, *gpus: dict[str, Any]) -> NodeEvidence:
    """A node with eight H100s, the first of which have these values."""
    of_all = [*gpus, *[{}] * (8 - len(gpus))]
    entries = [
        {**H100, "index": n, "lost": None, "uuid": f"GPU-{name}-{n}", "serial": f"{name}{n}", **values}
        for n, values in enumerate(of_all)
    ]
    nvml = {"init": None, "driver": "580.126.09", "count": len(entries), "gpus": entries}
    return node(name, nvml=nvml, pci=bus(*([0] * 8)))


OTHERS = [host(f"n{number}") for number in (2, 3, 4)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"mig_mode": True}, "MIG on; expected off as on 3 of 4 nodes"),
        ({"pcie_gen_max": 4}, "PCIe generation at most 4; expected 5 as on 3 of 4 nodes"),
        ({"pcie_width_max": 8}, "PCIe lanes at most 8; expected 16 as on 3 of 4 nodes"),
        ({"clock_max_mhz": 1755}, "maximum clock (MHz) 1755; expected 1980 as on 3 of 4 nodes"),
        ({"power_limit_default_w": 500}, "default power limit (W) 500; expected 700 as on 3 of 4 nodes"),
    ],
)
def test_a_node_all_of_whose_gpus_differ_from_the_group_is_a_concern(value: dict[str, Any], message: str) -> None:
    own = host("n1", *[value] * 8)
    result = result_of("gpu.gpu_uniform", own, *OTHERS)
    assert (result.verdict, message in result.message) == (Verdict.CONCERN, True), result.message
    assert result_of("gpu.gpu_uniform", OTHERS[0], own, *OTHERS[1:]).verdict is Verdict.PASS


def test_two_nodes_of_which_one_is_in_mig_mode_are_a_concern() -> None:
    result = result_of("gpu.gpu_uniform", host("n1", *[{"mig_mode": True}] * 8), host("n2"))
    assert "MIG differs from node to node (on on n1, off on n2)" in result.message


@pytest.mark.parametrize("gpus", [1, 8])
def test_a_maximum_clock_that_an_output_does_not_show_is_compared_with_none(gpus: int) -> None:
    of_a_table = host("n1", *[{"clock_max_mhz": None}] * gpus)
    for nodes in ((of_a_table, OTHERS[0]), (OTHERS[0], of_a_table), (of_a_table, *OTHERS)):
        assert result_of("gpu.gpu_uniform", *nodes).verdict is Verdict.PASS


def test_a_gpu_that_cannot_be_partitioned_is_not_beside_those_that_are() -> None:
    display = {"name": "NVIDIA T1000 8GB", "mig_mode": UNSUPPORTED, "mig_pending": UNSUPPORTED}
    of_seven = [{"mig_mode": True, "mig_pending": True}] * 7
    assert result_of("gpu.mig_uniform", host("n1", display, *of_seven)).verdict is Verdict.PASS
    assert result_of("gpu.mig_uniform", host("n1", {}, *of_seven)).verdict is Verdict.CONCERN
    assert (
        result_of("gpu.mig_uniform", host("n1", {**display, "name": H100["name"]}, *of_seven)).verdict
        is Verdict.INCOMPLETE
    )


def test_mig_is_not_applicable_where_no_gpu_can_be_partitioned() -> None:
    l4 = {"name": "NVIDIA L4", "mig_mode": UNSUPPORTED, "mig_pending": UNSUPPORTED}
    assert result_of("gpu.mig_uniform", host("n1", *[l4] * 8)).verdict is Verdict.NOT_APPLICABLE


def test_a_gpu_that_cannot_be_partitioned_is_in_no_mode() -> None:
    nodes = [host(name, *[{"mig_mode": UNSUPPORTED}] * 8) for name in ("n1", "n2", "n3")]
    assert result_of("gpu.gpu_uniform", *nodes).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("check", "value", "accused", "expected"),
    [
        ("gpu_uniform", {"clock_max_mhz": 1755}, "maximum clock (MHz) 1755", "1980 as on 3 of 4 nodes"),
        ("gpu_uniform", {"memory_total_mib": 80535}, "memory (MiB) 80535", "81559 as on 3 of 4 nodes"),
        ("vbios_uniform", {"vbios": "96.00.30.00.01"}, "VBIOS 96.00.30.00.01", "96.00.A5.00.01, as on 3 of 4 nodes"),
    ],
)
def test_where_most_gpus_of_a_node_are_odd_the_others_are_not_accused(
    check: str, value: dict[str, Any], accused: str, expected: str
) -> None:
    result = result_of(f"gpu.{check}", host("n1", *[value] * 5), *OTHERS)
    assert result.verdict is Verdict.CONCERN, result.message
    assert accused in result.message
    assert expected in result.message
    assert not any(f"GPU {healthy}" in result.message for healthy in (5, 6, 7)), result.message


DISPLAY = {"name": "NVIDIA T1000 8GB", "vbios": "90.17.8B.00.07"}


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ([DISPLAY], ""),
        (
            [DISPLAY, {"vbios": "96.00.30.00.01"}],
            "VBIOS 96.00.30.00.01 on GPU 1; expected 96.00.A5.00.01, as on 6 GPUs",
        ),
        ([{"name": None, "vbios": "96.00.30.00.01"}], "VBIOS 96.00.30.00.01 on GPU 0; expected 96.00.A5.00.01"),
    ],
)
def test_a_vbios_is_compared_with_those_of_the_same_model(gpus: list[dict[str, Any]], message: str) -> None:
    result = result_of("gpu.vbios_uniform", host("n1", *gpus))
    assert (result.verdict, message in result.message) == (Verdict.CONCERN if message else Verdict.PASS, True)


def test_of_two_halves_with_different_vbios_neither_is_the_odd_one() -> None:
    result = result_of("gpu.vbios_uniform", host("n1", *[{"vbios": "96.00.30.00.01"}] * 4))
    halves = "96.00.30.00.01 on GPU 0, GPU 1, GPU 2, GPU 3 and 96.00.A5.00.01 on GPU 4, GPU 5, GPU 6, GPU 7"
    assert (result.verdict, result.message) == (Verdict.CONCERN, f"VBIOS {halves}; expected one version")


def test_of_two_halves_the_gpus_with_less_are_named() -> None:
    result = result_of("gpu.gpu_uniform", host("n1", *[{"clock_max_mhz": 1755}] * 4))
    assert "GPU 3: maximum clock (MHz) 1755; expected 1980, as on 4 GPUs of the node" in result.message
    assert "GPU 4" not in result.message


def test_where_the_group_does_not_decide_most_gpus_of_the_node_do() -> None:
    result = result_of("gpu.gpu_uniform", host("n1", {"clock_max_mhz": 1755}))
    assert "GPU 0: maximum clock (MHz) 1755; expected 1980, as on 7 GPUs of the node" in result.message


@pytest.mark.parametrize(
    ("model", "serials", "verdict"),
    [
        ("NVIDIA GB300", "AABB", Verdict.PASS),
        ("NVIDIA GB300", "AAB", Verdict.PASS),  # one of two on a board is gone
        ("NVIDIA GB300", "AAAB", Verdict.CONCERN),
        ("NVIDIA H100 80GB HBM3", "AAB", Verdict.CONCERN),
        ("NVIDIA H100 80GB HBM3", "AABB", Verdict.PASS),
    ],
)
def test_a_serial_is_that_of_a_board_of_two_on_a_tray(model: str, serials: str, verdict: Verdict) -> None:
    gpus = [
        {"index": n, "lost": None, "name": model, "uuid": f"GPU-{n}", "serial": serial}
        for n, serial in enumerate(serials)
    ]
    nvml = {"init": None, "driver": "580.126.09", "count": len(gpus), "gpus": gpus}
    assert result_of("gpu.gpu_identity", node("n1", nvml=nvml, pci=bus(*([0] * len(gpus))))).verdict is verdict


@pytest.mark.parametrize(
    ("boot_id", "message"),
    [
        ("one", "8 of 8 GPUs are also reported by n2, with the same boot ID, so the same machine; expected"),
        ("other", "8 of 8 GPUs are also reported by n2; expected GPUs that no other node has"),
    ],
)
def test_one_machine_under_two_names_is_a_concern(boot_id: str, message: str) -> None:
    def named(name: str, machine: str, boot: str) -> NodeEvidence:
        collectors = {key: collected.value for key, collected in host(machine).collectors.items()}
        return node(name, **collectors, boot={"boot_id": boot})

    twins = [named("n1", "a", "one"), named("n2", "a", boot_id)]
    result = result_of("gpu.gpu_identity", *twins, named("n3", "b", "third"), named("n4", "c", "fourth"))
    assert (result.verdict, message in result.message) == (Verdict.CONCERN, True), result.message
    assert result_of("gpu.gpu_identity", named("n3", "b", "third"), *twins).verdict is Verdict.PASS
    all_of_one = [named(name, "a", "one") for name in ("n1", "n2", "n3")]
    for others in ([], [named("n4", "a", "claimed")]):
        assert "by n[2-3], with the same boot ID" in result_of("gpu.gpu_identity", *all_of_one, *others).message


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        ({"persistence_mode": UNSUPPORTED}, Verdict.INCOMPLETE),
        ({"persistence_mode": UNSUPPORTED, "name": "NVIDIA T400"}, Verdict.PASS),  # a display card
        ({"persistence_mode": UNSUPPORTED, "mig_mode": True}, Verdict.PASS),  # another mode
        ({"persistence_mode": UNSUPPORTED, "mig_mode": UNSUPPORTED}, Verdict.INCOMPLETE),
    ],
)
def test_what_the_driver_does_not_support_on_one_gpu_is_unread_where_its_like_report_it(
    one: dict[str, Any], verdict: Verdict
) -> None:
    like = {"name": "NVIDIA H100 80GB HBM3", "persistence_mode": True}
    assert evaluated("gpu.persistence_mode", gpus=beside(like | one, like, like)).verdict is verdict


@pytest.mark.parametrize(
    ("dram", "sram", "message"),
    [
        (0, 0, "uncorrected ECC errors: 5 in all, and none in DRAM or SRAM; expected 0"),
        (5, 0, "uncorrected ECC errors: 5 in DRAM; expected 0"),
        (UNSUPPORTED, UNSUPPORTED, "uncorrected ECC errors: 5 in all; expected 0"),
    ],
)
def test_uncorrected_errors_are_said_wherever_they_are_counted(dram: object, sram: object, message: str) -> None:
    counts = {"ecc_uncorrected_dram": dram, "ecc_uncorrected_sram": sram, "ecc_uncorrected_total": 5}
    result = evaluated("gpu.no_uncorrected_ecc", gpus=[{**GPU, **counts}])
    assert (result.verdict, message in result.message) == (Verdict.FAIL, True), result.message
