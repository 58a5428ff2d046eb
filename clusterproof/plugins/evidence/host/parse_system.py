"""What runs and how it is limited: systemctl, ulimit, /proc/PID/limits, ps, timedatectl, chronyc."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clusterproof.plugins.evidence.field import UNCAPTURED
from clusterproof.plugins.evidence.host.collect_kernel_limits import SETTINGS
from clusterproof.plugins.evidence.host.collect_limits import LIMITS
from clusterproof.plugins.evidence.host.collect_services import MAX_FAILED, WANTED
from clusterproof.plugins.evidence.parsing import CaptureError, Form, integer, number, sections, typed_above

KIB = 1024

# systemctl

_UNIT = r"([\w@.\\:-]{1,120})\.service"
_UNITS = r"([\w@.\\:…-]{1,255}\.(?:service|socket|timer|path|target|mount|automount|swap|scope|slice|device))"
_STATUS = re.compile(rf"^[●○×*x↻]? ?{_UNIT}(?: - .{{0,200}})?$", re.MULTILINE)
_LOADED = re.compile(r"^\s{1,8}Loaded: ([\w-]{1,20})(?: \(([^()\n]{0,400})(\))?)?", re.MULTILINE)  # a pager may cut it
_ACTIVE = re.compile(r"^\s{1,8}Active: ([\w-]{1,20})(?: \(([^()]{1,60})\))?", re.MULTILINE)
_LISTED = re.compile(
    rf"^[●○×* ]{{0,3}}{_UNITS}[ \t]{{1,255}}(\S{{1,20}})\s{{1,20}}(\S{{1,20}})\s{{1,20}}(\S{{1,20}})\b", re.MULTILINE
)
_COUNTED = re.compile(r"^(\d{1,6}) loaded units listed", re.MULTILINE)
_HEADER = re.compile(r"^\s{0,4}UNIT\s{1,255}LOAD\s{1,20}ACTIVE\s{1,20}SUB\b", re.MULTILINE)


def is_status(text: str) -> bool:
    """Whether this is the output of `systemctl status` of some services."""
    return bool(_STATUS.search(text) and _LOADED.search(text) and _ACTIVE.search(text))


def read_status(text: str) -> Mapping[str, object]:
    """The services that matter, of the collector `services`. Raises CaptureError."""
    services = dict(_of_status(head[1], rest) for head, rest in sections(_STATUS, text))
    return {
        "services": {"services": {name: service for name, service in services.items() if name in WANTED and service}}
    }


def _of_status(name: str, text: str) -> tuple[str, dict[str, str]]:
    loaded, active = _LOADED.search(text), _ACTIVE.search(text)
    if not loaded or not active:
        return name, {}
    parts = [part.strip() for part in (loaded[2] or "").split(";")]
    is_cut = bool(loaded[2] and not loaded[3])
    whole = parts[:-1] if is_cut else [*parts, ""]
    enabled = {"enabled": whole[1]} if len(whole) > 1 else {}
    return name, {"load": loaded[1], "active": active[1], "sub": active[2] or "", **enabled}


def is_list(text: str) -> bool:
    """Whether this is the output of `systemctl --failed` or list-units, or rows of it that grep kept, below it."""
    counted = _COUNTED.search(text)
    is_cut_out = "systemctl" in typed_above(text) and _LISTED.search(text)
    return bool(is_cut_out or (counted and (counted[1] == "0" or _HEADER.search(text))))


def read_list(text: str) -> Mapping[str, object]:
    """The failed units of the collector `services`, and the states of those that matter.

    That none has failed is known only from a whole list whose units are all understood.
    """
    rows = _LISTED.findall(text)
    failed = [unit for unit, _, active, _ in rows if active == "failed"]
    services = {
        name: {"load": load, "active": active, "sub": sub}
        for unit, load, active, sub in rows
        if (name := unit.removesuffix(".service")) in WANTED
    }
    is_whole = _COUNTED.search(text) and not unclear_in_list(text)
    collected: dict[str, object] = {"failed": failed[:MAX_FAILED]} if failed or is_whole else {}
    return {"services": {**collected, "services": services} if services else collected}


def unclear_in_list(text: str) -> Sequence[str]:
    """A line on the units that were counted and are not understood."""
    counted = _COUNTED.search(text)
    missing = int(counted[1]) - len(_LISTED.findall(text)) if counted else 0
    return [f"systemctl: {missing} of {counted[1]} units are not understood"] if counted and missing > 0 else []


# Limits

_ULIMIT = re.compile(
    r"^([a-z][a-z -]{4,30}?)\s{1,30}\(([^()]{2,30})\)\s{1,20}(unlimited|\d{1,20})[ \t]*$", re.MULTILINE
)
_ULIMITS = {
    "max locked memory": "memlock",
    "open files": "nofile",
    "max user processes": "nproc",
    "stack size": "stack",
}
_IN_KIB = frozenset({"memlock", "stack"})  # what ulimit counts in kbytes
_LIMITS_ROW = re.compile(
    r"^Max (?:locked memory|open files|processes|stack size)\s{1,40}(?:unlimited|\d{1,20})\s{1,40}"
    r"(?:unlimited|\d{1,20})\s{1,40}(?:bytes|files|processes)\b",
    re.MULTILINE,
)
# Nothing shows those of the daemons that start jobs.
DAEMONS = {"what starts jobs": {name: {"error": UNCAPTURED, "text": "no file has it"} for name in (*LIMITS, "memory")}}


def is_ulimit(text: str) -> bool:
    """Whether this is the output of `ulimit -a`."""
    return any(row[1] in _ULIMITS for row in _ULIMIT.finditer(text))


def read_ulimit(text: str) -> Mapping[str, object]:
    """The limits of a login, of the collector `limits`: memory in bytes, None is unlimited."""
    login: dict[str, object] = {}
    for label, _, limit in _ULIMIT.findall(text):
        if name := _ULIMITS.get(label):
            login[name] = None if limit == "unlimited" else int(limit) * (KIB if name in _IN_KIB else 1)
    return {"limits": {"login": login, "daemons": DAEMONS}}


def read_proc_limits(text: str) -> Mapping[str, object]:
    """The limits of a process that the file does not name, taken as those of a login."""
    login: dict[str, object] = {}
    for name, (label, _) in LIMITS.items():
        row = re.search(rf"^{label}\s{{1,40}}(unlimited|\d{{1,20}})\b", text, re.MULTILINE)
        if row:
            login[name] = None if row[1] == "unlimited" else int(row[1])
    return {"limits": {"login": login, "daemons": DAEMONS}}


# ps

_PS = re.compile(r"^[ \t]{0,20}[A-Z%][A-Z%a-z_]{0,12}(?:[ \t]{1,60}[A-Z%][A-Z%a-z_]{0,12}){1,30}[ \t]*$", re.MULTILINE)


def is_ps(text: str) -> bool:
    """Whether this is a table of ps with the states of all processes, the first of them included."""
    return bool(_rows_of_ps(text))


def read_ps(text: str) -> Mapping[str, object]:
    """The counts of the collector `processes`. Who is blocked one look cannot say. Raises CaptureError."""
    states = _rows_of_ps(text)
    if not states:
        raise CaptureError("ps does not list process 1 with its state")
    return {"processes": {"total": len(states), "zombies": sum(state.startswith("Z") for state in states)}}


def _rows_of_ps(text: str) -> list[str]:
    header = next((line for line in _PS.finditer(text) if "PID" in line[0].split()), None)
    columns = header[0].split() if header else []
    state = next((name for name in ("STAT", "S", "STATE") if name in columns), "")
    if not header or not state or "PID" not in columns:
        return []
    rows = [line.split(None, len(columns)) for line in text[header.end() :].split("\n")]
    rows = [row for row in rows if len(row) >= columns.index(state) + 1 and len(row) > columns.index("PID")]
    pids = {row[columns.index("PID")] for row in rows}
    return [row[columns.index(state)] for row in rows] if "1" in pids else []


# The clock

_SYNCHRONISED = re.compile(r"^\s{0,40}(?:System clock|NTP) synchronized: (yes|no)", re.MULTILINE)
_TRACKING = re.compile(r"^(Leap status|Root delay|Root dispersion|System time)\s{1,20}: (.{1,80})$", re.MULTILINE)


def read_timedatectl(text: str) -> Mapping[str, object]:
    """Whether the clock is synchronised, of the collector `kernel`. Raises CaptureError."""
    answer = _SYNCHRONISED.search(text)
    if not answer:
        raise CaptureError("timedatectl does not say whether the clock is synchronised")
    return {"kernel": {"clock": {"synchronised": answer[1] == "yes"}}}


def is_chronyc(text: str) -> bool:
    """Whether this is the output of `chronyc tracking`."""
    return "Leap status" in text and "Root dispersion" in text


def read_chronyc(text: str) -> Mapping[str, object]:
    """The clock of the collector `kernel`, with its largest error as chronyc's manual reckons it. Raises CaptureError.

    A clock that is not synchronised has none: what is printed then are placeholders.
    """
    rows = dict(_TRACKING.findall(text))
    if "Leap status" not in rows:
        raise CaptureError("chronyc tracking without its leap status")
    clock: dict[str, Any] = {"synchronised": "not synchronised" not in rows["Leap status"].lower()}
    seconds = [number(rows.get(key, "").split(" ")[0]) for key in ("System time", "Root dispersion", "Root delay")]
    off_s, dispersion_s, delay_s = (duration or 0.0 for duration in seconds)
    if None not in seconds and clock["synchronised"]:
        clock["max_error_s"] = round(abs(off_s) + dispersion_s + delay_s / 2, 6)
    return {"kernel": {"clock": clock}}


_SOURCES = re.compile(r"^MS Name/IP address {1,40}Stratum Poll Reach LastRx Last sample", re.MULTILINE)
_SELECTED = re.compile(r"^[\^=#]\* \S", re.MULTILINE)


def read_sources(text: str) -> Mapping[str, object]:
    """The clock of the collector `kernel`: whether chronyd follows one of its sources."""
    return {"kernel": {"clock": {"synchronised": bool(_SELECTED.search(text))}}}


_NO_ANSWER = re.compile(r"^50[0-9] (?:Cannot talk to daemon|Not authorised)$", re.MULTILINE)


def read_chronyc_error(text: str) -> Mapping[str, object]:
    """The clock of the collector `kernel`: something else than chronyd may keep it. Raises CaptureError."""
    match = _NO_ANSWER.search(text)
    if not match:
        raise CaptureError("no error of chronyc's")
    return {"kernel": {"clock": {"synchronised": {"error": f"chronyc: {match[0]}"}}}}


# sysctl

_SYSCTL = re.compile(
    r"^(kernel\.(?:numa_balancing|hostname|osrelease|tainted|pid_max|threads-max)|fs\.file-max|vm\.overcommit_memory"
    r"|net\.core\.somaxconn|net\.ipv4\.ip_local_port_range|user\.max_user_namespaces) = (.{1,200})$",
    re.MULTILINE,
)
_BOOT = {"hostname": "hostname", "kernel": "osrelease"}
_NUMBERS = {"pid_max": "kernel.pid_max", "threads_max": "kernel.threads-max", "max_files": "fs.file-max"}
_UNCAPTURED = {"error": UNCAPTURED, "text": "sysctl does not show it"}


def read_sysctl(text: str) -> Mapping[str, object]:
    """The kernel's settings, as collectors report them."""
    return dict(_of_sysctl(dict(_SYSCTL.findall(text))))


def _of_sysctl(rows: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    if "kernel.numa_balancing" in rows and integer(rows["kernel.numa_balancing"]) is not None:
        yield "memory", {"numa_balancing": rows["kernel.numa_balancing"]}
    boot = {name: rows[f"kernel.{key}"] for name, key in _BOOT.items() if f"kernel.{key}" in rows}
    if boot:
        yield "boot", boot
    settings = {path: rows[name] for path, name in _SETTINGS.items() if name in rows}
    numbers = {key: limit for key, name in _NUMBERS.items() if (limit := integer(rows.get(name, ""))) is not None}
    if settings or numbers:
        nothing = dict.fromkeys((*_NUMBERS, "open_files", "threads", "groups", "modes"), _UNCAPTURED)
        yield "kernel_limits", {**nothing, **numbers, "settings": {**dict.fromkeys(SETTINGS, _UNCAPTURED), **settings}}


_SETTINGS = {path: path.removeprefix("/proc/sys/").replace("/", ".") for path in SETTINGS}


FORMS = (
    Form("systemctl status", is_status, read_status),
    Form("systemctl --failed", is_list, read_list, 45, unclear=unclear_in_list),
    Form("ulimit -a", is_ulimit, read_ulimit),
    Form("/proc/PID/limits", _LIMITS_ROW.search, read_proc_limits, 30),
    Form("ps", is_ps, read_ps),
    Form("timedatectl", _SYNCHRONISED.search, read_timedatectl, 45),
    Form("chronyc tracking", is_chronyc, read_chronyc),
    Form("chronyc sources", _SOURCES.search, read_sources, 40),
    Form("chronyc's error", _NO_ANSWER.search, read_chronyc_error, 30),
    Form("sysctl", _SYSCTL.search, read_sysctl),
)
