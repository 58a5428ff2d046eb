"""Trainium."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.image import NodeImage
from tests.testbed.neuron import FOLDER, LS, healthy_trn1, healthy_trn2, neuron_ls, printing
from tests.testbed.node import with_file, with_kernel_line, with_tool, without_file, without_module

HW_ERR = (
    "neuron: NEURON_HW_ERR={} instance-id=i-0592464924bd45322 hostname=ip-10-0-0-5 "
    "nd-id=3 nc-id=0 serial-num=19fcda00f5ff6e03 action={}"
)
FATAL = "#!/bin/sh\necho 'level=fatal msg=\"Failed to load MLA system information\"' >&2\nexit 1\n"


def hbm_error(image: NodeImage) -> NodeImage:
    """The runtime has logged an error of a device's memory."""
    return with_kernel_line(image, HW_ERR.format("HBM_UNCORRECTABLE_ERROR", "TERMINATE_INSTANCE"))


def without_driver(image: NodeImage) -> NodeImage:
    """The devices are on the bus without a driver."""
    image = with_tool(without_module(image, "neuron"), LS, FATAL)
    return without_file(image, FOLDER)


def counted(image: NodeImage, device: int, counter: str, count: int) -> NodeImage:
    """One device has counted this many errors."""
    return with_file(image, f"{FOLDER}/neuron{device}/stats/hardware/{counter}", f"{count}\n")


FAULTS = (
    Fault(
        "a Neuron device that the driver does not run",
        lambda image: without_file(image, f"{FOLDER}/neuron7"),
        {"neuron.device_count": FAIL},
        "15 Neuron devices, 16 on the PCI bus; expected 16",
        base=healthy_trn1,
    ),
    Fault(
        "Neuron devices without a driver",
        without_driver,
        {
            "neuron.device_count": FAIL,
            "neuron.no_uncorrected_ecc": INCOMPLETE,
            "neuron.devices_answer": FAIL,  # neuron-ls reports it itself
            "neuron.connected": INCOMPLETE,
            "neuron.no_leftover_processes": INCOMPLETE,
        },
        "0 Neuron devices, 16 on the PCI bus; expected 16",
        base=healthy_trn1,
    ),
    Fault(
        "a Neuron device with half of its cores",
        lambda image: with_file(image, f"{FOLDER}/neuron3/core_count", "4\n"),
        {"neuron.device_count": FAIL},
        "Neuron device 3 has 4 cores; expected 8, like another device of the node",
        base=healthy_trn2,
    ),
    Fault(
        "a Neuron device of another model than the others",
        lambda image: with_file(image, f"{FOLDER}/neuron3/info/architecture/device_name", "Trainium1\n"),
        {"neuron.device_count": CONCERN},
        "devices are Trainium1 and Trainium2; expected one model",
        base=healthy_trn2,
    ),
    Fault(
        "uncorrected errors in a Neuron device's SRAM",
        lambda image: counted(image, 3, "sram_ecc_uncorrected", 2),
        {"neuron.no_uncorrected_ecc": FAIL},
        "Neuron device 3: uncorrected ECC errors: 2 in SRAM; expected 0",
        base=healthy_trn1,
    ),
    Fault(
        "an error in a Trainium2's memory that a reload of the driver repairs",
        lambda image: counted(image, 11, "mem_ecc_repairable_uncorrected", 1),
        {"neuron.no_uncorrected_ecc": FAIL},
        "1 in device memory that a reload of the driver repairs",
        base=healthy_trn2,
    ),
    Fault(
        "a driver that does not count a Neuron device's errors",
        lambda image: without_file(image, f"{FOLDER}/neuron3/stats"),
        {"neuron.no_uncorrected_ecc": INCOMPLETE},
        "could not be read (ENOENT)",
        base=healthy_trn1,
    ),
    Fault(
        "a hardware error of a Neuron device",
        lambda image: counted(hbm_error(image), 3, "mem_ecc_uncorrected", 1),
        {"neuron.no_hw_error": FAIL, "neuron.no_uncorrected_ecc": FAIL},
        "HBM_UNCORRECTABLE_ERROR of device 3 (TERMINATE_INSTANCE); expected no hardware error",
        base=healthy_trn1,
    ),
    Fault(
        "a hardware error of a Neuron device that its counters do not show",
        hbm_error,
        {"neuron.no_hw_error": CONCERN},
        "HBM_UNCORRECTABLE_ERROR of device 3 (TERMINATE_INSTANCE), not confirmed by any counter",
        base=healthy_trn1,
    ),
    Fault(
        "an Xid and a lockup that a user of a Neuron device has its driver write",
        lambda image: with_kernel_line(
            with_kernel_line(image, "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus."),
            "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3",
        ),
        {"host.lockups": CONCERN},
        "hard lockup (at 20",
        base=healthy_trn1,
    ),
    Fault(
        "a Neuron device whose reset does not end",
        lambda image: with_kernel_line(
            image, "neuron:nr_reset_thread_fn: nd3: reset request 12 was initiated, but failed to complete"
        ),
        {"neuron.no_hw_error": CONCERN},
        "nd3: a reset did not end",
        base=healthy_trn1,
    ),
    Fault(
        "neuron-ls that hangs",
        lambda image: with_tool(image, LS, "#!/bin/sh\nexec sleep 60\n"),
        {
            "neuron.devices_answer": FAIL,
            "neuron.no_leftover_processes": INCOMPLETE,
            "node.evidence_complete": CONCERN,
        },
        "neuron-ls --json-output: no answer within 2 s; expected an answer of 16 devices",
        base=healthy_trn1,
        collector_s=2.0,
    ),
    Fault(
        "neuron-ls that finds no device",
        lambda image: with_tool(image, LS, FATAL),
        {"neuron.devices_answer": FAIL, "neuron.no_leftover_processes": INCOMPLETE},
        "Failed to load MLA system information",
        base=healthy_trn1,
    ),
    Fault(
        "a Neuron device that neuron-ls does not list",
        lambda image: with_tool(image, LS, printing(neuron_ls(2, 32)[:-1])),
        {"neuron.devices_answer": FAIL},
        "neuron-ls does not list device 15; expected all 16",
        base=healthy_trn1,
    ),
    Fault(
        "a node with Neuron devices and without neuron-ls",
        lambda image: without_file(image, LS),
        {"neuron.devices_answer": INCOMPLETE, "neuron.no_leftover_processes": INCOMPLETE},
        "neuron-ls is not installed here",
        base=healthy_trn1,
    ),
    Fault(
        "an image with Neuron devices and without neuron-ls",
        lambda image: without_file(image, LS),
        {"neuron.devices_answer": FAIL, "neuron.no_leftover_processes": INCOMPLETE},
        "expected Neuron's tools in the image",
        base=healthy_trn1,
        occasion="ami",
    ),
    Fault(
        "a Neuron device that lost a link",
        lambda image: with_file(image, f"{FOLDER}/neuron5/connected_devices", "1, 4, 6\n"),
        {"neuron.connected": FAIL},
        "Neuron device 5: linked with 1, 4, 6; expected 4 devices",
        base=healthy_trn1,
    ),
    Fault(
        "a Neuron device whose link has one end",
        lambda image: with_file(image, f"{FOLDER}/neuron5/connected_devices", "1, 4, 9, 15\n"),
        {"neuron.connected": FAIL},
        "which reports no link back",
        base=healthy_trn1,
    ),
    Fault(
        "a process that a job left on a Neuron device",
        lambda image: with_tool(image, LS, printing(neuron_ls(2, 32, {4: "python3 train.py"}))),
        {"neuron.no_leftover_processes": CONCERN},
        "python3 (pid 4711) on device 4",
        base=healthy_trn1,
    ),
)
