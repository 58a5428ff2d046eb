"""Devices listed by commands, parsed into the probe's collectors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.network import parse as modules
from clusterproof.plugins.evidence.neuron import parse as neuron
from clusterproof.plugins.evidence.parsing import CaptureError
from clusterproof.plugins.evidence.pci import parse as pci
from tests.builders.evaluated import expect
from tests.builders.samples import sample
from tests.captures.captured import evaluated as evaluated_as
from tests.faults.captured_fault import evaluated
from tests.testbed.neuron import neuron_ls


def test_lsmod_shows_what_rdma_needs() -> None:
    lsmod: Any = modules.read_lsmod(
        "Module                  Size  Used by\nefa  118784  0\nib_core 434176 2 efa,x\nsnd 1 0\n"
    )
    assert set(lsmod["rdma"]["modules"]) == {"efa", "ib_core"}


def test_what_neuron_monitor_calls_a_neuron_device_is_no_list_of_devices() -> None:
    monitored = {"memory_used": {"neuron_runtime_used_bytes": {"host": 6997643264, "neuron_device": 12519788544}}}
    assert not neuron.is_json(json.dumps(monitored, indent=2))
    assert neuron.is_json(json.dumps([{"neuron_device": 15}], indent=2))


LL = """\
total 0
drwxr-xr-x  4 root root      160 Sep  4 14:50 ./
drwxr-xr-x 21 root root     5480 Sep  4 14:53 ../
drwxr-xr-x  2 root root      120 Sep  4 14:50 by-path/
crw-rw-rw-  1 root root 231, 192 Sep  4 14:50 uverbs0
crw-rw-rw-  1 root root 231, 193 Sep  4 14:50 uverbs1
"""


@pytest.mark.parametrize(
    "text",
    [
        "rdma_cm  uverbs0  uverbs1\n",
        "issm0  rdma_cm  ucm0  umad0  uverbs0  uverbs1\n",  # kernels up to 5.1 have ucm0
        LL,
        LL.replace("/", ""),
    ],
)
def test_ls_shows_the_device_files_of_rdma(text: str) -> None:
    assert modules.is_device_files(text)
    files: Any = modules.read_device_files(text)
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
    collected: Any = form.read(line)
    gpu = {"address": "0000:53:00.0", "class": "030200", "vendor": "10de", "device": "2330"}
    assert collected["pci"]["devices"] == [gpu]


def test_lspci_with_v_shows_the_link_and_the_driver() -> None:
    text = (
        "53:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n"
        "\tNUMA node: 1\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1\n"
        "\t\tLnkSta:\tSpeed 32GT/s (ok), Width x8 (downgraded)\n"
        "\tKernel driver in use: nvidia\n"
    )
    collected: Any = pci.read_lspci(text)
    (gpu,) = collected["pci"]["devices"]
    assert (gpu["width"], gpu["width_max"], gpu["speed"]) == (8, 16, "32.0 GT/s PCIe")
    assert (gpu["driver"], gpu["numa"], gpu["class"]) == ("nvidia", 1, "030200")


@pytest.mark.long
def test_a_gpu_whose_modules_lspci_names_and_no_driver_is_held_by_none() -> None:
    capture = sample("lspci/gpud-vvv-part-around-gpu.txt").text
    held = re.search(
        r"^19:00\.0 3D(?:.*\n)+?(\tKernel driver in use: nvidia\n)\tKernel modules: ", capture, re.MULTILINE
    )
    assert held
    results = evaluated({"lspci.txt": capture[: held.start(1)] + capture[held.end(1) :]})
    expect(results["host.device_drivers"], Verdict.FAIL, "0000:19:00.0: no driver holds an NVIDIA GPU (10de:2330)")


@pytest.mark.long
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
    collected: Any = pci.read_lspci("00:1d.0 Ethernet controller: Amazon.com, Inc. Elastic Fabric Adapter (EFA)\n")
    assert collected["pci"]["devices"][0]["device"] == "efa"


@pytest.mark.parametrize(
    "text",
    [
        "00:1d.0 Ethernet controller: Amazon.com, Inc. Device efa2\n00:1e.0 Ethernet controller: Intel Device 1521\n",
        "Slot:\t00:1d.0\nClass:\tEthernet controller\nVendor:\tAmazon.com, Inc.\nDevice:\tDevice efa2\nRev:\t01\n",
        "-[0000:00]-+-00.0  Intel Corporation Device 1237\n           \\-1d.0  Amazon.com, Inc. Device efa2\n",
    ],
)
def test_an_efa_device_that_is_newer_than_the_machines_list_of_names_is_known_by_its_number(text: str) -> None:
    (form,) = [form for form in pci.FORMS if form.recognises(text)]
    collected: Any = form.read(text)
    assert [device["device"] for device in collected["pci"]["devices"]] == ["efa2"]


def test_neuron_devices_on_the_bus_are_counted() -> None:
    text = (
        "a0:1b.0 System peripheral: Amazon.com, Inc. NeuronDevice\na0:1c.0 0880: 1d0f:7164\n"
        "a0:1d.0 System peripheral: Amazon.com, Inc. Device 7364 (rev 01)\n"
    )
    collected: Any = pci.read_lspci(text)
    assert collected["neuron"] == {"on_bus": 3}
    assert collected["pci"] == {"devices": []}


def test_the_table_of_neuron_ls_lists_devices() -> None:
    text = (
        "+--------+--------+--------+---------+\n| NEURON | NEURON | NEURON |   PCI   |\n"
        "| DEVICE | CORES  | MEMORY |   BDF   |\n+--------+--------+--------+---------+\n"
        "| 0      | 2      | 32 GB  | 10:1c.0 |\n| 1      | 2      | 32 GB  | 10:1d.0 |\n"
    )
    (form,) = [form for form in neuron.FORMS if form.recognises(text)]
    whole = f"{text}+--------+--------+--------+---------+\n"
    assert form.read(whole) == {"neuron": {"devices": [{"index": 0, "cores": 2}, {"index": 1, "cores": 2}]}}
    with pytest.raises(CaptureError, match="cut"):
        form.read(text)


DEVICES = neuron_ls(cores=2, gib=32)


@pytest.mark.parametrize(
    ("devices", "check", "message"),
    [
        (DEVICES[:-1], "neuron.device_count", "15 Neuron devices, an unknown number on the PCI bus; expected 16"),
        ([{**DEVICES[0], "connected_to": []}, *DEVICES[1:]], "neuron.connected", "Neuron device 0: linked with none"),
        (DEVICES, "neuron.connected", ""),
    ],
)
def test_devices_and_links_that_the_json_of_neuron_ls_lacks_are_faults(
    devices: list[dict[str, object]], check: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "neuron-ls.txt").write_text(json.dumps(devices), encoding="utf-8")
    result = evaluated_as(tmp_path / "neuron-ls.txt", "trn1.32xlarge")[check]
    assert result.verdict is (Verdict.FAIL if message else Verdict.PASS)
    assert result.message.startswith(message)


def test_json_of_neuron_ls_that_is_cut_is_an_error() -> None:
    with pytest.raises(CaptureError, match="cut"):
        neuron.read_json('[{"neuron_device": 0, "nc_cou')
