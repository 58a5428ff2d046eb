"""Errors of memory modules and CPUs, by mcelog and `ras-mc-ctl`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from clusterproof.plugins.evidence.parsing import CaptureError, Form, sections

MAX_MODULES = 1024
DAY_S = 86_400

# mcelog: since its daemon started, as a rule with the machine

_DIMM = re.compile(
    r"^(SOCKET \d{1,3} CHANNEL (?:\d{1,3}|any) DIMM (?:\d{1,3}|any))[ \t]{0,8}$", re.MULTILINE | re.IGNORECASE
)
_KIND = re.compile(
    r"^(corrected|uncorrected) memory errors:\n((?:[ \t]{1,8}\d{1,18} (?:total|in 24h)\n?){1,4})", re.MULTILINE
)
_COUNT = re.compile(r"(\d{1,18}) (total|in 24h)")


def is_mcelog(text: str) -> bool:
    """Whether this is the output of `mcelog --client`."""
    return text.lstrip().startswith("Memory errors") or bool(_DIMM.search(text) and _KIND.search(text))


def read_mcelog(text: str) -> Mapping[str, object]:
    """The collector `edac`, of each module with errors: the corrected ones of the last day, the uncorrected ones."""
    controllers: list[dict[str, object]] = []
    for head, rest in sections(_DIMM, text, MAX_MODULES):
        kinds = {kind: {span: int(count) for count, span in _COUNT.findall(rows)} for kind, rows in _KIND.findall(rest)}
        corrected, uncorrected = kinds.get("corrected", {}), kinds.get("uncorrected", {})
        counted = {"corrected": corrected.get("in 24h", 0), "uncorrected": uncorrected.get("total", 0)}
        controllers.append({"name": head[1], "modules": [], "counted_s": DAY_S, **counted})
    return {"edac": {"controllers": controllers}}


# ras-mc-ctl: rasdaemon's database, which outlives boots and modules that were replaced

_NONE = re.compile(r"^No (?:Memory|MCE) errors\.$", re.MULTILINE)
_SUMMARY = re.compile(
    r"^[ \t]{1,8}(Corrected|Uncorrected|Fatal|Deferred) on DIMM Label\(s\): '([^'\n]{0,200})' "
    r"location: [\d:-]{1,40} errors: (\d{1,18})$",
    re.MULTILINE,
)
_CHECKS = re.compile(r"^MCE records summary:\n((?:[ \t]{1,8}\d{1,18} .{1,300}\n?){1,200})", re.MULTILINE)
_CHECK = re.compile(r"^[ \t]{1,8}(\d{1,18}) (.{1,300}) errors$", re.MULTILINE)
_EVENT = re.compile(
    r"^\d{1,9} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}) (\d{1,9}) (Corrected|Uncorrected|Fatal|Deferred) error\(s\): "
    r".{0,200}? at (\S.{0,200}?) location: ",
    re.MULTILINE,
)
# Of what has no module: `112 2026-… error: MEMORY CONTROLLER …, status=0x…`, `1 2026-… Uncorrected (Fatal) error: …`
_ERROR_ROW = re.compile(r"^\d{1,9} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} ", re.MULTILINE)
_OTHER = re.compile(r"(?!\d{1,9} \w{1,11} error\(s\):)[^\n]{0,80}?\berror: ")
_OF_PCIE = re.compile(r"(?:\S{1,40} )?(?:Unc|C)orrect(?:ed|able) (?:\([\w-]{1,12}\) )?error: ")
_STATUS = re.compile(r"\bstatus=0x([0-9a-f]{1,16})\b", re.IGNORECASE)
_UNCORRECTED = 1 << 61  # of a machine check's status: MCI_STATUS_UC (Linux, arch/x86/include/asm/mce.h)
_DEVICES = re.compile(
    r"^PCIe AER (?:events|records) summary:\n((?:[ \t]{1,8}\d{1,18} .{1,300}\n?){1,200})", re.MULTILINE
)
_DEVICE = re.compile(r"^[ \t]{1,8}(\d{1,18}) .{0,80}?\bUncorrect", re.MULTILINE)
# Pages with errors that hardware did not correct, by what the kernel did with each (mm/memory-failure.c).
_PAGES = re.compile(
    r"^Memory failure events summary:\n((?:[ \t]{1,8}\w.{0,80} errors: \d{1,18}\n?){1,20})", re.MULTILINE
)
_PAGE = re.compile(r" errors: (\d{1,18})$", re.MULTILINE)
_OF_A_PAGE = re.compile(r"error: pfn=")
_EXTLOG = re.compile(r"^Extlog records summary:\n((?:[ \t]{1,8}\d{1,18} .{1,300}\n?){1,200})", re.MULTILINE)
_FROM_FIRMWARE = re.compile(r"^[ \t]{1,8}(\d{1,18}) .{1,200} (?:recoverable|fatal) errors$", re.MULTILINE)
_OF_FIRMWARE = re.compile(r"error: type=.{1,80}?, severity=(?:recoverable|fatal),")
MACHINE_CHECKS, DEVICES, FAILURES, EXTLOG = "machine checks", "PCIe (AER)", "memory failures", "firmware (extlog)"
_SECTIONS = (  # of the summary: what begins each, and its rows that count what was not corrected
    (DEVICES, _DEVICES, _DEVICE),
    (FAILURES, _PAGES, _PAGE),
    (EXTLOG, _EXTLOG, _FROM_FIRMWARE),
)
_KINDS = ((DEVICES, _OF_PCIE), (FAILURES, _OF_A_PAGE), (EXTLOG, _OF_FIRMWARE))  # of rows of single errors
_SUMMARISED = "Memory controller events summary:"
CORRECTED = "Corrected"


def is_ras(text: str) -> bool:
    """Whether this is the output of `ras-mc-ctl --summary` or `--errors`."""
    forms = (_NONE, _CHECKS, _DEVICES, _PAGES, _EXTLOG, _EVENT)
    return _SUMMARISED in text or any(form.search(text) for form in forms) or any(map(_OTHER.match, _rows(text)))


def read_ras(text: str) -> Mapping[str, object]:
    """The collector `edac`, of each module with errors; those that came without a time may be of any boot."""
    modules: dict[str, dict[str, Any]] = {}
    for kind, name, count in _SUMMARY.findall(text)[: MAX_MODULES * 4]:
        _add(modules, name, kind == CORRECTED, int(count))
    times: dict[str, list[float]] = {}
    for time, count, kind, name in _EVENT.findall(text)[:100_000]:
        _add(modules, name, kind == CORRECTED, int(count))
        times.setdefault(name, []).append(_seconds(time))
    for name, seconds in times.items():
        modules[name]["counted_s"] = int(max(seconds) - min(seconds))
    for rows in _CHECKS.findall(text):
        for count, kind in _CHECK.findall(rows):
            if "uncorrected" in kind.lower() or "fatal" in kind.lower():
                _add(modules, MACHINE_CHECKS, False, int(count))
    for source, section, row in _SECTIONS:
        for count in (count for rows in section.findall(text) for count in row.findall(rows)):
            _add(modules, source, False, int(count))
    for error in filter(_is_uncorrected, _rows(text)):
        source = next((source for source, form in _KINDS if form.match(error)), MACHINE_CHECKS)
        _add(modules, source, False, 1)
    return {"edac": {"controllers": list(modules.values())[:MAX_MODULES]}}


def _rows(text: str) -> list[str]:
    """What stands behind the time of each error, which may go on in further lines."""
    return [rest.partition("\n\n")[0] for _, rest in sections(_ERROR_ROW, text)]


def _is_uncorrected(row: str) -> bool:
    """Whether it is of a machine check, a page, the firmware or a PCIe device, and nothing corrected it."""
    if not _OTHER.match(row):
        return False
    if _OF_A_PAGE.match(row) or _OF_FIRMWARE.match(row):
        return True
    status = _STATUS.search(row)
    is_logged = "uncorrected" in row.lower() or "(fatal)" in row.lower()
    return is_logged or bool(status and int(status[1], 16) & _UNCORRECTED)


def _add(modules: dict[str, dict[str, Any]], name: str, is_corrected: bool, count: int) -> None:
    start = {"name": name, "modules": [], "corrected": 0, "uncorrected": 0, "of_all_boots": True}
    module = modules.setdefault(name, start)
    module["corrected" if is_corrected else "uncorrected"] += count


def _seconds(time: str) -> float:
    try:
        return datetime.strptime(time, "%Y-%m-%d %H:%M:%S %z").timestamp()
    except (ValueError, OverflowError):
        raise CaptureError(f"ras-mc-ctl has a time that is none: {time}") from None


FORMS = (
    Form("mcelog --client", is_mcelog, read_mcelog),
    Form("ras-mc-ctl", is_ras, read_ras),
)
