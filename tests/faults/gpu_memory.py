"""GPU memory: its errors, its wear, and the processes that hold it."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.image import NodeImage
from tests.testbed.node import with_nvml
from tests.testbed.nvml.values import ECC, NONE


def v100() -> NodeImage:
    """A p3dn.24xlarge: its GPUs retire pages."""
    return healthy_gpu_node("V100")


def h100_with_mig() -> NodeImage:
    """A p5.48xlarge whose GPUs are partitioned."""
    return healthy_gpu_node("H100", mig=True)


def without_values(image: NodeImage, *keys: str) -> NodeImage:
    """The driver does not support these values on any GPU."""
    lines = (image.nvml or "").splitlines()
    return replace(image, nvml="".join(f"{_unsupported(line, keys)}\n" for line in lines))


def _unsupported(line: str, keys: tuple[str, ...]) -> str:
    key = line.partition(" = ")[0]
    return f"{key} = {NONE}" if key in keys else line


FAULTS = (
    Fault(
        "ECC counters that the driver supports on the other GPUs",
        lambda image: with_nvml(image, gpu=2, **dict.fromkeys(ECC, NONE)),
        {"gpu.no_uncorrected_ecc": INCOMPLETE, "gpu.corrected_ecc_rate": INCOMPLETE, "gpu.sram_threshold": INCOMPLETE},
        "GPU 2: ecc_uncorrected_dram could not be read (NOT_SUPPORTED; others of its kind answer)",
    ),
    Fault(
        "ECC of which the driver says nothing, on a type that has it",
        lambda image: without_values(image, "ecc_enabled", *ECC),
        {
            "gpu.no_uncorrected_ecc": INCOMPLETE,
            "gpu.corrected_ecc_rate": INCOMPLETE,
            "gpu.ecc_mode": INCOMPLETE,
            "gpu.sram_threshold": NA,
        },
        "ecc_uncorrected_dram could not be read (NOT_SUPPORTED; others of its kind answer)",
    ),
    Fault(
        "settings and counters that the driver supports on the other GPUs",
        lambda image: with_nvml(
            image,
            gpu=2,
            **dict.fromkeys(
                ("remap_failed", "remap_pending", "clocks_event_reasons", "pcie_width", "persistence_mode"), NONE
            ),
        ),
        {
            "gpu.row_remap": INCOMPLETE,
            "gpu.no_throttle": INCOMPLETE,
            "gpu.pcie_link": INCOMPLETE,
            "gpu.persistence_mode": INCOMPLETE,
        },
        "GPU 2: remap_failed could not be read (NOT_SUPPORTED; others of its kind answer)",
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
        "memory banks whose spare rows cannot be read",
        lambda image: with_nvml(image, gpu=1, remap_banks="error UNKNOWN"),
        {"gpu.row_remap": INCOMPLETE},
        "GPU 1: remap_banks could not be read (UNKNOWN)",
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
        "a corrupted InfoROM",
        lambda image: with_nvml(image, gpu=3, inforom_valid="error CORRUPTED_INFOROM"),
        {"gpu.inforom": CONCERN},
        "GPU 3: the InfoROM is corrupted; expected valid checksums",
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
        "memory that cannot be repaired",
        lambda image: with_nvml(image, gpu=4, memory_unrepairable=True),
        {"gpu.row_remap": FAIL},
        "GPU 4: its memory cannot be repaired; expected no unrepairable memory",
    ),
    Fault(
        "a repair of a memory channel that is pending",
        lambda image: with_nvml(image, gpu=4, channel_repair_pending=True),
        {"gpu.row_remap": FAIL},
        "GPU 4: repair of a memory channel is pending; expected none",
    ),
    Fault(
        "a repair of a processor that is pending before a job",
        lambda image: with_nvml(image, gpu=4, tpc_repair_pending=True),
        {"gpu.row_remap": CONCERN},
        "GPU 4: repair of a processor (TPC) is pending",
        occasion="prolog",
    ),
    Fault(
        "hundreds of rows that were remapped for errors",
        lambda image: with_nvml(image, gpu=4, remapped_uncorrectable=512),
        {"gpu.row_remap": CONCERN},
        "GPU 4: 512 rows remapped for errors; expected less than 512",
    ),
    Fault(
        "memory banks without spare rows",
        lambda image: with_nvml(image, gpu=4, remap_banks="2556 0 0 3 1"),
        {"gpu.row_remap": CONCERN},
        "4 memory banks",
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
        "outside any job",
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
        "an SRAM whose criterion for replacement cannot be read",
        lambda image: with_nvml(image, gpu=2, sram_threshold_exceeded="error UNKNOWN"),
        {"gpu.sram_threshold": INCOMPLETE},
        "sram_threshold_exceeded could not be read (UNKNOWN)",
    ),
    Fault(
        "a page retirement that is pending on a GPU before Ampere",
        lambda image: with_nvml(image, gpu=1, retired_pages_pending=True),
        {"gpu.row_remap": FAIL},
        "GPU 1: page retirement is pending; expected none",
        base=v100,
    ),
    Fault(
        "many retired pages on a GPU before Ampere",
        lambda image: with_nvml(image, gpu=1, retired_pages_single_bit=9, retired_pages_double_bit=2),
        {"gpu.row_remap": CONCERN},
        "GPU 1: 11 retired pages; expected at most 10",
        base=v100,
    ),
    Fault(
        "retired pages that cannot be counted",
        lambda image: with_nvml(image, gpu=1, retired_pages_double_bit="error UNKNOWN"),
        {"gpu.row_remap": INCOMPLETE},
        "retired_pages_double_bit could not be read (UNKNOWN)",
        base=v100,
    ),
    Fault(
        "memory banks without spare rows on a GPU with MIG",
        lambda image: with_nvml(image, gpu=1, remap_banks="2556 0 0 3 1"),
        {"gpu.row_remap": CONCERN},
        "GPU 1: 4 memory banks",
        base=h100_with_mig,
    ),
)
