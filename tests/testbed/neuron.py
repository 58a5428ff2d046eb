"""Nodes with Trainium: a trn1.32xlarge and a trn2.48xlarge as seen from inside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.testbed import sysfs
from tests.testbed.efa import INSTALLED_PAGES, workings
from tests.testbed.faults import with_kernel_line
from tests.testbed.healthy import EFA_BIN, healthy_cpu
from tests.testbed.host import huge_pages
from tests.testbed.image import OPENS, Content, NodeImage
from tests.testbed.lustre import with_lustre
from tests.testbed.nvme import with_scratch
from tests.testbed.software import COMMON, DPKG, EFA_INSTALLED, EFA_RECORD, dpkg

FOLDER = "/sys/devices/virtual/neuron_device"
LS = "/opt/aws/neuron/bin/neuron-ls"
DRIVER = "2.26.5.0"
STARTED = f"neuron: Neuron Driver Started with Version:{DRIVER}-6670442319042643165ab7986e5184496ea4407c"
PACKAGES = {
    "aws-neuronx-dkms": DRIVER,
    "aws-neuronx-tools": "2.28.23.0",
    "libfabric-aws-bin": "2.3.1amzn2.0",
    "libnccl-ofi": "1.17.1-1",
}
EFA_BUS = 0xA1
LOCAL_DISKS = 4
EFA_RATES = {8: "100 Gb/sec (4X EDR)\n", 16: "200 Gb/sec (4X HDR)\n"}
SIDE = 4  # of the torus
DEVICES = SIDE * SIDE


def neighbours(index: int) -> list[int]:
    """The four neighbours of a device in a torus, in neuron-ls's order."""
    row, column = divmod(index, SIDE)
    above, below = (SIDE * ((row + step) % SIDE) + column for step in (-1, 1))
    left, right = (SIDE * row + (column + step) % SIDE for step in (-1, 1))
    return [above, left, below, right]


def healthy_trn1() -> NodeImage:
    """A trn1.32xlarge at rest: 16 Trainium devices, 8 EFA, 4 local disks, FSx for Lustre."""
    return _trainium(healthy_cpu("trn1.32xlarge", 128, 512), "7164", "Trainium1", 2, 32, efa=8)


def healthy_trn2() -> NodeImage:
    """A trn2.48xlarge at rest: 16 Trainium2 devices, 16 EFA, 4 local disks."""
    return _trainium(healthy_cpu("trn2.48xlarge", 192, 2048), "7364", "Trainium2", 8, 96, efa=16)


def neuron_ls(cores: int, gib: int, processes: dict[int, str] | None = None) -> list[dict[str, object]]:
    """neuron-ls's output; `processes` are those that use a device."""
    return [
        {
            "neuron_device": index,
            "bdf": _address(index)[5:],
            "connected_to": neighbours(index),
            "nc_count": cores,
            "memory_size": gib * 1024**3,
            "neuron_processes": [
                {"pid": 4711, "command": command, "neuron_runtime_version": "2.28.23.0"}
                for command in [(processes or {}).get(index)]
                if command
            ],
        }
        for index in range(DEVICES)
    ]


def printing(listed: object) -> str:
    """A program that prints this as JSON."""
    return f"#!/bin/sh\ncat <<'END'\n{json.dumps(listed, indent=4)}\nEND\n"


def _trainium(image: NodeImage, pci: str, model: str, cores: int, gib: int, *, efa: int) -> NodeImage:
    tree = image.sys | sysfs.module("neuron", DRIVER)
    for name in ("efa", "ib_uverbs", "ib_core"):
        tree |= sysfs.module(name)
    for index in range(DEVICES):
        tree |= sysfs.pci_function(_address(index), "1d0f", pci, "088000", "neuron") | _device(index, model, cores)
    tree |= huge_pages(INSTALLED_PAGES)
    for number in range(efa):
        bus = EFA_BUS + number
        tree |= sysfs.efa_device(number, bus, "efa2") | workings(bus, "NEURON")
        tree[f"devices/pci0000:00/0000:{bus:02x}:00.0/infiniband/rdmap{bus}s0/ports/1/rate"] = EFA_RATES[efa]
    files: dict[str, Content] = {
        DPKG: dpkg(COMMON | PACKAGES),
        EFA_RECORD: EFA_INSTALLED,
        **{f"/dev/neuron{index}": OPENS for index in range(DEVICES)},
        **{f"/dev/infiniband/uverbs{number}": OPENS for number in range(efa)},
    }
    fi_info = Path(__file__).with_name("tools").joinpath("fi_info").read_text()
    tools = {f"{EFA_BIN}/fi_info": fi_info, LS: printing(neuron_ls(cores, gib))}
    trainium = replace(image, sys=tree, files=image.files | files, tools=image.tools | tools)
    trainium = with_kernel_line(trainium, STARTED, at_s=16.0, level=6)
    return with_lustre(with_scratch(trainium, LOCAL_DISKS))


def _device(index: int, model: str, cores: int) -> sysfs.Tree:
    here = f"{FOLDER[5:]}/neuron{index}"
    tree: sysfs.Tree = {
        f"{here}/core_count": f"{cores}\n",
        f"{here}/connected_devices": f"{', '.join(map(str, neighbours(index)))}\n",
        f"{here}/info/architecture/device_name": f"{model}\n",
        f"{here}/info/serial_number": f"19fcda00f5ff6e{index:02x}\n",
    }
    for counter in ("mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected", "sram_ecc_uncorrected"):
        tree[f"{here}/stats/hardware/{counter}"] = "0\n"
    return tree


def _address(index: int) -> str:
    return f"0000:{0x10 + 0x10 * (index // SIDE):02x}:{0x1B + index % SIDE:02x}.0"
