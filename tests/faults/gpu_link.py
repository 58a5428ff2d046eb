"""The links of GPUs: NVLink and PCIe."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.faults.gpu_fabric import a100
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.image import NodeImage
from tests.testbed.node import with_file, with_kernel_line, with_nvml
from tests.testbed.nvml.values import NONE
from tests.testbed.sysfs import aer

GPU_2 = "0000:75:00.0"


def b200() -> NodeImage:
    """A p6-b200.48xlarge with NVLink 5."""
    return healthy_gpu_node("B200")


def l40s() -> NodeImage:
    """A g6e.48xlarge: it wires 8 lanes to each GPU."""
    return healthy_gpu_node("L40S")


def a10g() -> NodeImage:
    """A g5.48xlarge: its EFA has no RDMA, and the catalogue lacks its number of wired lanes."""
    return healthy_gpu_node("A10G")


def with_aer(image: NodeImage, address: str, *, fatal: int = 0, nonfatal: int = 0, correctable: int = 0) -> NodeImage:
    """The kernel has counted these PCIe errors of that device."""
    for name, text in aer(correctable, nonfatal, fatal).items():
        image = with_file(image, f"/sys/bus/pci/devices/{address}/{name}", text)
    return image


def with_narrow_link(image: NodeImage) -> NodeImage:
    """The bus shows four lanes for GPU 2, and its driver does not know its number."""
    image = with_nvml(image, gpu=2, pcie_width="error UNKNOWN")
    return with_file(image, f"/sys/bus/pci/devices/{GPU_2}/current_link_width", "4\n")


FAULTS = (
    Fault(
        "an NVLink that is down",
        lambda image: with_nvml(image, gpu=7, **{"nvlink 5": "inactive"}),
        {"gpu.nvlink_active": FAIL},
        "GPU 7: NVLink 5 inactive; expected 18",
    ),
    Fault(
        "NVLinks that are missing",
        lambda image: with_nvml(image, gpu=7, nvlinks=16),
        {"gpu.nvlink_active": FAIL},
        "16 NVLinks; expected 18",
    ),
    Fault(
        "GPUs whose driver supports no NVLink, of a type that has them",
        lambda image: replace(image, nvml=(image.nvml or "").replace("nvlinks = 12", f"nvlinks = {NONE}")),
        {"gpu.nvlink_active": FAIL, "gpu.nvlink_errors": NA},
        "0 NVLinks; expected 12 active links",
        base=a100,
    ),
    Fault(
        "a GPU whose driver supports no NVLink, unlike on the others",
        lambda image: with_nvml(image, gpu=7, nvlinks=NONE),
        {"gpu.nvlink_active": FAIL, "gpu.nvlink_errors": INCOMPLETE},
        "GPU 7: 0 NVLinks; expected 18 active links",
    ),
    Fault(
        "an NVLink that is down beside one that cannot be read",
        lambda image: with_nvml(image, gpu=7, **{"nvlink 2": "error UNKNOWN", "nvlink 5": "inactive"}),
        {"gpu.nvlink_active": FAIL},
        "NVLink 5 inactive",
    ),
    Fault(
        "a PCIe link that lost lanes",
        lambda image: with_nvml(image, gpu=2, pcie_width=8),
        {"gpu.pcie_link": FAIL},
        "GPU 2: PCIe x8; expected x16",
    ),
    Fault(
        "a PCIe link that is slow under load",
        lambda image: with_nvml(image, gpu=2, pcie_gen=3, utilization_percent=97),
        {"gpu.pcie_link": FAIL, "gpu.no_leftover_processes": CONCERN},
        "PCIe generation 3 under load; expected 5",
    ),
    Fault(
        "a PCIe link that came up for an older generation",
        lambda image: with_nvml(image, gpu=2, pcie_gen=4, pcie_gen_max=4),
        {"gpu.pcie_link": FAIL, "gpu.gpu_uniform": CONCERN},
        "GPU 2: PCIe generation 4 at most; expected 5, as on the node's other GPUs",
    ),
    Fault(
        "a PCIe link that came up with fewer lanes at most",
        lambda image: with_nvml(image, gpu=2, pcie_width=8, pcie_width_max=8),
        {"gpu.pcie_link": FAIL, "gpu.gpu_uniform": CONCERN},
        "GPU 2: PCIe x8 at most; expected 16, as on the node's other GPUs",
    ),
    Fault(
        "lanes that the bus has lost of a GPU of which the driver says nothing",
        lambda image: with_file(with_narrow_link(image), f"/sys/bus/pci/devices/{GPU_2}/../max_link_width", "16\n"),
        {"gpu.pcie_lanes": FAIL, "gpu.pcie_link": INCOMPLETE},
        "0000:75:00.0: PCIe x4; expected x16",
    ),
    Fault(
        "the same where nobody knows how many lanes its slot has",
        with_narrow_link,
        {"gpu.pcie_lanes": CONCERN, "gpu.pcie_link": INCOMPLETE},
        "0000:75:00.0: PCIe x4; expected x16, unless its slot is narrower",
    ),
    Fault(
        "NVLinks that replayed",
        lambda image: with_nvml(image, gpu=3, **{"nvlink 5 errors 0": 12, "nvlink 6 errors 3": 1}),
        {"gpu.nvlink_errors": CONCERN},
        "GPU 3: NVLink 5: 12 replay, NVLink 6: 1 crc data; expected none since boot",
    ),
    Fault(
        "an NVLink that recovered",
        lambda image: with_nvml(image, gpu=3, **{"nvlink 5 errors 1": 2}),
        {"gpu.nvlink_errors": CONCERN},
        "GPU 3: NVLink 5: 2 recovery",
    ),
    Fault(
        "an NVLink that recovered on a GPU with a fatal Xid",
        lambda image: with_kernel_line(
            with_nvml(image, gpu=3, **{"nvlink 5 errors 1": 2}),
            "NVRM: Xid (PCI:0000:86:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 5",
        ),
        {"gpu.nvlink_errors": FAIL, "gpu.no_xid": FAIL},
        "GPU 3: NVLink 5: 2 recovery, and Xid 74; expected",
    ),
    Fault(
        "an NVLink that recovered on another GPU than the one with a fatal Xid",
        lambda image: with_kernel_line(
            with_nvml(image, gpu=3, **{"nvlink 5 errors 1": 2}),
            "NVRM: Xid (PCI:0000:53:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error)",
        ),
        {"gpu.nvlink_errors": CONCERN, "gpu.no_xid": FAIL},
        "GPU 3: NVLink 5: 2 recovery; expected none",
    ),
    Fault(
        "an NVLink error counter that cannot be read",
        lambda image: with_nvml(image, gpu=3, **{"nvlink 5 errors 2": "error UNKNOWN", "nvlink 6 errors 0": 1}),
        {"gpu.nvlink_errors": INCOMPLETE},
        "NVLink 5: crc_flit could not be read",
    ),
    Fault(
        "an NVLink that recovered on a Blackwell GPU",
        lambda image: with_nvml(image, gpu=3, **{"nvlink 17 field 213": 1}),
        {"gpu.nvlink_errors": CONCERN},
        "GPU 3: NVLink 17: 1 recovery",
        base=b200,
    ),
    Fault(
        "an NVLink that failed to recover on a Blackwell GPU with a fatal Xid",
        lambda image: with_kernel_line(
            with_nvml(image, gpu=3, **{"nvlink 17 field 214": 1}),
            "NVRM: Xid (PCI:0000:86:00): 149, NETIR_LINK_EVT Fatal   XC0 i0 Link 17",
        ),
        {"gpu.nvlink_errors": FAIL, "gpu.no_xid": FAIL},
        "NVLink 17: 1 recovery failed, and Xid 149",
        base=b200,
    ),
    Fault(
        "NVLinks with bit errors on a Blackwell GPU",
        lambda image: with_nvml(
            image,
            gpu=3,
            **{"nvlink 9 field 220": "0x20c", "nvlink 10 field 220": "0x10c", "nvlink 17 field 222": "0x113"},
        ),
        {"gpu.nvlink_errors": CONCERN},
        "GPU 3: NVLink 9: 2e-12 effective BER; expected at most 1e-12\n"
        "GPU 3: NVLink 17: 1e-19 symbol BER; expected at most 1e-25",
        base=b200,
    ),
    Fault(
        "a bit error rate of an NVLink that cannot be read",
        lambda image: with_nvml(image, gpu=3, **{"nvlink 9 field 220": "error UNKNOWN"}),
        {"gpu.nvlink_errors": INCOMPLETE},
        "NVLink 9: effective_ber could not be read",
        base=b200,
    ),
    Fault(
        "an NVLink whose state cannot be read",
        lambda image: with_nvml(image, gpu=7, **{"nvlink 5": "error UNKNOWN"}),
        {"gpu.nvlink_active": INCOMPLETE},
        "NVLink 5 could not be read; expected 18 active links",
    ),
    Fault(
        "a PCIe link that lost lanes beside others that have them",
        lambda image: with_nvml(image, gpu=2, pcie_width=4),
        {"gpu.pcie_link": FAIL},
        "GPU 2: PCIe x4; expected x8",
        base=l40s,
    ),
    Fault(
        "PCIe links of which nobody knows whether they have all their lanes",
        lambda image: replace(image, nvml=(image.nvml or "").replace("pcie_width = 16", "pcie_width = 8")),
        {"gpu.pcie_link": CONCERN},
        "PCIe x8 on every GPU; expected x16, unless this machine wires no more",
        base=a10g,
    ),
    Fault(
        "a fatal PCIe error",
        lambda image: with_aer(image, GPU_2, fatal=1, nonfatal=1, correctable=9000),
        {"gpu.pcie_errors": FAIL},
        "0000:75:00.0: 1 fatal PCIe errors; expected 0",
    ),
    Fault(
        "a network device that has left the bus while its driver is still there",
        lambda image: with_file(
            with_file(
                with_file(image, "/sys/bus/pci/devices/0000:4f:00.0/current_link_width", "63\n"),
                "/sys/bus/pci/devices/0000:4f:00.0/current_link_speed",
                "Unknown\n",
            ),
            "/sys/bus/pci/devices/0000:4f:00.0/power/runtime_status",
            "active\n",
        ),
        {"gpu.pcie_errors": FAIL},
        "0000:4f:00.0: does not answer on PCIe: it reads as all ones (x63, or rev ff); expected a device that answers",
    ),
    Fault(
        "an uncorrected PCIe error",
        lambda image: with_aer(image, GPU_2, nonfatal=3),
        {"gpu.pcie_errors": CONCERN},
        "0000:75:00.0: 3 uncorrected PCIe errors; expected 0",
    ),
    Fault(
        "correctable PCIe errors of an EFA device by the hundred",
        lambda image: with_aer(image, "0000:4f:00.0", correctable=481),
        {"gpu.pcie_errors": CONCERN},
        "0000:4f:00.0: 481 PCIe correctable errors since boot; expected at most 480",
    ),
    Fault(
        "PCIe replays by the thousand",
        lambda image: with_nvml(image, gpu=2, pcie_replays=1001),
        {"gpu.pcie_errors": CONCERN},
        "0000:75:00.0: 1001 PCIe replays since its reset; expected at most 1000",
    ),
    Fault(
        "PCIe replays that cannot be read",
        lambda image: with_nvml(image, gpu=2, pcie_replays="error UNKNOWN"),
        {"gpu.pcie_errors": INCOMPLETE},
        "0000:75:00.0: pcie_replays could not be read (UNKNOWN)",
    ),
    Fault(
        "PCIe error counters that make no sense",
        lambda image: with_file(image, f"/sys/bus/pci/devices/{GPU_2}/aer_dev_fatal", "garbage"),
        {"gpu.pcie_errors": INCOMPLETE},
        "0000:75:00.0: fatal could not be read (NOT_UNDERSTOOD)",
    ),
)
