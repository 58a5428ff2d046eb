"""GPUs on the PCIe bus: lanes, errors, positions and drivers."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import node
from tests.checks.gpu.given import GPU, NO_AER, ON_BUS, UNKNOWN, UNSUPPORTED, beside, bus, evaluated


@pytest.mark.parametrize(
    ("replays", "errors", "verdict"),
    [
        (0, NO_AER, Verdict.PASS),
        (1000, NO_AER, Verdict.PASS),
        (1001, NO_AER, Verdict.CONCERN),
        (UNSUPPORTED, NO_AER, Verdict.NOT_APPLICABLE),
        (UNSUPPORTED, dict.fromkeys(NO_AER, 0), Verdict.PASS),
        (UNKNOWN, dict.fromkeys(NO_AER, 0), Verdict.INCOMPLETE),
        (UNKNOWN, {**NO_AER, "fatal": 1}, Verdict.FAIL),
        (UNKNOWN, {**NO_AER, "nonfatal": 1}, Verdict.INCOMPLETE),
        (0, {**NO_AER, "correctable": 480}, Verdict.PASS),
        (0, {**NO_AER, "correctable": 481}, Verdict.CONCERN),
        (0, {**NO_AER, "correctable": UNKNOWN, "fatal": 2}, Verdict.FAIL),
        (0, None, Verdict.INCOMPLETE),
    ],
)
def test_pcie_errors_are_evaluated_by_what_there_is(replays: object, errors: object, verdict: Verdict) -> None:
    gpu = {**GPU, "pcie_replays": replays}
    assert evaluated("gpu.pcie_errors", gpus=[gpu], pci={"devices": [{**ON_BUS, "errors": errors}]}).verdict is verdict


def test_a_device_that_nobody_counts_the_errors_of_is_not_applicable() -> None:
    efa = {"address": "0000:4f:00.0", "vendor": "1d0f", "device": "efa2", "class": "020000", "errors": NO_AER}
    assert evaluated("gpu.pcie_errors", gpus=[GPU], pci={"devices": [efa]}).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("power", "verdict"),
    [
        ("suspended", Verdict.PASS),
        ("suspending", Verdict.PASS),
        ("resuming", Verdict.PASS),
        ("active", Verdict.FAIL),
        ("error", Verdict.FAIL),
        ("unsupported", Verdict.FAIL),
        ("", Verdict.FAIL),
        (None, Verdict.FAIL),
        (UNKNOWN, Verdict.INCOMPLETE),
    ],
)
def test_a_device_that_reads_all_ones_has_left_the_bus_unless_it_is_suspended(power: object, verdict: Verdict) -> None:
    nic = {"address": "0000:4f:00.0", "vendor": "15b3", "device": "1021", "class": "020000", "width": 63}
    pci = {"devices": [{**nic, "power": power, "errors": dict.fromkeys(NO_AER, 0)}]}
    assert evaluated("gpu.pcie_errors", gpus=[GPU], pci=pci).verdict is verdict


FULL = {"width": 16, "width_max": 16, "port_width_max": 16}
NO_LANES, NARROW = "the PCI bus does not show its lanes", "PCIe x8; expected x16, unless its slot is narrower"


@pytest.mark.parametrize(
    ("gpu", "others", "verdict", "message"),
    [
        ({"width": None}, [], Verdict.NOT_APPLICABLE, NO_LANES),
        ({"width": 0, "width_max": 16}, [], Verdict.NOT_APPLICABLE, NO_LANES),
        ({"width": 63}, [], Verdict.NOT_APPLICABLE, NO_LANES),  # it reads all ones
        ({**FULL, "width": 8, "power": "suspended"}, [], Verdict.NOT_APPLICABLE, NO_LANES),
        (FULL, [], Verdict.PASS, ""),
        ({"width": 16, "width_max": UNKNOWN}, [], Verdict.INCOMPLETE, "width_max could not be read"),
        ({**FULL, "width": 8}, [], Verdict.CONCERN, NARROW),
        ({**FULL, "width": 8}, [FULL], Verdict.FAIL, "PCIe x8; expected x16"),
        ({**FULL, "width": 8}, [{**FULL, "width": 63}], Verdict.CONCERN, NARROW),
        ({**FULL, "width": 8}, [{"width": None}], Verdict.CONCERN, NARROW),
        ({"width": 8, "width_max": UNKNOWN}, [FULL], Verdict.INCOMPLETE, NARROW),
    ],
)
def test_lanes_on_the_bus_of_gpus_whose_driver_says_nothing_of_them(
    gpu: dict[str, Any], others: list[dict[str, Any]], verdict: Verdict, message: str
) -> None:
    addresses = [{"address": f"0000:{0x60 + number:02x}:00.0"} for number in range(len(others))]
    devices = [
        {**ON_BUS, **gpu},
        *({**ON_BUS, **other, **address} for other, address in zip(others, addresses, strict=True)),
    ]
    result = evaluated("gpu.pcie_lanes", "", gpus=[], pci={"devices": devices})
    assert (result.verdict, message in result.message) == (verdict, True), result.message


def test_a_gpu_on_the_bus_that_nobody_asked_is_not_said_to_be_silent() -> None:
    unread = {"index": 1, "never_read": "GPU 0: name: no answer within 15 s"}
    result = evaluated("gpu.pcie_errors", gpus=[{**GPU, "pci": "0000:64:00.0", "pcie_replays": 0}, unread])
    expect(result, Verdict.INCOMPLETE, "pci was not read (GPU 0: name: no answer within 15 s)")
    assert "answers at this" not in result.message


def test_a_gpu_on_the_bus_that_does_not_answer_is_incomplete() -> None:
    result = evaluated("gpu.pcie_errors", gpus=[{**GPU, "pci": "0000:64:00.0", "pcie_replays": 0}])
    assert (result.verdict, "no GPU answers at this address" in result.message) == (Verdict.INCOMPLETE, True)


@pytest.mark.parametrize(
    ("instance_type", "gpu", "verdict"),
    [
        ("p5.48xlarge", {"pcie_width": 8, "nvlinks": [True] * 18}, Verdict.FAIL),  # boards with NVLink wire all lanes
        ("g6e.48xlarge", {"pcie_width": 8}, Verdict.PASS),  # the catalogue knows that no more are wired
        ("g6e.48xlarge", {"pcie_width": 4}, Verdict.CONCERN),
        ("g5.48xlarge", {"pcie_width": 8}, Verdict.CONCERN),  # nobody knows
        ("someone.else", {"pcie_width": 8, "nvlinks": UNSUPPORTED}, Verdict.CONCERN),
        ("someone.else", {"pcie_width": 8, "nvlinks": [True] * 4}, Verdict.FAIL),
        ("someone.else", {"pcie_width": 16}, Verdict.PASS),
        ("p5.48xlarge", {"pcie_width": UNKNOWN}, Verdict.INCOMPLETE),
    ],
)
def test_how_many_lanes_a_gpu_should_have(instance_type: str, gpu: dict[str, Any], verdict: Verdict) -> None:
    gpus = [{**GPU, "pcie_width_max": 16, **gpu}] * 2
    assert evaluated("gpu.pcie_link", instance_type, gpus=gpus).verdict is verdict


@pytest.mark.parametrize(
    ("instance_type", "message"),
    [
        ("p5.48xlarge", "concern: GPU 0: PCIe x8; expected x16, as on the node's other GPUs"),
        ("g6e.48xlarge", ""),  # the catalogue knows that no more are wired
    ],
)
def test_a_narrow_link_is_named_where_its_maximum_is_unread(instance_type: str, message: str) -> None:
    gpus = beside(*({"pcie_width": width, "pcie_width_max": UNKNOWN} for width in (8, 16, 16, 16)))
    result = evaluated("gpu.pcie_link", instance_type, gpus=gpus)
    assert result.verdict is Verdict.INCOMPLETE
    assert message in result.message
    assert ("concern" in result.message) is bool(message)


def can_do(*most: object, name: str = "H100") -> list[dict[str, Any]]:
    return [
        {"name": name, "pcie_width": 16, "pcie_width_max": 16, "pcie_gen": 4, "pcie_gen_max": generation}
        for generation in most
    ]


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        (beside(*can_do(5, 5, 5)), Verdict.PASS),
        (beside(*can_do(4, 5, 5)), Verdict.FAIL),
        (beside(*can_do(4, 4, 5)), Verdict.CONCERN),  # most can do no more
        (beside(*can_do(4, 5)), Verdict.CONCERN),
        (beside(*can_do(5, UNKNOWN)), Verdict.PASS),
        (beside(*can_do(4, name="L40S"), *can_do(5, 5)), Verdict.PASS),  # another model
    ],
)
def test_what_a_pcie_link_can_do_is_alike_on_all_gpus(gpus: list[dict[str, Any]], verdict: Verdict) -> None:
    assert evaluated("gpu.pcie_link", gpus=gpus).verdict is verdict


@pytest.mark.parametrize(
    ("addresses", "instance_type", "verdict"),
    [
        (["0000:53:00.0", "0000:64:00.0"], "someone.else", Verdict.FAIL),
        (["0000:53:00.0"], "someone.else", Verdict.INCOMPLETE),  # all are on the bus; the expected number is unknown
        (["0000:64:00.0"], "someone.else", Verdict.INCOMPLETE),  # the bus of another machine
        (["0000:53:00.0"] * 8, "p5.48xlarge", Verdict.PASS),
        (["0000:53:00.0"] * 7 + ["0000:64:00.0"], "p5.48xlarge", Verdict.FAIL),
        (["0000:53:00.0"] * 7 + [UNKNOWN], "p5.48xlarge", Verdict.PASS),
    ],
)
def test_a_gpu_of_the_driver_is_on_the_bus(addresses: list[object], instance_type: str, verdict: Verdict) -> None:
    gpus = [{**GPU, "index": n, "pci": address} for n, address in enumerate(addresses)]
    assert evaluated("gpu.gpu_count", instance_type, gpus=gpus, boot={"uptime_s": 86_400.0}).verdict is verdict


@pytest.mark.parametrize(
    ("numa", "verdict", "message"),
    [
        ((0, 0, 0, 0, 1, 1, 1, 1), Verdict.PASS, ""),
        ((0, 0, 0, 0, 0, 1, 1, 1), Verdict.CONCERN, "5 GPUs on NUMA node 0, 3 GPUs on NUMA node 1; expected 4 on each"),
        ((0, 0, 0), Verdict.PASS, ""),
        ((0, 0, 1), Verdict.PASS, ""),  # three cannot be shared evenly
        ((), Verdict.NOT_APPLICABLE, "no NVIDIA GPU on the PCI bus"),
    ],
)
def test_gpus_are_shared_evenly_among_numa_nodes_where_no_other_node_shows_how(
    numa: tuple[int, ...], verdict: Verdict, message: str
) -> None:
    result = evaluated("gpu.gpu_numa", gpus=[GPU], pci=bus(*numa))
    assert (result.verdict, message in result.message) == (verdict, True), result.message


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ((0, 0, 0, 0, 1, 1, 1, 1), "5 GPUs on NUMA node 0, 3 GPUs on NUMA node 1; expected 4 on each"),
        ((0, 0, 0, 0, 0, 1, 1, 1), ""),  # all of the group do it
    ],
)
def test_a_node_whose_gpus_are_shared_unevenly_stays_a_concern_beside_one_that_is_even(
    other: tuple[int, ...], message: str
) -> None:
    nodes = [node(f"n{n}", pci=bus(*numa)) for n, numa in enumerate(((0, 0, 0, 0, 0, 1, 1, 1), other))]
    result = result_of("gpu.gpu_numa", *nodes)
    assert (result.verdict is Verdict.CONCERN, message in result.message) == (bool(message), True), result.message


@pytest.mark.parametrize("unlike", [{"address": "0000:6a:00.0"}, {"address": UNKNOWN}])
def test_gpus_that_no_other_node_has_at_these_addresses_are_not_as_on_all_nodes(unlike: dict[str, Any]) -> None:
    own, *others = (bus(0, 0, 0, 0, 1, 1, 1, 1) for _ in range(3))
    own["devices"][4] |= {**unlike, "numa": 0}
    result = result_of("gpu.gpu_numa", *(node(f"n{n}", pci=pci) for n, pci in enumerate((own, *others))))
    assert "5 GPUs on NUMA node 0, 3 GPUs on NUMA node 1; expected 4 on each" in result.message


@pytest.mark.parametrize(
    ("driver", "modules", "verdict"),
    [
        ("nvidia", ["nvidia"], Verdict.PASS),
        ("", ["nvidia"], Verdict.PASS),  # that it has none is another check's finding
        ("vfio-pci", ["nvidia"], Verdict.FAIL),
        ("nouveau", ["nouveau"], Verdict.FAIL),
        ("nvidia", ["nvidia", "nouveau"], Verdict.CONCERN),
        (None, ["nvidia"], Verdict.INCOMPLETE),
    ],
)
def test_nvidia_s_driver_holds_the_gpus(driver: Any, modules: list[str], verdict: Verdict) -> None:
    rdma = {"devices": [], "modules": modules, "uverbs": [], "nvidia_taint": ""}
    assert evaluated("gpu.gpu_driver", gpus=[GPU], pci=bus(0, driver=driver), rdma=rdma).verdict is verdict


@pytest.mark.parametrize(
    ("gpu", "modules", "message"),
    [
        ({"vendor": UNKNOWN}, ["nvidia", "nouveau"], "nouveau is loaded alongside nvidia; expected not loaded"),
        ({"class": UNKNOWN}, ["nvidia", "nouveau"], "nouveau is loaded alongside nvidia; expected not loaded"),
        ({"address": UNKNOWN, "driver": "nouveau"}, ["nouveau"], "nouveau holds a GPU; expected nvidia"),
        ({"driver": "vfio-pci"}, ["nouveau"], "nouveau is loaded; expected not loaded"),
    ],
)
def test_another_driver_of_gpus_is_named_whatever_the_bus_says(
    gpu: dict[str, Any], modules: list[str], message: str
) -> None:
    rdma = {"devices": [], "modules": modules, "uverbs": [], "nvidia_taint": ""}
    assert message in evaluated("gpu.gpu_driver", gpus=[GPU], pci={"devices": [{**ON_BUS, **gpu}]}, rdma=rdma).message


@pytest.mark.parametrize(
    ("pci", "modules", "message"),
    [
        (Collected(Status.TIMED_OUT), ["nvidia", "nouveau"], "concern: nouveau is loaded alongside nvidia"),
        (Collected(Status.TIMED_OUT), ["nouveau"], "pci"),  # of a node that may have no GPU
    ],
)
def test_nouveau_beside_nvidia_is_a_concern_where_the_bus_is_unread(
    pci: object, modules: list[str], message: str
) -> None:
    rdma = {"devices": [], "modules": modules, "uverbs": [], "nvidia_taint": ""}
    assert message in evaluated("gpu.gpu_driver", gpus=[GPU], pci=pci, rdma=rdma).message


def test_no_driver_of_gpus_is_judged_on_a_node_without_them() -> None:
    rdma = {"devices": [], "modules": ["nvidia", "nouveau"], "uverbs": [], "nvidia_taint": ""}
    result = evaluated("gpu.gpu_driver", gpus=[], pci={"devices": []}, rdma=rdma)
    assert (result.verdict, result.message) == (Verdict.NOT_APPLICABLE, "no NVIDIA GPU on the PCI bus")
