"""Where nvidia-smi prints each value of the collector `nvml`: in its text, its XML and its CSV, of every driver."""

from __future__ import annotations

from clusterproof.plugins.evidence.gpu.facts import LOST
from clusterproof.plugins.evidence.gpu.parse_nvidia_sections import (
    action,
    banks,
    ecc,
    ecc_paths,
    fabric,
    of_old,
    reasons,
    recovery,
    sram,
)
from clusterproof.plugins.evidence.gpu.parse_nvidia_words import (
    Attributes,
    Reader,
    address,
    between,
    error,
    first,
    flag,
    integer,
    mask,
    number,
    one_of,
    text,
    total,
    value,
    width,
)

# What a full query prints first and last of a GPU: between them a section that is not there is one that is not known.
_BEGINNING = ("vbios version", "vbios_version")
_PCI = ("pci/",)
_ECC = ("ecc errors/aggregate", "ecc_errors/aggregate")
_RETIRED = ("retired pages", "retired_pages")
_TEMPERATURE = ("temperature/",)
_POWER = ("power readings/", "gpu power readings/", "power_readings/", "gpu_power_readings/")
_END = ("processes",)

_MODES = {"default": 0, "exclusive_thread": 1, "exclusive thread": 1, "prohibited": 2}
_MODES |= {"exclusive_process": 3, "exclusive process": 3, "e. process": 3, "e. thread": 1}
_LINK = ("pci/gpu link info/", "pci/pci_gpu_link_info/")
_CEILING = ("gpu power readings/gpu ceiling power limit/", "gpu_power_readings/gpu_ceiling_power_limit/")  # since 610
GPU: dict[str, Reader] = {
    "uuid": value(text, "gpu uuid", "uuid", "gpu_uuid"),
    "serial": value(text, "serial number", "serial", "gpu_serial"),
    "name": value(text, "product name", "product_name", "name", "gpu_name"),
    "vbios": value(text, "vbios version", "vbios_version"),
    "inforom": value(text, "inforom version/image version", "inforom_version/img_version", "inforom.img"),
    "pci": value(address, "pci/bus id", "pci/pci_bus_id", "pci.bus_id", "gpu_bus_id"),
    "ecc_pending": value(flag, "ecc mode/pending", "ecc_mode/pending_ecc", "ecc.mode.pending"),
    "ecc_enabled": value(flag, "ecc mode/current", "ecc_mode/current_ecc", "ecc.mode.current"),
    "ecc_uncorrected_dram": first(
        ecc("volatile", "dram uncorrectable", "ecc.errors.uncorrected.volatile.dram"),
        value(integer, "ecc.errors.uncorrected.volatile.device_memory"),
        of_old("double", "device memory"),
    ),
    "ecc_uncorrected_sram": sram("volatile"),
    "ecc_uncorrected_total": first(
        value(integer, "ecc.errors.uncorrected.volatile.total"),
        of_old("double", "total"),
        total(ecc("volatile", "dram uncorrectable"), sram("volatile")),
    ),
    "ecc_corrected_total": first(
        value(integer, "ecc.errors.corrected.volatile.total"),
        of_old("single", "total"),
        total(ecc("volatile", "dram correctable"), ecc("volatile", "sram correctable")),
    ),
    "ecc_aggregate_uncorrected_sram": sram("aggregate"),
    "sram_threshold_exceeded": between(
        value(
            flag,
            *ecc_paths("aggregate", "sram threshold exceeded"),
            "ecc.errors.uncorrected.aggregate.sram.thresholdexceeded",
        ),
        _ECC,
        _RETIRED,
    ),
    "remap_pending": between(
        value(flag, "remapped rows/pending", "remapped_rows/remapped_row_pending", "remapped_rows.pending"),
        _RETIRED,
        _TEMPERATURE,
    ),
    "remap_failed": between(
        value(
            flag,
            "remapped rows/remapping failure occurred",
            "remapped_rows/remapped_row_failure",
            "remapped_rows.failure",
        ),
        _RETIRED,
        _TEMPERATURE,
    ),
    "remapped_correctable": value(
        integer, "remapped rows/correctable error", "remapped_rows/remapped_row_corr", "remapped_rows.correctable"
    ),
    "remapped_uncorrectable": value(
        integer, "remapped rows/uncorrectable error", "remapped_rows/remapped_row_unc", "remapped_rows.uncorrectable"
    ),
    "remap_banks": banks,
    "memory_unrepairable": value(flag, "ecc errors/unrepairable memory", "ecc_errors/unrepairable_memory"),
    "channel_repair_pending": value(flag, "ecc errors/channel repair pending", "ecc_errors/channel_repair_pending"),
    "tpc_repair_pending": value(flag, "ecc errors/tpc repair pending", "ecc_errors/tpc_repair_pending"),
    "retired_pages_pending": value(
        flag,
        "retired pages/pending page blacklist",
        "retired pages/pending",
        "retired_pages/pending_retirement",
        "retired_pages/pending_blacklist",
        "retired_pages.pending",
    ),
    "retired_pages_single_bit": value(
        integer,
        "retired pages/single bit ecc",
        "retired_pages/multiple_single_bit_retirement/retired_count",
        "retired_pages.single_bit_ecc.count",
    ),
    "retired_pages_double_bit": value(
        integer,
        "retired pages/double bit ecc",
        "retired_pages/double_bit_retirement/retired_count",
        "retired_pages.double_bit.count",
    ),
    "recovery_action": between(
        first(
            value(action, "gpu recovery action", "gpu_recovery_action"),
            recovery,
        ),
        _BEGINNING,
        _PCI,
    ),
    "fabric": between(fabric, _BEGINNING, _END),
    "pcie_width": value(
        width,
        f"{_LINK[0]}link width/current",
        f"{_LINK[1]}link_widths/current_link_width",
        "pcie.link.width.current",
        unit="x",
    ),
    "pcie_width_max": value(
        width, f"{_LINK[0]}link width/max", f"{_LINK[1]}link_widths/max_link_width", "pcie.link.width.max", unit="x"
    ),
    "pcie_gen": value(
        integer,
        f"{_LINK[0]}pcie generation/current",
        f"{_LINK[1]}pcie_gen/current_link_gen",
        "pcie.link.gen.current",
    ),
    "pcie_gen_max": value(
        integer, f"{_LINK[0]}pcie generation/max", f"{_LINK[1]}pcie_gen/max_link_gen", "pcie.link.gen.max"
    ),
    "pcie_replays": value(integer, "pci/replays since reset", "pci/replay_counter", "replays since reset"),
    "temperature_c": value(number, "temperature/gpu current temp", "temperature/gpu_temp", "temperature.gpu", unit="C"),
    "temperature_margin_c": between(
        value(
            number,
            "temperature/gpu t.limit temp",
            "temperature/gpu current t.limit temp",
            "temperature/gpu_temp_tlimit",
            "temperature.gpu.tlimit",
            unit="C",
        ),
        _TEMPERATURE,
        _POWER,
    ),
    "clocks_event_reasons": first(
        value(mask, "clocks_event_reasons.active", "clocks_throttle_reasons.active"),
        reasons,
    ),
    "power_w": value(
        number,
        "gpu power readings/instantaneous power draw",
        "gpu power readings/power draw",
        "power readings/power draw",
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
        "power.draw.instant",
        "power.draw",
        unit="W",
    ),
    "power_limit_w": value(
        number,
        "gpu power readings/current power limit",
        f"{_CEILING[0]}current power limit",
        "power readings/enforced power limit",
        "gpu_power_readings/current_power_limit",
        f"{_CEILING[1]}current_power_limit",
        "power_readings/enforced_power_limit",
        "enforced.power.limit",
        "power.limit",
        unit="W",
    ),
    "power_limit_default_w": value(
        number,
        "gpu power readings/default power limit",
        f"{_CEILING[0]}default power limit",
        "power readings/default power limit",
        "gpu_power_readings/default_power_limit",
        f"{_CEILING[1]}default_power_limit",
        "power_readings/default_power_limit",
        "power.default_limit",
        unit="W",
    ),
    "clock_mhz": value(
        integer, "clocks/graphics", "clocks/graphics_clock", "clocks.current.graphics", "clocks.gr", unit="MHz"
    ),
    "clock_max_mhz": value(
        integer, "max clocks/graphics", "max_clocks/graphics_clock", "clocks.max.graphics", "clocks.max.gr", unit="MHz"
    ),
    "app_clock_mhz": value(
        integer,
        "applications clocks/graphics",
        "applications_clocks/graphics_clock",
        "clocks.applications.graphics",
        unit="MHz",
    ),
    "app_clock_default_mhz": value(
        integer,
        "default applications clocks/graphics",
        "default_applications_clocks/graphics_clock",
        "clocks.default_applications.graphics",
        unit="MHz",
    ),
    "persistence_mode": value(flag, "persistence mode", "persistence_mode"),
    "mig_pending": value(flag, "mig mode/pending", "mig_mode/pending_mig", "mig.mode.pending"),
    "mig_mode": value(flag, "mig mode/current", "mig_mode/current_mig", "mig.mode.current"),
    "compute_mode": value(one_of(_MODES), "compute mode", "compute_mode"),
    "memory_used_mib": value(integer, "fb memory usage/used", "fb_memory_usage/used", "memory.used", unit="MiB"),
    "memory_total_mib": value(integer, "fb memory usage/total", "fb_memory_usage/total", "memory.total", unit="MiB"),
    "utilization_percent": value(integer, "utilization/gpu", "utilization/gpu_util", "utilization.gpu", unit="%"),
}


def gpu_of(attributes: Attributes) -> dict[str, object]:
    """What these words say of a GPU; where one of them says that it is lost, only its identity and that."""
    gpu = {key: reading for key, read in GPU.items() if (reading := read(attributes)) is not None}
    lost = lost_in(attributes)
    if lost:
        return {**{key: gpu[key] for key in ("uuid", "serial", "name", "pci") if key in gpu}, "lost": lost}
    return {"lost": None, **gpu}


def lost_in(attributes: Attributes) -> dict[str, str] | None:
    """The error that says that the driver no longer reaches the GPU at all, wherever the driver's words are printed.

    A process chooses its own name.
    """
    for path, word in attributes.items():
        problem = None if path.startswith("processes/") and path.endswith("name") else error(word)
        if problem and problem["error"] in LOST:
            return problem
    return None
