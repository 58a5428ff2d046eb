"""The values of nvidia-smi that are printed as several words: ECC counters, clocks event reasons, the fabric."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.catalog import clocks_event_reasons, fabric_faults, fabric_statuses
from clusterproof.plugins.evidence.gpu.parse_nvidia_words import (
    Attributes,
    Reader,
    error,
    first,
    integer,
    not_understood,
    one_of,
    total,
    unsupported,
    value,
)
from clusterproof.plugins.evidence.parsing import is_error

_ACTIONS = {"none": 0, "reset": 1, "gpu reset": 1, "reboot": 2, "node reboot": 2, "drain p2p": 3, "drain and reset": 4}
_ACTIONS |= {"recover imex domain": 5, "bus reset": 6, "system reboot": 7}
_STATES = {"not started": 1, "in progress": 2, "completed": 3}
_UNKNOWN_STATUS = 999  # NVML_ERROR_UNKNOWN
# The fields of the fabric's health mask: where nvidia-smi prints them, their bits, and what their words stand for.
_HEALTH = (
    ("bandwidth", 0, {"degraded": 1, "full": 2}),
    ("route_recovery_in_progress", 2, {"true": 1, "false": 2}),
    ("route_unhealthy", 4, {"true": 1, "false": 2}),
    ("access_timeout_recovery", 6, {"true": 1, "false": 2}),
    (
        "incorrect_configuration",
        8,
        {
            "none": 1,
            "incorrect system guid": 2,
            "incorrect chassis serial number": 3,
            "no partition": 4,
            "insufficient nvlinks": 5,
            "incompatible gpu firmware": 6,
            "invalid location": 7,
            "gpu state invalid": 8,
        },
    ),
    ("partition_assigned", 12, {"true": 1, "yes": 1, "assigned": 1, "false": 2, "no": 2, "not assigned": 2}),
)
_SUMMARIES = {"healthy": 1, "unhealthy": 2, "limited capacity": 3}
_OTHER_CONFIGURATION = 15  # one of the faults that this table has no word for
_REASONS = {  # the bits of the clocks event reasons, by the words of the text and of the XML
    "idle": 0x1,
    "gpu_idle": 0x1,
    "applications clocks setting": 0x2,
    "applications_clocks_setting": 0x2,
    "sw power cap": 0x4,
    "sw_power_cap": 0x4,
    "hw slowdown": 0x8,
    "hw_slowdown": 0x8,
    "sync boost": 0x10,
    "sync_boost": 0x10,
    "sw thermal slowdown": 0x20,
    "sw_thermal_slowdown": 0x20,
    "hw thermal slowdown": 0x40,
    "hw slowdown/hw thermal slowdown": 0x40,
    "hw_thermal_slowdown": 0x40,
    "hw power brake slowdown": 0x80,
    "hw slowdown/hw power brake slowdown": 0x80,
    "hw_power_brake_slowdown": 0x80,
    "display clock setting": 0x100,
    "display_clocks_setting": 0x100,
}
# Of those that lead to a verdict. That of hardware goes with both others of hardware.
_PROVING = _REASONS["hw slowdown"] | _REASONS["sync boost"] | _REASONS["sw thermal slowdown"]
_REASON_STARTS = (
    "clocks event reasons/",
    "clocks throttle reasons/",
    "clocks_event_reasons/clocks_event_reason_",
    "clocks_throttle_reasons/clocks_throttle_reason_",
    "clocks_event_reasons.",
    "clocks_throttle_reasons.",
)
_REASON_BITS = {start + name: bit for start in _REASON_STARTS for name, bit in _REASONS.items()}


def ecc(counter: str, kind: str, *columns: str) -> Reader:
    """An ECC counter of `volatile` or `aggregate` errors in its three spellings."""
    return value(integer, *ecc_paths(counter, kind), *columns)


def ecc_paths(counter: str, kind: str) -> tuple[str, str]:
    """Where the text and the XML print an ECC counter."""
    return f"ecc errors/{counter}/{kind}", f"ecc_errors/{counter}/{kind.replace(' ', '_')}"


def of_old(bits: str, where: str) -> Reader:
    """The volatile counter of a GPU before Turing, where errors are of one bit or of two."""
    spelled = where.replace(" ", "_")
    return value(integer, f"ecc errors/volatile/{bits} bit/{where}", f"ecc_errors/volatile/{bits}_bit/{spelled}")


def sram(counter: str) -> Reader:
    """Uncorrected SRAM errors; newer drivers print those found by parity apart from the others."""
    column = f"ecc.errors.uncorrected.{counter}.sram"
    parts = (
        value(
            integer,
            f"ecc errors/{counter}/sram uncorrectable parity",
            f"ecc_errors/{counter}/sram_uncorrectable_parity",
            f"{column}.parity",
        ),
        value(
            integer,
            f"ecc errors/{counter}/sram uncorrectable sec-ded",
            f"ecc_errors/{counter}/sram_uncorrectable_secded",
            f"{column}.secded",
        ),
    )
    return first(ecc(counter, "sram uncorrectable", column), total(*parts), _without_sram(counter))


def _without_sram(counter: str) -> Reader:
    """A GPU that counts by the bits of an error has no counter of its SRAM as a whole."""
    starts = (f"ecc errors/{counter}/double bit/", f"ecc_errors/{counter}/double_bit/")
    return lambda attributes: unsupported() if any(path.startswith(starts) for path in attributes) else None


def reasons(attributes: Attributes) -> object:
    """The clocks event reasons that are active, as NVML's mask; none only where all that matter were printed."""
    bits, reported, unread = 0, 0, None
    for word, bit in ((attributes[path], bit) for path, bit in _REASON_BITS.items() if path in attributes):
        reported |= bit
        if word.strip().lower() == "active":
            bits |= bit
        elif word.strip().lower() != "not active":
            unread = unread or error(word) or not_understood(word)
    is_found = any(reason.verdict != "none" for reason in clocks_event_reasons(bits))
    return bits if is_found or (reported & _PROVING == _PROVING and not unread) else unread


def recovery(attributes: Attributes) -> object:
    """What older drivers say instead of a recovery action; a GPU that needs none proves nothing of the others."""
    needs = {
        1: ("gpu reset status/reset required", "gpu_reset_status/reset_required"),
        4: ("gpu reset status/drain and reset recommended", "gpu_reset_status/drain_and_reset_recommended"),
    }
    for number, paths in needs.items():
        if any(attributes.get(path, "").strip().lower() == "yes" for path in paths):
            return number
    return None


def fabric(attributes: Attributes) -> object:
    """A GPU's place in its fabric; an error where it is in none."""
    fields = {key: read(attributes) for key, read in _FABRIC.items()}
    if is_error(fields["state"]):
        return fields["state"]
    fields["health_mask"] = _health(attributes)
    return {key: field for key, field in fields.items() if field is not None} or None


def _health(attributes: Attributes) -> object:
    """The health mask; a field of which nothing is known stays 0, as NVML's does."""
    bits, unknown = 0, None
    printed = [_health_word(attributes, name) for name, _, _ in _HEALTH]
    if all(word is None for word in printed):
        return None
    for (name, shift, meanings), word in zip(_HEALTH, printed, strict=True):
        if word is None or error(word):
            continue
        meaning = meanings.get(word.strip().lower())
        if meaning is None and (name != "incorrect_configuration" or _is_cut(word, meanings)):
            unknown = not_understood(word)
        else:
            bits |= (_OTHER_CONFIGURATION if meaning is None else meaning) << shift
    return unknown if unknown and not fabric_faults(bits) else bits


def _health_word(attributes: Attributes, name: str) -> str | None:
    paths = (f"fabric/health/{name.replace('_', ' ')}", f"fabric/health/{name}", f"fabric.health.{name}")
    return next((attributes[path] for path in paths if path in attributes), None)


def action(word: str) -> int | None:
    """`None`, `GPU Reset`, `GPU_RESET`, `Drain and Reset Required`."""
    return _ACTIONS.get(word.lower().replace("_", " ").removesuffix(" required"))


def _status(word: str) -> int | None:
    """NVML's number of a status; None if the word may be one that was cut."""
    codes = {status: code for code, status in fabric_statuses().items()}
    return None if _is_cut(word, codes) else codes.get(word.lower(), _UNKNOWN_STATUS)


def _is_cut(word: str, known: Iterable[str]) -> bool:
    """Whether a word is only the beginning of a known one."""
    beginning, known = word.strip().lower(), tuple(known)
    return beginning not in known and any(name.startswith(beginning) for name in known)


def _summary(attributes: Attributes) -> object:
    """NVML's summary of the fabric's health, 0 where the driver has none."""
    summary = value(one_of(_SUMMARIES), "fabric/health/summary", "fabric.health.summary")(attributes)
    return 0 if summary == unsupported("N/A") else summary


_FABRIC: dict[str, Reader] = {
    "state": value(one_of(_STATES), "fabric/state", "fabric.state"),
    "status": value(_status, "fabric/status", "fabric.status"),
    "clique": value(integer, "fabric/cliqueid", "fabric.cliqueid"),
    "cluster_uuid": value(lambda word: word.replace("-", "").lower()[:40], "fabric/clusteruuid", "fabric.clusteruuid"),
    "health_summary": _summary,
}
_BANKS = tuple(
    value(
        integer,
        f"remapped rows/bank remap availability histogram/{bank}",
        f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{bank}",
        f"remapped_rows.histogram.{bank}",
    )
    for bank in ("max", "high", "partial", "low", "none")
)


def banks(attributes: Attributes) -> object:
    """Memory banks by the spare rows that they have left."""
    counts = [read(attributes) for read in _BANKS]
    if all(isinstance(count, int) for count in counts):
        return counts
    return next((count for count in counts if is_error(count)), None)
