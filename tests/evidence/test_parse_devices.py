"""Devices as commands list them, read into the collectors of the probe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.network import parse as modules
from clusterproof.plugins.evidence.network import parse_rdma as rdma
from clusterproof.plugins.evidence.neuron import parse as neuron
from clusterproof.plugins.evidence.parsing import CaptureError
from clusterproof.plugins.evidence.pci import parse as pci
from tests.builders.evaluated import expect
from tests.builders.samples import sample
from tests.captures.captured import evaluated as evaluated_as
from tests.faults.captured_fault import evaluated
from tests.testbed.neuron import neuron_ls

IBV = """\
hca_id: rdmap79s0
	transport:			unspecified (4)
	fw_ver:				0.0.0.0
	vendor_id:			0x1d0f
	vendor_part_id:			61346
	phys_port_cnt:			1
		port:	1
			state:			PORT_ACTIVE (4)
			active_width:		4X (2)
			active_speed:		25.0 Gbps (32)
			phys_state:		LINK_UP (5)
			link_layer:		Unspecified
"""
IBSTAT = """\
CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
	Port 1:
		State: Down
		Physical state: Polling
		Rate: 40
		Link layer: InfiniBand
"""


IBSTAT_SHORT = """\
CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
"""
IBSTAT_PORT = """\
CA: 'mlx5_1'
Port 1:
State: Down
Physical state: Disabled
Rate: 10
Link layer: InfiniBand
"""


def device(data: Any) -> dict[str, Any]:
    (found,) = data["rdma"]["devices"]
    return dict(found)


def test_ibv_devinfo_shows_an_efa_device_as_sysfs_does() -> None:
    assert device(rdma.read_ibv_devinfo(IBV)) == {
        "name": "rdmap79s0",
        "vendor": "1d0f",
        "device": "efa2",
        "firmware": "0.0.0.0",
        "ports": [
            {
                "port": 1,
                "state": "4: ACTIVE",
                "physical_state": "5: LinkUp",
                "rate": "100 Gb/sec (4X)",
                "link_layer": "Unspecified",
            }
        ],
    }


def test_a_port_of_ibstat_is_read_in_the_words_of_sysfs() -> None:
    data = device(rdma.read_ibstat(IBSTAT))
    assert (data["vendor"], data["device"]) == ("15b3", "1021")
    port = {"port": 1, "state": "1: DOWN", "physical_state": "2: Polling", "rate": "40 Gb/sec"}
    assert data["ports"] == [port | {"link_layer": "InfiniBand"}]


@pytest.mark.parametrize(
    ("name", "layer", "whose"),
    [
        ("efa_0", "Unknown", {"vendor": "1d0f", "device": "efa"}),
        ("rdmap79s0", "Unspecified", {"vendor": "1d0f", "device": "efa"}),
        ("rdmap79s0", "Ethernet", {}),  # what rdma-core calls an adapter for iWARP
    ],
)
def test_ibstat_names_no_type_of_an_efa_device(name: str, layer: str, whose: dict[str, str]) -> None:
    text = f"CA '{name}'\n\tCA type: \n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tLink layer: {layer}\n"
    found = device(rdma.read_ibstat(text))
    assert {key: found[key] for key in ("vendor", "device") if key in found} == whose


def test_a_device_at_which_ibstat_stopped_has_ports_that_could_not_be_read() -> None:
    data: Any = rdma.read_ibstat(f"{IBSTAT}ibpanic: [7] main: stat of IB device 'mlx5_8' failed: No such file\n")
    assert data["rdma"]["devices"][-1]["ports"] == {"error": "No such file", "text": "ibstat stopped"}


def test_of_a_device_at_which_ibstat_stopped_nothing_is_said_of_another() -> None:
    active = IBSTAT.replace("Down", "Active").replace("Polling", "LinkUp")
    panic = "ibpanic: [7] main: stat of IB device 'mlx5_8' failed: No such file or directory\n"
    result = evaluated({"ibstat": active + panic})["network.ib_ports"]
    expect(result, Verdict.INCOMPLETE, "mlx5_8: ports could not be read (No such file or directory)")
    assert "mlx5_0" not in result.message


@pytest.mark.parametrize(
    ("line", "whose"),
    [
        ("link rdmap0s6/1 state ACTIVE physical_state LINK_UP netdev ens6", {}),
        ("0/1: rdmap0s6/1: state ACTIVE physical_state LINK_UP", {"vendor": "1d0f", "device": "efa"}),
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ib0", {"vendor": "15b3"}),
    ],
)
def test_rdma_link_shows_states(line: str, whose: dict[str, str]) -> None:
    port = {"port": 1, "state": "4: ACTIVE", "physical_state": "5: LinkUp"}
    found = device(rdma.read_rdma_tool(line))
    assert found == {"name": found["name"], "ports": [port], **whose}


@pytest.mark.parametrize(
    ("line", "check", "words"),
    [
        ("link mlx5_3/1 state DOWN physical_state POLLING netdev ib3", "network.ib_ports", "mlx5_3: port 1 is 1: DOWN"),
        ("link mlx5_3/1 state INIT physical_state LINK_UP netdev ib3", "network.ib_ports", "mlx5_3: port 1 is 2: INIT"),
        (
            "link rdmap79s0/1 state DOWN physical_state DISABLED",
            "network.efa_port_active",
            "rdmap79s0: port 1 is 1: DOWN",
        ),
    ],
)
def test_a_port_that_is_down_is_so_though_rdma_link_names_no_vendor(line: str, check: str, words: str) -> None:
    result = evaluated({"rdma.txt": f"{line}\n"})[check]
    assert next(one.message for one in result.by_verdict if one.verdict is Verdict.FAIL).startswith(words)


def test_a_counter_that_a_port_does_not_have_is_null() -> None:
    folder = "/sys/class/infiniband/mlx5_0/ports/1"
    text = f"{folder}/state:4: ACTIVE\n{folder}/counters/link_downed:N/A (no PMA)\n{folder}/counters/symbol_error:7\n"
    (port,) = device(rdma.read_sysfs(text))["ports"]
    assert port == {"port": 1, "state": "4: ACTIVE", "link_downed": None, "symbol_errors": 7}


def test_lsmod_and_ls_show_what_rdma_needs() -> None:
    lsmod: Any = modules.read_lsmod(
        "Module                  Size  Used by\nefa  118784  0\nib_core 434176 2 efa,x\nsnd 1 0\n"
    )
    files: Any = modules.read_device_files("rdma_cm  uverbs0  uverbs1\n")
    assert set(lsmod["rdma"]["modules"]) == {"efa", "ib_core"}
    assert files["rdma"]["uverbs"] == ["uverbs0", "uverbs1"]


@pytest.mark.parametrize(
    "line",
    [
        "53:00.0 0302: 10de:2330 (rev a1)",
        "0000:53:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)",
        "Slot:\t53:00.0\nClass:\t3D controller [0302]\nVendor:\tNVIDIA Corporation [10de]\nDevice:\tGH100 [2330]\n",
    ],
)
def test_a_gpu_is_the_same_in_every_form_of_lspci(line: str) -> None:
    (form,) = [form for form in pci.FORMS if form.recognises(line)]
    data: Any = form.read(line)
    gpu = {"address": "0000:53:00.0", "class": "030200", "vendor": "10de", "device": "2330"}
    assert data["pci"]["devices"] == [gpu]


def test_lspci_with_v_shows_the_link_and_the_driver() -> None:
    text = (
        "53:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
        "\tNUMA node: 1\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1\n"
        "\t\tLnkSta:\tSpeed 32GT/s (ok), Width x8 (downgraded)\n"
        "\tKernel driver in use: nvidia\n"
    )
    data: Any = pci.read_lspci(text)
    (gpu,) = data["pci"]["devices"]
    assert (gpu["width"], gpu["width_max"], gpu["speed"]) == (8, 16, "32.0 GT/s PCIe")
    assert (gpu["driver"], gpu["numa"], gpu["class"]) == ("nvidia", 1, "030200")


def test_a_gpu_whose_modules_lspci_names_and_no_driver_is_held_by_none() -> None:
    capture = sample("lspci/gpud-vvv-part-around-gpu.txt").text
    held = re.search(
        r"^19:00\.0 3D(?:.*\n)+?(\tKernel driver in use: nvidia\n)\tKernel modules: ", capture, re.MULTILINE
    )
    assert held
    results = evaluated({"lspci.txt": capture[: held.start(1)] + capture[held.end(1) :]})
    expect(results["host.device_drivers"], Verdict.FAIL, "0000:19:00.0: no driver holds an NVIDIA GPU; expected one")


@pytest.mark.parametrize(
    ("file", "address"), [("gpud-nn-a10.txt", "06:00.0"), ("gpud-vvv-part-around-gpu.txt", "19:00.0")]
)
def test_a_gpu_of_which_lspci_reads_nothing_but_ones_does_not_answer(file: str, address: str) -> None:
    capture = sample(f"lspci/{file}").text
    shown = re.search(rf"^({address} .*)\(rev a1\)\n((?:\t.*\n)*)", capture, re.MULTILINE)
    assert shown
    gone = f"{shown[1]}(rev ff)\n" + (
        "\t!!! Unknown header type 7f\n\tKernel driver in use: nvidia\n" if shown[2] else ""
    )
    results = evaluated({"lspci.txt": capture.replace(shown[0], gone)})
    expect(results["gpu.pcie_errors"], Verdict.FAIL, f"0000:{address}: does not answer on PCIe")


def test_without_numbers_an_efa_device_is_known_by_its_name() -> None:
    data: Any = pci.read_lspci("00:1d.0 Ethernet controller: Amazon.com, Inc. Elastic Fabric Adapter (EFA)\n")
    assert data["pci"]["devices"][0]["device"] == "efa"


def test_neuron_devices_on_the_bus_are_counted() -> None:
    text = "a0:1b.0 System peripheral: Amazon.com, Inc. NeuronDevice\na0:1c.0 0880: 1d0f:7164\n"
    data: Any = pci.read_lspci(text)
    assert data["neuron"] == {"on_bus": 2}
    assert data["pci"] == {"devices": []}


def test_the_table_of_neuron_ls_lists_devices() -> None:
    text = (
        "+--------+--------+--------+---------+\n| NEURON | NEURON | NEURON |   PCI   |\n"
        "| DEVICE | CORES  | MEMORY |   BDF   |\n+--------+--------+--------+---------+\n"
        "| 0      | 2      | 32 GB  | 10:1c.0 |\n| 1      | 2      | 32 GB  | 10:1d.0 |\n"
    )
    (form,) = [form for form in neuron.FORMS if form.recognises(text)]
    assert form.read(text) == {"neuron": {"devices": [{"index": 0, "cores": 2}, {"index": 1, "cores": 2}]}}


DEVICES = neuron_ls(cores=2, gib=32)


@pytest.mark.parametrize(
    ("devices", "check", "words"),
    [
        (DEVICES[:-1], "neuron.device_count", "15 Neuron devices, an unknown number on the PCI bus; expected 16"),
        ([{**DEVICES[0], "connected_to": []}, *DEVICES[1:]], "neuron.connected", "Neuron device 0: linked with none"),
        (DEVICES, "neuron.connected", ""),
    ],
)
def test_devices_and_links_that_the_json_of_neuron_ls_lacks_are_faults(
    devices: list[dict[str, object]], check: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "neuron-ls.txt").write_text(json.dumps(devices), encoding="utf-8")
    result = evaluated_as(tmp_path / "neuron-ls.txt", "trn1.32xlarge")[check]
    assert result.verdict is (Verdict.FAIL if words else Verdict.PASS)
    assert result.message.startswith(words)


def test_json_of_neuron_ls_that_is_cut_is_an_error() -> None:
    with pytest.raises(CaptureError, match="cut"):
        neuron.read_json('[{"neuron_device": 0, "nc_cou')


def test_ibstat_s_counts_ports_and_says_nothing_of_them() -> None:
    assert "ports" not in device(rdma.read_ibstat(IBSTAT_SHORT))
    assert evaluated({"ibstat.txt": IBSTAT_SHORT})["network.ib_ports"].verdict is not Verdict.FAIL


def test_ibstat_of_one_port_is_read() -> None:
    ports = device(rdma.read_ibstat(IBSTAT_PORT))["ports"]
    assert ports == [
        {
            "port": 1,
            "state": "1: DOWN",
            "physical_state": "3: Disabled",
            "rate": "10 Gb/sec",
            "link_layer": "InfiniBand",
        }
    ]


MLXLINK = """\
$ sudo mlxlink -d {device}

Operational Info
----------------
State                              : {state}
Physical state                     : {physical}
Speed                              : IB-NDR
Width                              : 4x

Troubleshooting Info
--------------------
Status Opcode                      : 0
Recommendation                     : No issue was observed
"""


@pytest.mark.parametrize(
    ("state", "physical", "words"),
    [
        ("Active", "LinkUp", ""),
        ("Polling", "ETH_AN_FSM_ENABLE", "mlx5_1: port 1 is 1: DOWN; expected 4: ACTIVE"),
        ("Disable", "Disabled", ""),
    ],
)
def test_mlxlink_shows_whether_the_port_of_its_command_is_up(state: str, physical: str, words: str) -> None:
    result = evaluated({"t": MLXLINK.format(device="mlx5_1", state=state, physical=physical)})["network.ib_ports"]
    assert (result.verdict is Verdict.FAIL) == bool(words)
    assert words in result.message


def test_mlxlink_of_a_device_that_its_command_does_not_name_is_refused() -> None:
    _, problems = read_text(MLXLINK.format(device="/dev/mst/mt4129_pciconf0", state="Active", physical="LinkUp"))
    assert "mlxlink does not say of which device" in problems[0]


@pytest.mark.parametrize("text", [IBSTAT_PORT, MLXLINK.format(device="mlx5_1", state="Active", physical="LinkUp")])
def test_one_device_that_was_asked_for_does_not_count_the_others(text: str) -> None:
    result = evaluated({"t": text})["network.ib_count"]
    expect(result, Verdict.INCOMPLETE, "of single devices, asked for by name")
    both = evaluated({"a": text, "b": IBSTAT})["network.ib_count"]
    assert "of single devices" not in both.message
