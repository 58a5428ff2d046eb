"""GPUs and their driver: presence and response."""

from __future__ import annotations

from dataclasses import replace

from clusterproof.plugins.evaluation.all_checks import node_checks
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.image import Link, NodeImage
from tests.testbed.needs import needs_frozen
from tests.testbed.node import with_file, with_nvml, with_stuck_nvml, without_efa, without_pci
from tests.testbed.pci import EFA_NAMES
from tests.testbed.sysfs import Tree, module

# What is unknown of one GPU that does not answer, or of all if the driver does not.
OF_A_GPU = {
    **{name: INCOMPLETE for name, check in node_checks().items() if check.subject == "gpu"},
    "gpu.fabric_uniform": INCOMPLETE,
    "gpu.gpu_identity": INCOMPLETE,
    "gpu.gpu_uniform": INCOMPLETE,
    "gpu.inforom": INCOMPLETE,
    "gpu.mig_uniform": INCOMPLETE,
    "gpu.pcie_errors": INCOMPLETE,
    "gpu.vbios_uniform": INCOMPLETE,
}
OF_A_GPU.pop("gpu.gpu_answers")
OF_A_HUNG_GPU = {**OF_A_GPU, "gpu.gpu_answers": INCOMPLETE, "host.firmware_uniform": INCOMPLETE}
OF_A_RACK = dict.fromkeys(
    (
        *("gpu.imex", "gpu.imex_domain", "gpu.imex_nodes", "gpu.rack_trays", "gpu.rack_uniform"),
        "software.container_devices",  # whether an IMEX channel is needed
    ),
    INCOMPLETE,
)
OF_THE_DRIVER = (
    OF_A_GPU
    | OF_A_RACK
    | {
        "gpu.gpu_answers": INCOMPLETE,
        "gpu.gpu_count": INCOMPLETE,
        "gpu.fabric_manager": INCOMPLETE,
        "host.firmware_uniform": INCOMPLETE,
    }
)


def held_by_nouveau(address: str) -> Tree:
    """That GPU's driver is nouveau."""
    return {f"devices/pci0000:00/{address}/driver": Link("../../../bus/pci/drivers/nouveau")}


def dgx_h100() -> NodeImage:
    """A machine outside EC2, recognised by its firmware and GPUs."""
    image = healthy_gpu_node("H100")
    for name in EFA_NAMES:
        image = without_efa(image, name)
    image = with_file(image, "/sys/class/dmi/id/sys_vendor", "NVIDIA\n")
    return with_file(image, "/sys/class/dmi/id/product_name", "DGXH100\n")


FAULTS = (
    Fault(
        "a driver that hangs in the kernel",
        lambda image: with_stuck_nvml(image, gpu=5),
        {"node.evidence_complete": FAIL, "gpu.driver_answers_in_time": FAIL, **OF_A_HUNG_GPU},
        "nvml",
        collector_s=1.0,
        marks=(needs_frozen,),
    ),
    Fault(
        "a driver that does not answer",
        lambda image: with_nvml(image, gpu=5, hang="memory_info"),
        {
            "node.evidence_complete": CONCERN,
            "gpu.driver_answers_in_time": FAIL,
            **OF_A_HUNG_GPU,
        },
        "nvml",
        collector_s=1.0,
    ),
    Fault(
        "a driver that is slow to start",
        lambda image: with_nvml(image, slow="init 5.2"),
        {"gpu.driver_answers_in_time": CONCERN},
        "5.2 s",
    ),
    Fault(
        "a GPU that failed before the driver saw it",
        lambda image: with_nvml(without_pci(image, "0000:53:00.0"), count=7),
        {"gpu.gpu_count": FAIL, "gpu.pcie_errors": INCOMPLETE},
        "NVML counts 7 GPUs, 7 on the PCI bus; expected 8",
    ),
    Fault(
        "a GPU of a DGX that failed before the driver saw it",
        lambda image: with_nvml(without_pci(image, "0000:53:00.0"), count=7),
        {"gpu.gpu_count": FAIL, "gpu.pcie_errors": INCOMPLETE},
        "NVML counts 7 GPUs, 7 on the PCI bus; expected 8",
        base=dgx_h100,
    ),
    Fault(
        "a GPU that the driver lost from its count",
        lambda image: with_nvml(image, count=7),
        {"gpu.gpu_count": FAIL, "gpu.pcie_errors": INCOMPLETE},
        "8 on the PCI bus, so the driver lost some",
    ),
    Fault(
        "a GPU that the driver counts and the bus has lost",
        lambda image: without_pci(image, "0000:75:00.0"),
        {"gpu.gpu_count": FAIL},
        "the PCI bus does not show GPU 2 at 0000:75:00.0; expected all GPUs on it",
    ),
    Fault(
        "a GPU that nouveau holds",
        lambda image: replace(image, sys=image.sys | held_by_nouveau("0000:75:00.0")),
        {"gpu.gpu_driver": FAIL},
        "nouveau holds 0000:75:00.0; expected nvidia",
    ),
    Fault(
        "nouveau beside NVIDIA's driver",
        lambda image: replace(image, sys=image.sys | module("nouveau")),
        {"gpu.gpu_driver": CONCERN},
        "nouveau is loaded alongside nvidia; expected not loaded",
    ),
    Fault(
        "a GPU near other CPUs than on the other nodes",
        lambda image: with_file(image, "/sys/bus/pci/devices/0000:75:00.0/numa_node", "1\n"),
        {"gpu.gpu_numa": CONCERN},
        "NUMA node of 0000:75:00.0 1; expected 0 as on 3 of 4 nodes",
    ),
    Fault(
        "a driver that counts no GPU at all",
        lambda image: with_nvml(image, count=0),
        {
            "gpu.gpu_count": FAIL,
            "gpu.gpu_answers": INCOMPLETE,
            "host.firmware_uniform": INCOMPLETE,
            **OF_A_GPU,
            **OF_A_RACK,
        },
        "NVML counts 0 GPUs, 8 on the PCI bus",
    ),
    Fault(
        "GPUs short while the node settles",
        lambda image: with_file(with_nvml(image, count=7), "/proc/uptime", "61.20 100.00\n"),
        {"gpu.gpu_count": INCOMPLETE, "gpu.pcie_errors": INCOMPLETE, "node.uptime_settled": INCOMPLETE},
        "61 s after boot",
    ),
    Fault(
        "a driver that is not loaded",
        lambda image: with_nvml(image, init="error DRIVER_NOT_LOADED"),
        {
            "gpu.gpu_count": FAIL,
            **{name: verdict for name, verdict in OF_THE_DRIVER.items() if name != "gpu.gpu_count"},
            "gpu.driver_answers_in_time": INCOMPLETE,
        },
        "DRIVER_NOT_LOADED",
    ),
    Fault(
        "a node without the NVML library",
        lambda image: replace(image, nvml=None),
        {
            "gpu.gpu_count": FAIL,
            **{name: verdict for name, verdict in OF_THE_DRIVER.items() if name != "gpu.gpu_count"},
            "gpu.driver_answers_in_time": INCOMPLETE,
            "software.libraries_load": FAIL,
            "software.container_libraries": FAIL,
        },
        "no NVML library",
    ),
    Fault(
        "a GPU that is lost",
        lambda image: with_nvml(image, gpu=3, handle="error GPU_IS_LOST"),
        {"gpu.gpu_answers": FAIL, **OF_A_GPU},
        "GPU 3: the driver says GPU_IS_LOST",
    ),
    Fault(
        "a GPU that gives its handle and is lost",
        lambda image: with_nvml(image, gpu=3, lost_after=0),
        {"gpu.gpu_answers": FAIL, **OF_A_GPU},
        "GPU 3: the driver says GPU_IS_LOST",
    ),
    Fault(
        "a GPU that is lost while it is asked",
        lambda image: with_nvml(image, gpu=3, lost_after=60),
        {"gpu.gpu_answers": FAIL, **OF_A_GPU},
        "GPU 3: the driver says GPU_IS_LOST",
    ),
    Fault(
        "a GPU that needs a reset, by the last value read",
        lambda image: with_nvml(image, gpu=3, processes="error RESET_REQUIRED"),
        {"gpu.gpu_answers": FAIL, **OF_A_GPU},
        "GPU 3: the driver says RESET_REQUIRED",
    ),
    Fault(
        "two GPUs lost at once",
        lambda image: with_nvml(
            with_nvml(image, gpu=3, handle="error GPU_IS_LOST"), gpu=6, handle="error RESET_REQUIRED"
        ),
        {"gpu.gpu_answers": FAIL, **OF_A_GPU},
        "GPU 6: the driver says RESET_REQUIRED",
    ),
    Fault(
        "a GPU that asks for a reset",
        lambda image: with_nvml(image, gpu=2, recovery_action=1),
        {"gpu.recovery_action": FAIL},
        "GPU 2: the driver requests GPU reset",
    ),
)
