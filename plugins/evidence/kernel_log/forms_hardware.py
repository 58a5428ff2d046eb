"""The forms of lines about errors of memory, CPUs and PCIe, and the event made of each."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from clusterproof.plugins.evidence.kernel_log.events_host import HardwareError, HostEvent, PcieError
from clusterproof.plugins.evidence.kernel_log.line import ADDRESS, IGNORING_CASE, pci_address
from clusterproof.plugins.evidence.pattern import Pattern

LONGEST_WORDS = 120  # characters of a line that a finding repeats
UNCORRECTED = 1 << 61  # of the status of a machine check bank

Make: TypeAlias = Callable[[re.Match[str], float | None], HostEvent | None]
Form: TypeAlias = tuple[str, Pattern, Make]  # small words that the line must hold, its form, what is made of it


def form(pattern: str) -> Pattern:
    """A form of a line, in letters of either case."""
    return Pattern(pattern, IGNORING_CASE)


def _hardware(
    source: str, is_corrected: bool, found: re.Match[str], time: float | None, count: int = 1, *, earlier: bool = False
) -> HardwareError:
    words = found.string[:LONGEST_WORDS].strip()
    return HardwareError(source, is_corrected, max(count, 1), words, earlier, time)


def _edac(found: re.Match[str], time: float | None) -> HardwareError:
    return _hardware("edac", found[2].upper() == "CE", found, time, int(found[1] or 1))


def _machine_check(found: re.Match[str], time: float | None) -> HardwareError:
    return _hardware("mce", not int(found[1], 16) & UNCORRECTED, found, time)


def _apei(found: re.Match[str], time: float | None) -> HardwareError | None:
    severity = found[2].lower()
    if severity == "info":
        return None
    # The kernel numbers what it reports as it happens. What it finds at boot, left by the boot before, has no number.
    return _hardware("apei", severity == "corrected", found, time, earlier=not found[1])


def _amd(found: re.Match[str], time: float | None) -> HardwareError:
    return _hardware("mce", found[1].lower() == "corrected error", found, time)


def _bus_error(found: re.Match[str], time: float | None) -> PcieError:
    return PcieError(pci_address(found[1]), _severity(found[2], found[3]), found[4].strip().lower(), time)


def _announced(found: re.Match[str], time: float | None) -> PcieError:
    return PcieError(pci_address(found[4] or found[1]), _severity(found[2], found[3]), "", time)


def _severity(word: str, further: str | None) -> str:
    if word.lower().startswith("correct"):
        return "corrected"
    return "fatal" if (further or "").lower() == "fatal" else "nonfatal"


_CORRECTED = r"(Correct(?:ed|able)|Uncorrect(?:ed|able))"
_SERIOUS = r"(?: \((Fatal|Non-?Fatal)\))?"
_DRIVER_AT = rf"[\w.-]{{1,40}} ({ADDRESS}): "

# Linux, drivers/edac/edac_mc.c, and what older kernels and amd64_edac say. Short as it begins, it is held to its words.
_EDAC = form(
    r"EDAC (?:[\w-]{1,30} )?MC\d{1,3}: (?:(\d{1,9}) )?(CE|UE) "
    r"(?=[^\[:]{0,80}?(?:error\b|page 0x|row \d|information|error_address=|on \S))"
)

HARDWARE_FORMS: tuple[Form, ...] = (
    ("edac", _EDAC, _edac),
    (
        "machine check",
        form(
            r"mce: \[Hardware Error\]: CPU \d{1,6}: Machine Check(?: Exception| Event)?: "
            r"[0-9a-f]{1,16} Bank \d{1,4}: ([0-9a-f]{1,16})\b"
        ),
        _machine_check,
    ),
    (
        "machine check events logged",
        form(r"mce: \[Hardware Error\]: Machine check events logged"),
        lambda found, time: _hardware("mce log", True, found, time),
    ),
    (
        "memory",
        form(
            r"mce: Uncorrected hardware memory error|Memory failure: 0x[0-9a-f]{1,16}: (?!already)"
            r"|MCE(?: 0x[0-9a-f]{1,16})?: Killing .{1,15}:\d{1,10} due to hardware memory corruption"
        ),
        lambda found, time: _hardware("memory", False, found, time),
    ),
    (
        "event severity",
        form(r"(\{\d{1,9}\})?\[Hardware Error\]: {1,3}event severity: (corrected|recoverable|fatal|info)\b"),
        _apei,
    ),
    (
        "[hardware error]",
        form(r"\[Hardware Error\]: (Corrected error|Deferred error|Uncorrected|System Fatal error)"),
        _amd,
    ),
    (
        "pcie bus error",
        form(rf"{_DRIVER_AT}(?:AER: )?PCIe Bus Error: severity={_CORRECTED}{_SERIOUS}, type=([\w ]{{1,40}})"),
        _bus_error,
    ),
    (
        "aer:",
        form(
            rf"{_DRIVER_AT}AER: (?:Multiple )?{_CORRECTED}{_SERIOUS} error (?:message )?received"
            rf"(?:(?::| from) (?:({ADDRESS})\b)?)?"
        ),
        _announced,
    ),
    (
        "aer: device recovery failed",
        form(rf"{_DRIVER_AT}AER: device recovery failed"),
        lambda found, time: PcieError(pci_address(found[1]), "fatal", "recovery failed", time),
    ),
)
