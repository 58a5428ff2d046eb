"""The NVLink fabric and GPUDirect RDMA."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.image import NodeImage
from tests.testbed.node import (
    with_file,
    with_kernel_line,
    with_nvml,
    with_service,
    with_tool,
    without_file,
    without_module,
    without_pci,
)
from tests.testbed.nvml.values import NONE


def gb300() -> NodeImage:
    """A tray of an NVL72 rack: four GPUs in one clique of the rack's fabric."""
    return healthy_gpu_node("GB300")


def a100() -> NodeImage:
    """A p4d.24xlarge: six NVSwitches, and no GPU registers with a fabric."""
    return healthy_gpu_node("A100-40")


def without_fabric(image: NodeImage) -> NodeImage:
    """The driver does not support the fabric's state on any GPU."""
    return replace(image, nvml=(image.nvml or "").replace("fabric_state = 3", f"fabric_state = {NONE}"))


FAULTS = (
    Fault(
        "a fabric that is not ready",
        lambda image: with_nvml(image, gpu=0, fabric_state=2),
        {"gpu.fabric_state": FAIL},
        "fabric state is in progress",
    ),
    Fault(
        "a fabric that the driver does not support, of GPUs that are registered with one",
        without_fabric,
        {"gpu.fabric_state": INCOMPLETE, "gpu.fabric_uniform": INCOMPLETE},
        "the driver reports no NVLink fabric; expected one, since p5.48xlarge has NVLinks",
    ),
    Fault(
        "a tray of a rack whose driver supports no fabric",
        without_fabric,
        {
            "gpu.fabric_state": INCOMPLETE,
            "gpu.fabric_uniform": INCOMPLETE,
            "gpu.rack_trays": INCOMPLETE,
            "gpu.rack_uniform": INCOMPLETE,
        },
        "the driver reports no NVLink fabric",
        base=gb300,
    ),
    Fault(
        "a fabric that failed",
        lambda image: with_nvml(image, gpu=0, fabric_status=999),
        {"gpu.fabric_state": FAIL},
        "fabric status is 999",
    ),
    Fault(
        "a fabric route that is unhealthy",
        lambda image: with_nvml(image, gpu=0, fabric_health_mask=0x10),
        {"gpu.fabric_state": FAIL},
        "route unhealthy",
    ),
    Fault(
        "an NVSwitch that is missing",
        lambda image: without_pci(image, "0000:dc:00.0"),
        {"gpu.nvswitch_count": FAIL},
        "3 NVSwitches on the PCI bus; expected 4",
    ),
    Fault(
        "an NVSwitch that no driver holds",
        lambda image: without_file(image, "/sys/bus/pci/devices/0000:dc:00.0/driver"),
        {"gpu.nvswitch_count": FAIL},
        "no driver is bound to 0000:dc:00.0; expected nvidia-nvswitch on every NVSwitch",
    ),
    Fault(
        "one NVSwitch of six that is missing",
        lambda image: without_pci(image, "0000:dc:00.0"),
        {"gpu.nvswitch_count": FAIL},
        "5 NVSwitches on the PCI bus; expected 6",
        base=a100,
    ),
    Fault(
        "a tray of a rack without IMEX",
        lambda image: with_service(image, "nvidia-imex", active="inactive", sub="dead", enabled="disabled"),
        {"gpu.imex": CONCERN, "gpu.imex_domain": NA, "host.services": CONCERN},
        "nvidia-imex is inactive; expected active, unless pods or a prolog start their own",
        base=gb300,
    ),
    Fault(
        "fabric manager stopped",
        lambda image: with_service(image, "nvidia-fabricmanager", active="inactive", sub="dead", enabled="disabled"),
        {"gpu.fabric_manager": FAIL, "host.services": CONCERN},
        "nvidia-fabricmanager is inactive",
    ),
    Fault(
        "fabric manager of another version",
        lambda image: with_tool(image, "nv-fabricmanager", "#!/bin/sh\necho 'Fabric Manager version is : 570.86.15'\n"),
        {"gpu.fabric_manager": FAIL},
        "fabric manager 570.86.15 with driver 580.126.09",
    ),
    Fault(
        "a fabric manager whose version is unknown",
        lambda image: without_file(image, "/usr/bin/nv-fabricmanager"),
        {"gpu.fabric_manager": INCOMPLETE},
        "nv-fabricmanager was not found",
    ),
    Fault(
        "a fabric whose GPU has no partition",
        lambda image: with_nvml(image, gpu=0, fabric_health_mask=0x4AA),
        {"gpu.fabric_state": FAIL},
        "incorrect configuration: no partition",
        base=gb300,
    ),
    Fault(
        "a fabric that the driver calls unhealthy",
        lambda image: with_nvml(image, gpu=0, fabric_health_summary=2),
        {"gpu.fabric_state": FAIL},
        "GPU 0: fabric health is unhealthy; expected healthy",
        base=gb300,
    ),
    Fault(
        "a fabric of limited capacity",
        lambda image: with_nvml(image, gpu=0, fabric_health_summary=3),
        {"gpu.fabric_state": CONCERN},
        "GPU 0: fabric health is limited capacity; expected healthy",
        base=gb300,
    ),
    Fault(
        "a Hopper GPU that is in no fabric",
        lambda image: with_nvml(image, gpu=0, fabric_state=0),
        {"gpu.fabric_state": FAIL},
        "GPU 0: fabric state is not supported; expected completed",
    ),
    Fault(
        "a fabric that cannot be read",
        lambda image: with_nvml(image, gpu=0, fabric_state="error UNKNOWN"),
        {"gpu.fabric_state": INCOMPLETE, "gpu.fabric_uniform": INCOMPLETE},
        "fabric could not be read (UNKNOWN)",
    ),
    Fault(
        "a tray of a rack that is in no cluster",
        lambda image: replace(
            image,
            nvml=(image.nvml or "")
            .replace("00000001-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000000")
            .replace("= 32766", "= 0"),
        ),
        {"gpu.fabric_uniform": FAIL, "gpu.rack_trays": NA, "gpu.rack_uniform": NA},
        "in clique 0 of cluster 00000000000000000000000000000000; expected the cluster of their rack",
        base=gb300,
    ),
    Fault(
        "a tray of a rack that is in a clique of its own",
        lambda image: replace(image, nvml=(image.nvml or "").replace("= 32766", "= 7")),
        {"gpu.fabric_uniform": CONCERN, "gpu.imex_nodes": FAIL},
        "NVLink fabric clique 7 of cluster 00000001000000000000000000000001",
        base=gb300,
    ),
    Fault(
        "a GPU in another clique",
        lambda image: with_nvml(image, gpu=2, fabric_clique=2),
        {"gpu.fabric_uniform": FAIL},
        "GPU 2 in clique 2 of cluster 00000001000000000000000000000001; expected clique 32766 of cluster",
        base=gb300,
    ),
    Fault(
        "a GPU in another cluster, and one whose cluster is unknown",
        lambda image: with_nvml(
            with_nvml(image, gpu=2, fabric_cluster_uuid="00000002-0000-0000-0000-000000000002"),
            gpu=3,
            fabric_state="error UNKNOWN",
        ),
        {"gpu.fabric_uniform": FAIL, "gpu.fabric_state": INCOMPLETE},
        "GPU 2 in clique 32766 of cluster 00000002000000000000000000000002",
        base=gb300,
    ),
    Fault(
        "a node without GPUDirect RDMA in its kernel",
        lambda image: with_file(image, "/sys/module/nvidia/taint", "POE\n"),
        {"gpu.peermem": CONCERN},
        "nvidia_peermem is not loaded, and no DMA-BUF with kernel 6.8.0-1021-aws and a proprietary NVIDIA module",
    ),
    Fault(
        "an nvidia-peermem that was built for another kernel",
        lambda image: with_kernel_line(
            with_file(image, "/sys/module/nvidia/taint", "POE\n"),
            "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)",
        ),
        {"gpu.peermem": CONCERN},
        "nvidia-peermem does not fit the kernel (ib_register_peer_memory_client): no GPUDirect RDMA",
    ),
    Fault(
        "a kernel without DMA-BUF",
        lambda image: with_file(image, "/proc/sys/kernel/osrelease", "5.10.228-219.884.amzn2.x86_64\n"),
        {
            "gpu.peermem": CONCERN,
            "host.kernel_running_is_installed": CONCERN,
            "software.version_drift": CONCERN,
        },
        "no DMA-BUF with kernel 5.10.228-219.884.amzn2.x86_64 and the open NVIDIA module; expected",
    ),
    Fault(
        "an NVIDIA module that does not report whether it is the open one",
        lambda image: without_file(image, "/sys/module/nvidia/taint"),
        {"gpu.peermem": INCOMPLETE},
        "no NVIDIA kernel module is loaded",
    ),
    Fault(
        "gdrcopy's module not loaded",
        lambda image: without_module(image, "gdrdrv"),
        {"gpu.peermem": CONCERN, "software.version_drift": CONCERN},
        "gdrdrv is not loaded; expected",
    ),
)
