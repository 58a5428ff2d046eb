"""Captured facts of the host: uptime, uname, os-release, dmidecode, hostnamectl, the driver's version files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone

from clusterproof.plugins.evidence.parsing import CaptureError, Form, short
from clusterproof.plugins.evidence.software.parse import components

DAY_S, HOUR_S, MINUTE_S = 86_400.0, 3_600.0, 60.0

_UPTIME = re.compile(
    r"^\s{0,4}\d{1,2}:\d\d(?::\d\d)?(?: [AP]M)?\s{1,4}up\s{1,4}(?:(\d{1,6}) days?,\s{1,4})?"
    r"(?:(\d{1,2}):(\d\d)|(\d{1,2}) min),\s{1,4}(?:\d{1,5} users?,\s{1,4})?load average",
    re.MULTILINE,
)
_PROC_UPTIME = re.compile(r"\s*(\d{1,10}\.\d\d) \d{1,12}\.\d\d[ \t]*(?:\n|\Z)")  # its first line
_DATE = re.compile(  # in the locale en_US with AM or PM
    r"^[A-Z][a-z]{2} (?:([A-Z][a-z]{2}) ([ \d]\d)|(\d\d) ([A-Z][a-z]{2}) (\d{4})) "
    r"(\d\d:\d\d:\d\d)( [AP]M)? {1,2}UTC(?: (\d{4}))?[ \t]*$",
    re.MULTILINE,
)
_UNAME = re.compile(r"^Linux (\S{1,253}) (\d{1,2}\.\d{1,3}\.\S{1,60}) #\d{1,6}.{1,200}$", re.MULTILINE)
_PRETTY = re.compile(r'^PRETTY_NAME="?([^"\n]{1,120})"?[ \t]*$', re.MULTILINE)
_SYSTEM = re.compile(r"^System Information[ \t]*\n((?:[ \t]{1,8}[^\n]{0,200}\n?){1,40})", re.MULTILINE)
_SYSTEM_ROW = re.compile(
    r"^[ \t]{1,8}(Manufacturer|Product Name|Serial Number):[ \t]{0,8}(.{0,120}?)[ \t]*$", re.MULTILINE
)
_DMI_KEYS = {"Manufacturer": "vendor", "Product Name": "product", "Serial Number": "serial"}
_HOSTNAMECTL = re.compile(r"^\s{1,8}Static hostname:\s{1,4}(\S{1,253})", re.MULTILINE)
_HOSTNAMECTL_KERNEL = re.compile(r"^\s{1,20}Kernel:\s{1,4}Linux (\S{1,80})", re.MULTILINE)
_FABRIC_MANAGER = re.compile(r"^Fabric Manager version is\s{0,4}:\s{0,4}\d{1,4}\.\d", re.MULTILINE | re.IGNORECASE)


def read_uptime(text: str) -> Mapping[str, object]:
    """How long it is up, to the minute. Raises CaptureError."""
    uptime = _UPTIME.search(text)
    if not uptime:
        raise CaptureError("uptime does not say how long")
    days, hours, minutes, alone = (float(part or 0) for part in uptime.groups())
    return {"boot": {"uptime_s": days * DAY_S + hours * HOUR_S + (minutes + alone) * MINUTE_S}}


def read_proc_uptime(text: str) -> Mapping[str, object]:
    """How long it is up. Raises CaptureError."""
    uptime = _PROC_UPTIME.match(text)
    if not uptime:
        raise CaptureError("/proc/uptime has no number")
    return {"boot": {"uptime_s": float(uptime[1])}}


def read_date(text: str) -> Mapping[str, object]:
    """When it was collected, by the node's own clock. Raises CaptureError."""
    date = _DATE.search(text)
    try:
        moment = _moment(*date.groups(default="")) if date else None
    except ValueError:
        moment = None
    if moment is None:
        raise CaptureError("date in another form than `Sat Nov 21 07:52:00 UTC 2026`")
    return {"boot": {"now": moment.replace(tzinfo=timezone.utc).timestamp()}}


def _moment(month: str, day: str, *rest: str) -> datetime:
    """When: by month and day with the year at the end, or by day, month and year. Raises ValueError."""
    own_day, own_month, own_year, time, half, year = rest
    form = "%I:%M:%S %p" if half else "%H:%M:%S"
    return datetime.strptime(
        f"{month or own_month} {day or own_day} {year or own_year} {time}{half}", f"%b %d %Y {form}"
    )


def read_uname(text: str) -> Mapping[str, object]:
    """Its name and its kernel. Raises CaptureError."""
    uname = _UNAME.search(text)
    if not uname:
        raise CaptureError("uname does not name a kernel")
    versions = components({"kernel": uname[2]}, "uname")
    return {"boot": {"hostname": uname[1], "kernel": uname[2]}, "kernel": {"running": uname[2]}, **versions}


def read_os_release(text: str) -> Mapping[str, object]:
    """The distribution. Raises CaptureError."""
    pretty = _PRETTY.search(text)
    if not pretty:
        raise CaptureError("os-release has no PRETTY_NAME")
    return {"boot": {"os": pretty[1].strip()}}


def read_dmidecode(text: str) -> Mapping[str, object]:
    """The collector `platform`. Raises CaptureError."""
    system = _SYSTEM.search(text)
    rows = {_DMI_KEYS[key]: value for key, value in _SYSTEM_ROW.findall(system[1])} if system else {}
    if not rows:
        raise CaptureError("dmidecode shows nothing of the system")
    return {"platform": rows}


def read_hostnamectl(text: str) -> Mapping[str, object]:
    """Its name and its kernel."""
    name, kernel = _HOSTNAMECTL.search(text), _HOSTNAMECTL_KERNEL.search(text)
    boot = {"hostname": name[1]} if name else {}
    return {"boot": {**boot, "kernel": kernel[1]} if kernel else boot}


def read_fabric_manager(text: str) -> Mapping[str, object]:
    """The collector `fabric_manager`."""
    return {"fabric_manager": {"command": "nv-fabricmanager --version", "exit": 0, "output": short(text)}}


FORMS = (
    Form("uptime", _UPTIME.search, read_uptime, 45),
    Form("/proc/uptime", _PROC_UPTIME.match, read_proc_uptime, 55),
    Form("date", _DATE.search, read_date),
    Form("uname -a", _UNAME.search, read_uname),
    Form("/etc/os-release", _PRETTY.search, read_os_release),
    Form("dmidecode", _SYSTEM.search, read_dmidecode),
    Form("hostnamectl", _HOSTNAMECTL.search, read_hostnamectl, 45),
    Form("nv-fabricmanager --version", _FABRIC_MANAGER.search, read_fabric_manager),
)
