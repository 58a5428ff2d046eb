"""PCIe between GPUs and network devices: what is near, what is far, and what slows the path."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.captures.captured import output_of
from tests.checks.gpu.given import UNKNOWN

PASS, CONCERN, INCOMPLETE, NA = Verdict.PASS, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
FULL = {"width": 16, "width_max": 16, "speed": "32.0 GT/s PCIe", "speed_max": "32.0 GT/s PCIe"}
PORT = {"port_width_max": 16, "port_speed_max": "32.0 GT/s PCIe", "power": "active"}
SLOW = {"speed": "16.0 GT/s PCIe"}
NARROW = {"width": 8}


def device(kind: str, number: int, above: str, **values: Any) -> dict[str, Any]:
    """A GPU (g) or a network device (n) below these bridges: `pci0 r0 u0 d0`."""
    vendor, model, of_class = ("10de", "2330", "030200") if kind == "g" else ("15b3", "1021", "020700")
    address = f"0000:{0x40 + number if kind == 'g' else 0x80 + number:02x}:00.0"
    fields = {"address": address, "vendor": vendor, "device": model, "class": of_class, "path": above.split()}
    return {**fields, "numa": 0, "function_of": "", **values}


def switch(number: int, **values: Any) -> dict[str, Any]:
    fields = {"address": f"u{number}", "vendor": "1000", "device": "c030", "path": ["pci0", f"r{number}"]}
    return {**fields, **FULL, **PORT, **values}


def node(name: str, devices: list[dict[str, Any]], **collectors: Any) -> NodeEvidence:
    pci = {"devices": devices, "switches": collectors.pop("switches", [])}
    reports = {"pci": pci, "nvml": {"init": None, "gpus": []}, **collectors}
    return NodeEvidence(name, {key: Collected(Status.READ, value) for key, value in reports.items()})


def pairs(count: int = 4, **values: Any) -> list[dict[str, Any]]:
    """GPUs, each with a network device below the same switch."""
    places = [(number, f"pci0 r{number} u{number}") for number in range(count)]
    return [device(kind, number, f"{place} {kind}{number}", **values) for number, place in places for kind in "gn"]


FAR = device("g", 3, "pci0 r9")
ONE_NIC = [device("n", 0, "pci0 r0 u0 n0"), *(device("g", number, f"pci0 r0 u0 g{number}") for number in range(3))]


@pytest.mark.parametrize(
    ("devices", "verdict", "message"),
    [
        (pairs(), PASS, ""),
        ([*pairs(3), FAR], CONCERN, "0000:43:00.0 has no network device nearer than PHB; expected PIX, as 3 of 4 GPUs"),
        ([*pairs(2), FAR, device("g", 2, "pci0 r8")], PASS, ""),  # neither is usual
        ([*ONE_NIC, FAR], PASS, ""),  # one network device cannot be near all
        ([*pairs(3), device("g", 3, "pci1 r9", numa=-1)], PASS, ""),  # its position is unknown
        ([*pairs(3), FAR, device("n", 3, "pci0 r9 x", function_of="0000:80:00.0")], CONCERN, "0000:43:00.0 has no"),
        (pairs(2)[::2], NA, "no GPU shares the PCI bus with a network device"),
        ([], NA, "no GPU shares the PCI bus with a network device"),
        (pairs(path=None), NA, "nothing here says what is above PCI devices"),
        (pairs(address=UNKNOWN), INCOMPLETE, "address could not be read"),
    ],
)
def test_a_gpu_is_as_near_to_a_network_device_as_most(devices: list[Any], verdict: Verdict, message: str) -> None:
    expect(result_of("gpu.gpu_paths", node("gpu001", devices)), verdict, message)


@pytest.mark.parametrize(("rate", "says"), [("400 Gb/sec (4X NDR)", CONCERN), (None, NA)])
def test_network_devices_of_any_vendor_count_if_their_model_has_the_fastest_rdma_ports(
    rate: str | None, says: Verdict
) -> None:
    thor = {"vendor": "14e4", "device": "1760", "class": "020000"}
    devices = [{**one, **thor} if one["vendor"] == "15b3" else one for one in [*pairs(3), FAR]]
    port = {"port": 1, "state": "4: ACTIVE", "rate": rate, "link_layer": "Ethernet"}
    rdma = {"devices": [{"name": "bnxt_re0", "vendor": "14e4", "device": "1760", "ports": [port]}] if rate else []}
    assert result_of("gpu.gpu_paths", node("gpu001", devices, rdma=rdma)).verdict is says
    expect(result_of("gpu.gpu_paths", node("gpu001", devices)), INCOMPLETE, "rdma: was not requested")


@pytest.mark.parametrize(
    ("unread", "verdict", "message"),
    [
        ({}, INCOMPLETE, "concern: 0000:43:00.0 has no network device nearer than PHB; expected PIX, as 3 of 4 GPUs"),
        ({"path": ["pci0", "r9"]}, INCOMPLETE, "class could not be read"),  # it may be the network device of that GPU
    ],
)
@pytest.mark.parametrize(
    ("vendor", "key"), [("15b3", "class"), ("15b3", "address"), ("14e4", "class"), ("14e4", "device")]
)
def test_a_gpu_far_from_network_devices_is_named_beside_a_device_of_unread_kind(
    unread: dict[str, Any], verdict: Verdict, message: str, vendor: str, key: str
) -> None:
    odd = {**device("n", 9, "pci0 r7 u7 n9"), "vendor": vendor, key: UNKNOWN, **unread}
    message = message.replace("class", key)
    result = result_of("gpu.gpu_paths", node("gpu001", [*pairs(3), FAR, odd]))
    expect(result, verdict, message)
    assert ("nearer than" in result.message) is not bool(unread)


def test_a_gpu_whose_numa_node_is_unread_has_no_known_path_to_other_host_bridges() -> None:
    devices = [*pairs(3), device("g", 3, "pci1 r9", numa=UNKNOWN)]
    expect(result_of("gpu.gpu_paths", node("gpu001", devices)), INCOMPLETE, "numa could not be read")


@pytest.mark.parametrize(
    ("other", "verdict", "message"),
    [
        (pairs(2), PASS, ""),
        (
            [device(kind, number, f"pci{number} r{number}{kind}") for number in range(2) for kind in "gn"],
            CONCERN,
            "to each of 2 GPUs: differs from node to node (1 PIX, 1 PIX on gpu001, 1 PHB, 1 PHB on gpu002)",
        ),
        (pairs(3), PASS, ""),  # missing GPUs are other checks' findings
        (pairs(path=None), PASS, ""),
    ],
)
def test_nodes_with_as_many_devices_have_them_in_the_same_places(
    other: list[Any], verdict: Verdict, message: str
) -> None:
    expect(result_of("gpu.gpu_paths", node("gpu001", pairs(2)), node("gpu002", other)), verdict, message)


@pytest.mark.parametrize(
    ("switches", "busy", "verdict", "message"),
    [
        ([switch(0), switch(1), switch(2)], False, PASS, ""),
        (
            [switch(0, **NARROW), switch(1), switch(2)],
            False,
            CONCERN,
            "PCIe x8 at 32 GT/s on the switch u0, above 0000",
        ),
        (
            [switch(0, **SLOW), switch(1), switch(2)],
            False,
            CONCERN,
            "expected x16 at 32 GT/s, like most such switches here",
        ),
        ([switch(0, **SLOW), switch(1), switch(2)], True, PASS, ""),  # busy GPUs are below the others
        ([switch(0, **NARROW)], False, CONCERN, "expected x16 at 32 GT/s, which both ends support"),
        ([switch(0, **SLOW)], False, PASS, ""),  # normal power saving
        ([switch(1, **SLOW)], True, CONCERN, "expected x16 at 32 GT/s, which both ends support"),
        ([switch(0, **NARROW, port_width_max=8)], False, PASS, ""),  # its slot
        ([switch(0, **NARROW, port_width_max=8), switch(1), switch(2)], False, CONCERN, "like most such switches here"),
        ([switch(0, **NARROW, device="8232"), switch(1), switch(2)], False, CONCERN, "which both ends support"),
        ([switch(0, **NARROW, width_max=8, device="8232"), switch(1), switch(2)], False, PASS, ""),  # another model
        ([switch(0, **NARROW, power="suspended")], False, NA, "present and awake"),
        ([switch(0, width=None, speed="Unknown")], False, NA, "the kernel reports no PCIe link of the switch"),
        ([switch(0, width=255, speed="Unknown speed"), switch(1)], False, PASS, ""),
        ([switch(0, width=UNKNOWN), switch(1)], False, INCOMPLETE, "width could not be read"),
        ([switch(0, width=8, speed=UNKNOWN)], False, INCOMPLETE, "concern: PCIe x8 on the switch u0"),
        ([switch(7, **NARROW)], False, NA, "present and awake"),  # with no GPU below
        ([], False, NA, "no PCIe switch above a GPU or network device"),
        (None, False, NA, "nothing here says what is above PCI devices"),
    ],
)
def test_a_switch_has_the_link_that_both_ends_can_have_and_others_of_its_kind_do(
    switches: list[Any] | None, busy: bool, verdict: Verdict, message: str
) -> None:
    utilization = {"utilization_percent": 97 if busy else 0}
    gpus = [{"index": number, "pci": f"0000:{0x40 + number:02x}:00.0", **utilization} for number in (1, 2)]
    evidence = node("gpu001", pairs(3), switches=switches, nvml={"init": None, "gpus": gpus})
    expect(result_of("gpu.pcie_switches", evidence), verdict, message)


@pytest.mark.parametrize(
    ("narrow", "message"), [(NARROW, "concern: PCIe x8 at 32 GT/s on the switch u1"), ({}, "class")]
)
def test_a_switch_is_judged_beside_a_device_of_unread_kind(narrow: dict[str, Any], message: str) -> None:
    for key in ("class", "address"):
        devices = [*pairs(3), device("n", 9, "pci0 r9", **{key: UNKNOWN})]
        evidence = node("gpu001", devices, switches=[switch(0), switch(1, **narrow), switch(2)])
        expect(result_of("gpu.pcie_switches", evidence), INCOMPLETE, message.replace("class", key))


def test_a_switch_is_judged_beside_one_whose_address_is_unread() -> None:
    switches = [switch(0, address=UNKNOWN), switch(1, **NARROW), switch(2)]
    message = "concern: PCIe x8 at 32 GT/s on the switch u1"
    expect(result_of("gpu.pcie_switches", node("gpu001", pairs(3), switches=switches)), INCOMPLETE, message)
    alone = node("gpu001", pairs(3), switches=[switch(0, address=UNKNOWN)])
    expect(result_of("gpu.pcie_switches", alone), INCOMPLETE, "address could not be read")


def test_a_switch_above_a_device_of_unread_kind_is_not_held_against_others() -> None:
    devices = pairs(3)
    devices[0] = {**devices[0], "class": UNKNOWN}
    evidence = node("gpu001", devices, switches=[switch(0, **SLOW), switch(1), switch(2)])
    expect(result_of("gpu.pcie_switches", evidence), INCOMPLETE, "class")
    narrow = node("gpu001", devices, switches=[switch(0, **NARROW), switch(1), switch(2)])
    expect(result_of("gpu.pcie_switches", narrow), INCOMPLETE, "concern: PCIe x8 at 32 GT/s on the switch u0")


def test_nodes_have_the_same_links_above_their_switches() -> None:
    own, *others = (
        node(f"gpu{number}", pairs(1), switches=[switch(0, **(NARROW if number == 1 else {}))]) for number in (1, 2, 3)
    )
    expect(
        result_of("gpu.pcie_switches", own, *others),
        CONCERN,
        "x8 at 32 GT/s; expected x16 at 32 GT/s as on 2 of 3 nodes",
    )


TOPO = """\
	GPU0	GPU1	GPU2	NIC0	NIC1	NIC2	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	NV18	PHB	PIX	NODE	SYS	0-55	0		N/A
GPU1	NV18	 X 	PHB	NODE	PIX	SYS	0-55	0		N/A
GPU2	PHB	PHB	 X 	SYS	SYS	{}	56-111	1		N/A
NIC0	PIX	NODE	SYS	 X 	NODE	SYS

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
  NIC2: rocep7s0
"""


def test_nvidia_smi_topo_says_how_near_everything_is() -> None:
    first, _, last = output_of(TOPO.format("PIX"))["nvml"]["gpus"]
    assert first["paths"] == {"gpus": {"GPU 2": "PHB"}, "nics": {"mlx5_0": "PIX", "mlx5_1": "NODE", "rocep7s0": "SYS"}}
    assert last["paths"]["gpus"] == {"GPU 0": "PHB", "GPU 1": "PHB"}


@pytest.mark.parametrize(
    "text",
    [
        TOPO.replace("NIC1\tNIC2", "NIC1NIC2"),  # two columns run together
        TOPO.replace("GPU0\t X \tNV18\tPHB\tPIX", "GPU0\t X \tNV18\tPHB\t0-55"),  # a row without one
    ],
)
def test_a_row_that_does_not_fit_its_heading_says_nothing_of_paths(text: str) -> None:
    assert output_of(text.format("PIX"))["nvml"]["gpus"][0] == {"index": 0, "paths": {"gpus": {}, "nics": {}}}


def test_a_matrix_that_ends_early_says_neither_how_many_gpus_there_are_nor_what_its_last_row_lacks() -> None:
    text = TOPO.format("PIX")
    begins = text.index("\nGPU2")
    assert output_of(text)["nvml"]["count"] == 3
    assert "count" not in output_of(text[:begins])["nvml"]
    assert output_of(f"{text[:begins]}\nGPU2\tPHB\tPHB")["nvml"]["gpus"][2]["paths"] == {"gpus": {}, "nics": {}}


@pytest.mark.parametrize(
    ("way", "verdict", "message"),
    [
        ("PIX", PASS, ""),
        ("NODE", CONCERN, "GPU 2 has no network device nearer than NODE; expected PIX, as 2 of 3 GPUs"),
    ],
)
def test_a_capture_of_nvidia_smi_topo_is_evaluated_as_the_bus_is(way: str, verdict: Verdict, message: str) -> None:
    evidence = {name: Collected(Status.READ, value) for name, value in output_of(TOPO.format(way)).items()}
    expect(result_of("gpu.gpu_paths", NodeEvidence("gpu001", evidence)), verdict, message)
