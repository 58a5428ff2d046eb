"""GPUs and their driver."""

from __future__ import annotations

from dataclasses import replace

from clusterproof.plugins.suite import node_checks
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.needs import needs_frozen
from tests.testbed.node import with_file, with_nvml, with_service, with_stuck_nvml, with_tool, without_file, without_pci

# What cannot be known of one GPU that does not answer, or of all while the driver does not.
OF_A_GPU = {
    **{name: INCOMPLETE for name, check in node_checks().items() if check.subject == "gpu"},
    "gpu.mig_uniform": INCOMPLETE,
    "gpu.vbios_uniform": INCOMPLETE,
}
OF_A_GPU.pop("gpu.gpu_answers")
OF_THE_DRIVER = OF_A_GPU | {
    "gpu.gpu_answers": INCOMPLETE,
    "gpu.gpu_count": INCOMPLETE,
    "gpu.fabric_manager": INCOMPLETE,
}

FAULTS = (
    Fault(
        "a driver that hangs in the kernel",
        lambda image: with_stuck_nvml(image, gpu=5),
        {"node.evidence_complete": FAIL, "gpu.driver_answers_in_time": FAIL, **OF_THE_DRIVER},
        "nvml",
        leaf_s=0.5,
        marks=(needs_frozen,),
    ),
    Fault(
        "a driver that does not answer",
        lambda image: with_nvml(image, gpu=5, hang="memory_info"),
        {"node.evidence_complete": CONCERN, "gpu.driver_answers_in_time": FAIL, **OF_THE_DRIVER},
        "nvml",
        leaf_s=0.5,
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
        {"gpu.gpu_count": FAIL},
        "NVML counts 7 GPUs, 7 on the PCI bus; expected 8",
    ),
    Fault(
        "a GPU that the driver lost from its count",
        lambda image: with_nvml(image, count=7),
        {"gpu.gpu_count": FAIL},
        "8 on the PCI bus, so the driver lost some",
    ),
    Fault(
        "a driver that counts no GPU at all",
        lambda image: with_nvml(image, count=0),
        {"gpu.gpu_count": FAIL, "gpu.gpu_answers": INCOMPLETE, **OF_A_GPU},
        "NVML counts 0 GPUs, 8 on the PCI bus",
    ),
    Fault(
        "GPUs short while the node settles",
        lambda image: with_file(with_nvml(image, count=7), "/proc/uptime", "61.20 100.00\n"),
        {"gpu.gpu_count": INCOMPLETE, "node.uptime_settled": INCOMPLETE},
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
        "GPU 2: the driver asks for GPU reset",
    ),
    Fault(
        "uncorrected errors in DRAM",
        lambda image: with_nvml(image, gpu=1, ecc_uncorrected_dram=14),
        {"gpu.no_uncorrected_ecc": FAIL},
        "GPU 1: uncorrected ECC errors: 14 in DRAM; expected 0",
    ),
    Fault(
        "uncorrected errors in SRAM while DRAM cannot be read",
        lambda image: with_nvml(image, gpu=1, ecc_uncorrected_sram=2, ecc_uncorrected_dram="error UNKNOWN"),
        {"gpu.no_uncorrected_ecc": FAIL},
        "2 in SRAM",
    ),
    Fault(
        "an ECC counter that cannot be read",
        lambda image: with_nvml(image, gpu=1, ecc_uncorrected_dram="error UNKNOWN"),
        {"gpu.no_uncorrected_ecc": INCOMPLETE},
        "UNKNOWN",
    ),
    Fault(
        "an ECC error on one GPU and an unreadable counter on another",
        lambda image: with_nvml(
            with_nvml(image, gpu=1, ecc_uncorrected_dram="error UNKNOWN"), gpu=6, ecc_uncorrected_dram=3
        ),
        {"gpu.no_uncorrected_ecc": FAIL},
        "GPU 6: uncorrected ECC errors: 3 in DRAM",
    ),
    Fault(
        "ECC switched off",
        lambda image: with_nvml(
            image,
            gpu=0,
            ecc_enabled=False,
            ecc_uncorrected_dram="error NOT_SUPPORTED",
            ecc_uncorrected_sram="error NOT_SUPPORTED",
        ),
        {"gpu.no_uncorrected_ecc": CONCERN, "gpu.ecc_mode": CONCERN},
        "ECC is disabled",
    ),
    Fault(
        "a row remapping that is pending",
        lambda image: with_nvml(image, gpu=4, remap_pending=True),
        {"gpu.row_remap": FAIL},
        "GPU 4: row remapping is pending",
    ),
    Fault(
        "a row remapping that is pending before a job",
        lambda image: with_nvml(image, gpu=4, remap_pending=True),
        {"gpu.row_remap": CONCERN},
        "pending",
        occasion="prolog",
    ),
    Fault(
        "a row remapping that failed",
        lambda image: with_nvml(image, gpu=4, remap_failed=True),
        {"gpu.row_remap": FAIL},
        "row remapping failed",
    ),
    Fault(
        "memory banks without spare rows",
        lambda image: with_nvml(image, gpu=4, remap_banks="2556 0 0 3 1"),
        {"gpu.row_remap": CONCERN},
        "4 memory banks",
    ),
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
        "an NVLink that is down beside one that cannot be read",
        lambda image: with_nvml(image, gpu=7, **{"nvlink 2": "error UNKNOWN", "nvlink 5": "inactive"}),
        {"gpu.nvlink_active": FAIL},
        "NVLink 5 inactive",
    ),
    Fault(
        "a fabric that is not ready",
        lambda image: with_nvml(image, gpu=0, fabric_state=2),
        {"gpu.fabric_state": FAIL},
        "fabric state is in progress",
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
        "fabric manager stopped",
        lambda image: with_service(image, "nvidia-fabricmanager", active="inactive", sub="dead", enabled="disabled"),
        {"gpu.fabric_manager": FAIL},
        "nvidia-fabricmanager is inactive",
    ),
    Fault(
        "fabric manager of another version",
        lambda image: with_tool(image, "nv-fabricmanager", "#!/bin/sh\necho 'Fabric Manager version is : 570.86.15'\n"),
        {"gpu.fabric_manager": FAIL},
        "fabric manager 570.86.15 with driver 580.126.09",
    ),
    Fault(
        "a fabric manager that does not tell its version",
        lambda image: without_file(image, "/usr/bin/nv-fabricmanager"),
        {"gpu.fabric_manager": INCOMPLETE},
        "nv-fabricmanager is not found",
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
        {"gpu.pcie_link": FAIL},
        "PCIe generation 3 under load; expected 5",
    ),
    Fault(
        "a hardware slowdown by heat",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x48"),
        {"gpu.no_throttle": FAIL},
        "hardware thermal slowdown",
    ),
    Fault(
        "a software slowdown by heat",
        lambda image: with_nvml(image, gpu=2, clocks_event_reasons="0x20"),
        {"gpu.no_throttle": CONCERN},
        "software thermal slowdown",
    ),
    Fault(
        "a GPU that somebody holds",
        lambda image: with_nvml(image, gpu=2, processes="1:9000"),
        {"gpu.no_leftover_processes": CONCERN},
        "(pid 1)",
    ),
    Fault(
        "a GPU that somebody holds before a job",
        lambda image: with_nvml(image, gpu=2, processes="1:9000"),
        {"gpu.no_leftover_processes": FAIL},
        "of no job",
        occasion="prolog",
    ),
    Fault(
        "GPU memory that nobody owns",
        lambda image: with_nvml(image, gpu=2, memory_used_mib=30_000),
        {"gpu.no_leftover_processes": CONCERN},
        "30000 MiB",
    ),
    Fault(
        "an SRAM that meets the criterion for replacement",
        lambda image: with_nvml(image, gpu=2, sram_threshold_exceeded=True),
        {"gpu.sram_threshold": FAIL},
        "GPU 2: the SRAM error threshold is exceeded",
    ),
    Fault(
        "an SRAM that is close to the criterion for replacement",
        lambda image: with_nvml(image, gpu=2, ecc_aggregate_uncorrected_sram=5),
        {"gpu.sram_threshold": CONCERN},
        "5 uncorrected SRAM errors",
    ),
    Fault(
        "corrected errors by the thousand each second",
        lambda image: with_nvml(image, gpu=2, ecc_corrected_dram=400_000_000),
        {"gpu.corrected_ecc_rate": FAIL},
        "4630 corrected ECC errors a second",
    ),
    Fault(
        "corrected errors by the thousand each day",
        lambda image: with_nvml(image, gpu=2, ecc_corrected_dram=4000),
        {"gpu.corrected_ecc_rate": CONCERN},
        "4000 corrected ECC errors a day",
    ),
    Fault(
        "a GPU above its slowdown temperature",
        lambda image: with_nvml(image, gpu=2, temperature_c=89, temperature_margin_c=-2),
        {"gpu.temperature": FAIL},
        "GPU 2: 2 °C above its slowdown temperature",
    ),
    Fault(
        "a GPU close to its slowdown temperature",
        lambda image: with_nvml(image, gpu=2, temperature_c=84, temperature_margin_c=3),
        {"gpu.temperature": CONCERN},
        "3 °C below",
    ),
    Fault(
        "a hot GPU whose driver tells no margin",
        lambda image: with_nvml(image, gpu=2, temperature_c=91, temperature_margin_c="error NOT_SUPPORTED"),
        {"gpu.temperature": FAIL},
        "91 °C; expected less than 88 °C",
    ),
    Fault(
        "a lowered power limit",
        lambda image: with_nvml(image, gpu=2, power_limit_w=500),
        {"gpu.power_limit": CONCERN},
        "power limit is 500 W; expected 700 W",
    ),
    Fault(
        "persistence mode off",
        lambda image: with_nvml(image, gpu=2, persistence_mode=False),
        {"gpu.persistence_mode": CONCERN},
        "persistence mode is off",
    ),
    Fault(
        "persistence mode off in an image",
        lambda image: with_nvml(image, gpu=2, persistence_mode=False),
        {"gpu.persistence_mode": FAIL},
        "persistence mode is off",
        occasion="ami",
    ),
    Fault(
        "an exclusive compute mode",
        lambda image: with_nvml(image, gpu=2, compute_mode=3),
        {"gpu.compute_mode": CONCERN},
        "compute mode is exclusive process",
    ),
    Fault(
        "MIG on one GPU only",
        lambda image: with_nvml(image, gpu=2, mig_mode=True),
        {"gpu.mig_uniform": CONCERN},
        "MIG is on for GPU 2 of 8",
    ),
    Fault(
        "a GPU with another VBIOS",
        lambda image: with_nvml(image, gpu=2, vbios="96.00.89.00.01"),
        {"gpu.vbios_uniform": CONCERN},
        "96.00.89.00.01 on 1 GPUs",
    ),
)
