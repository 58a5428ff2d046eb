"""Parses disk health: `nvme smart-log`, smartctl; and software RAID: /proc/mdstat and mdadm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.evidence.parsing import (
    CaptureError,
    Form,
    below_typed,
    document_in,
    integer,
    sections,
    short,
    typed_above,
)
from clusterproof.plugins.evidence.storage.facts_disks import HOT

MAX_ARRAYS, MAX_MEMBERS, MAX_ATTRIBUTES = 256, 256, 64

# SMART

_DEVICE = re.compile(r"/dev/((?:nvme\d{1,4}(?:n\d{1,4})?|sd[a-z]{1,3}|bus/\d{1,2}))(?![\w*{])")
_NAMED = re.compile(r"^Smart Log for NVME device: ?([\w-]{1,40}) ", re.MULTILINE | re.IGNORECASE)
_ROW = re.compile(
    r"^(critical[_ ]warning|available[_ ]spare(?:[_ ]threshold)?|percentage[_ ]used|media[_ ]errors"
    r"|media and data integrity errors)[ \t]{0,40}:[ \t]{0,40}(0x[0-9a-f]{1,8}|[\d,]{1,24})%?[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_KEYS = {  # the names in both programs, and in the JSON of each
    "critical warning": "critical_warning",
    "available spare": "spare_percent",
    "avail spare": "spare_percent",
    "available spare threshold": "least_spare_percent",
    "spare thresh": "least_spare_percent",
    "percentage used": "used_percent",
    "percent used": "used_percent",
    "media errors": "media_errors",
    "media and data integrity errors": "media_errors",
}
_SMARTCTL = re.compile(r"^smartctl \d{1,2}\.\d{1,2} ", re.MULTILINE)
_SECTION = re.compile(r"^SMART/Health Information \(NVMe Log 0x02", re.MULTILINE)  # of smartctl -a
_HEALTH = re.compile(
    r"^(?:SMART overall-health self-assessment test result|SMART Health Status): (\S.{0,200})$", re.MULTILINE
)
_GOOD = ("PASSED", "OK")
_BAD = re.compile(r"FAILED!|.{0,80}\bFAILURE\b")  # SCSI's other words are warnings; ATA's UNKNOWN! tells nothing
_HOT = "- temperature is above or below threshold"
_REASON = re.compile(r"^- \w.{4,80}$", re.MULTILINE)
_FAILING = re.compile(r"^[ \d]{3} ([A-Za-z][\w-]{2,40}) {1,40}0x[0-9a-f]{4} .{10,80} FAILING_NOW ", re.MULTILINE)
_SERIAL = re.compile(r"^Serial [Nn]umber: {1,40}(\S{1,60})$", re.MULTILINE)
_SMART_JSON = re.compile(r'"(?:critical_warning|smart_status|smartctl)" ?:')


def is_smart_log(text: str) -> bool:
    """Whether this is the output of `nvme smart-log`, or lines of it that grep kept, below the command."""
    return bool(_NAMED.search(text)) or ("nvme smart-log" in typed_above(text) and bool(_ROW.search(text)))


def is_smartctl(text: str) -> bool:
    """Whether this is smartctl's output for a disk, its NVMe section, or lines that grep kept below the command."""
    is_whole = _SMARTCTL.search(text) or _SECTION.search(text) or "smartctl" in typed_above(text)
    return bool(is_whole and (_HEALTH.search(text) or _ROW.search(text)))


def read_smart(text: str) -> Mapping[str, object]:
    """A disk's own health report, for the collector `nvme`."""
    disk = {"name": _name(text), **_values(_ROW.findall(text))}
    health, serial = _HEALTH.search(text), _SERIAL.search(text)
    if health:
        disk |= _judged(health[1].strip())
        if _REASON.findall(text[health.end() :]) == [_HOT]:
            disk.setdefault("critical_warning", 1 << HOT)
    if serial:
        disk["serial"] = serial[1]
    if failing := _FAILING.findall(text)[:MAX_ATTRIBUTES]:
        disk["failing"] = failing
    return _disk(disk)


def _judged(status: str) -> dict[str, object]:
    """Whether the self-assessment passed, and its words; empty if there was none."""
    if status in _GOOD:
        return {"passed": True, "said": ""}
    if _BAD.match(status):
        return {"passed": False, "said": "" if status == "FAILED!" else status}
    return {} if status == "UNKNOWN!" else {"said": status}


def is_smart_json(text: str) -> bool:
    """Whether this is the output of `nvme smart-log -o json` or `smartctl -j`."""
    return below_typed(text).lstrip()[:1] == "{" and bool(_SMART_JSON.search(text[:20_000]))


def read_smart_json(text: str) -> Mapping[str, object]:
    """A disk's own health report, for the collector `nvme`. Raises CaptureError."""
    document = document_in(text)
    log = document.get("nvme_smart_health_information_log", document)
    rows = [(key.replace("_", " "), short(word)) for key, word in log.items()] if isinstance(log, dict) else []
    warnings = log.get("critical_warning") if isinstance(log, dict) else None
    if isinstance(warnings, dict):  # nvme-cli with -v
        rows.append(("critical warning", short(warnings.get("value"))))
    status, device = document.get("smart_status"), document.get("device")
    of_nvme, of_scsi = (status.get(kind) if isinstance(status, dict) else None for kind in ("nvme", "scsi"))
    if isinstance(of_nvme, dict):
        rows.append(("critical warning", short(of_nvme.get("value"))))
    disk = {"name": _name(text), **_values(rows)}
    if isinstance(status, dict) and isinstance(status.get("passed"), bool):
        ie_string = short(of_scsi.get("ie_string")) if isinstance(of_scsi, dict) else ""
        disk |= _judged("PASSED" if status["passed"] else ie_string or "FAILED!")
    if isinstance(device, dict):
        disk["name"] = short(device.get("name")).removeprefix("/dev/") or disk["name"]
    if document.get("serial_number"):
        disk["serial"] = short(document["serial_number"])
    return _disk(disk)


def _disk(disk: Mapping[str, Any]) -> Mapping[str, object]:
    if disk.keys() <= {"name", "serial"}:
        raise CaptureError("it has no value of a disk's health")
    return {"nvme": {"smart": {"logs": [disk]}}}


def _name(text: str) -> str:
    """The disk's name; empty if the text names none or several."""
    named = _NAMED.search(text)
    devices = set(_DEVICE.findall(typed_above(text)))
    return named[1] if named else devices.pop() if len(devices) == 1 else ""


def _values(rows: list[tuple[str, str]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for title, word in rows:
        key = _KEYS.get(title.lower().replace("_", " "))
        plain = word.replace(",", "")
        count = int(plain, 16) if plain.startswith("0x") else integer(plain)
        if key and count is not None:
            values.setdefault(key, count)
    return values


# sysfs

_SYSFS = re.compile(r"^/sys/class/nvme/(nvme\d{1,4})/(state|model|serial|firmware_rev):(.{0,80})$", re.MULTILINE)


def is_sysfs(text: str) -> bool:
    """Whether this is the output of `grep . /sys/class/nvme/*/state`."""
    return bool(_SYSFS.search(text))


def read_sysfs(text: str) -> Mapping[str, object]:
    """The controllers of the collector `nvme`, without their disks."""
    controllers: dict[str, dict[str, str]] = {}
    for name, file, value in _SYSFS.findall(text)[: MAX_ARRAYS * 4]:
        key = "firmware" if file == "firmware_rev" else file
        controllers.setdefault(name, {"name": name})[key] = value.strip()
    return {"nvme": {"controllers": list(controllers.values())}}


# Software RAID

_ARRAY = re.compile(
    r"^(md[\w-]{1,30}) : (active|inactive|broken)(?: \([\w-]{1,20}\))?(?: (raid\d{1,2}|linear|multipath))?", re.M
)
BROKEN = "broken"  # newer kernels' word for an array that has lost too many disks
_MEMBER = re.compile(r" ([\w!-]{1,40})\[\d{1,4}\]((?:\([A-Z]\)){0,3})")
_COUNTS = re.compile(r" \[(\d{1,4})/(\d{1,4})\] \[[U_]{1,4096}\]")
_CONTAINER = re.compile(r" super external:(?:imsm|ddf)\b")  # a container of arrays, not an array
_DETAIL = re.compile(r"^/dev/((?:md/)?md?[\w:.-]{1,60}):$", re.MULTILINE)
_DETAIL_ROW = re.compile(r"^ {1,40}(Raid Level|Raid Devices|Active Devices|State) : (\S.{0,80})$", re.MULTILINE)
_FAULTY = re.compile(r" faulty [\w /-]{0,40}/dev/([\w!-]{1,40})$", re.MULTILINE)


def is_mdstat(text: str) -> bool:
    """Whether this is the content of /proc/mdstat, or an array of it."""
    return bool(_ARRAY.search(text)) or text.startswith("Personalities :")


def read_mdstat(text: str) -> Mapping[str, object]:
    """The arrays, for the collector `nvme`."""
    arrays = []
    for head, rest in sections(_ARRAY, text, MAX_ARRAYS):
        if _CONTAINER.search(rest):
            continue
        first = rest.partition("\n")[0]
        members = _MEMBER.findall(first)[:MAX_MEMBERS]
        array: dict[str, object] = {"name": head[1], "is_active": head[2] != "inactive", "level": head[3] or ""}
        array |= {"failed": [name for name, flags in members if "(F)" in flags], "is_lost": head[2] == BROKEN}
        if counts := _COUNTS.search(rest):
            array |= {"disks": int(counts[1]), "working": int(counts[2])}
        arrays.append(array)
    return {"nvme": {"arrays": arrays}}


def is_mdadm(text: str) -> bool:
    """Whether this is the output of `mdadm --detail`."""
    return bool(_DETAIL.search(text)) and "Raid Level :" in text  # one that is not active counts no raid devices


def read_mdadm(text: str) -> Mapping[str, object]:
    """The arrays, for the collector `nvme`."""
    arrays = []
    for head, rest in sections(_DETAIL, text, MAX_ARRAYS):
        rows = dict(_DETAIL_ROW.findall(rest))
        states = {word.strip() for word in rows.get("State", "").split(",")}
        array: dict[str, object] = {"name": head[1].removeprefix("md/"), "level": rows.get("Raid Level", "").strip()}
        array |= {
            "is_active": "inactive" not in states,
            "failed": _FAULTY.findall(rest),
            "is_lost": not states.isdisjoint({"FAILED", BROKEN}),
        }
        disks, working = (integer(rows.get(key, "").strip()) for key in ("Raid Devices", "Active Devices"))
        if disks is not None and working is not None:
            array |= {"disks": disks, "working": working}
        arrays.append(array)
    return {"nvme": {"arrays": arrays}}


def _is_smartctls_first(line: str) -> bool:
    return bool(_SMARTCTL.match(line))


FORMS = (
    Form("nvme smart-log", is_smart_log, read_smart, begins=lambda line: line.startswith("Smart Log for NVME device:")),
    Form("nvme smart-log -o json, smartctl -j", is_smart_json, read_smart_json),
    Form("smartctl", is_smartctl, read_smart, begins=_is_smartctls_first),
    Form("sysfs nvme", is_sysfs, read_sysfs, 60),
    Form("/proc/mdstat", is_mdstat, read_mdstat),
    Form("mdadm --detail", is_mdadm, read_mdadm),
)
