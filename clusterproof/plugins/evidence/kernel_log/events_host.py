"""Kernel log events about the host, and how lines are converted to events by form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.catalog.log_forms import LogForm, referenced_forms
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.typed import TypeAlias
from clusterproof.plugins.evidence.kernel_log.events_gpu import GpuEvent
from clusterproof.plugins.evidence.kernel_log.line import IGNORING_CASE, pci_address

BOUND = "the NUMA nodes that it is bound to"


@record
class Logged:
    """A line with the meaning of its `form` in the catalogue; `device` is empty if it is about the whole node.

    `names` are all names in the line for its subject: a line that ends another has one of them in common, or neither
    has any. Here and in all events `lines` is how many lines of the log it stands for: the probe leaves out similar
    ones.
    """

    form: str
    device: str
    words: str
    names: tuple[str, ...]
    time: float | None
    lines: int = 1


@record
class NotKnown:
    """An error of a relevant device that matches no form; similar lines share their `kind`."""

    kind: str
    words: str
    time: float | None
    lines: int = 1


@record
class OomKill:
    """A process killed for lack of memory; `group` is the one whose limit it was, `?` if unknown.

    That is a control group, or BOUND: the process may use only some NUMA nodes, and they are full.
    Empty: the whole node's memory was full.
    """

    process: str
    pid: int
    group: str
    time: float | None
    lines: int = 1


@record
class AllocationFailure:
    """The kernel could not allocate memory, or a cgroup reached its limit of processes.

    `order` is that of a page allocation: 2^order pages together; None for the limit of a control group.
    """

    what: str
    order: int | None
    time: float | None
    lines: int = 1


@record
class HardwareError:
    """An error that memory, CPU or firmware reported; several `source`s (edac, mce, apei) may log the same one.

    `location` is the memory controller and module, if they are known. `severity` is the firmware's word, `report` its
    number; an error that it calls recoverable has been dealt with, unless it was in main memory.
    """

    source: str
    is_corrected: bool
    count: int
    words: str
    is_of_previous_boot: bool
    time: float | None
    lines: int = 1
    location: str = ""
    severity: str = ""
    report: str = ""
    is_recovered: bool = False


@record
class ReportedSection:
    """The subject of a firmware report (APEI): one of its sections, or the PCI device in it."""

    report: str
    section: str
    device: str
    time: float | None
    lines: int = 1


@record
class PcieError:
    """An error that PCIe's advanced error reporting logged for `device`; `severity`: fatal, nonfatal, corrected.

    `layer` is empty if the port above reports it.
    """

    device: str
    severity: str
    layer: str
    time: float | None
    lines: int = 1


@record
class Segfault:
    """A process that crashed, in `library` if the kernel names one."""

    process: str
    pid: int
    library: str
    time: float | None
    lines: int = 1


HostEvent: TypeAlias = (
    Logged | NotKnown | OomKill | AllocationFailure | HardwareError | ReportedSection | PcieError | Segfault
)
Event: TypeAlias = GpuEvent | HostEvent


LONGEST_WORDS = 120  # characters of a line that a finding quotes
UNCORRECTED = 1 << 61  # bits of the status of a machine check bank
DEVICE = ("name", "again", "pci")  # groups of a form that name the device; the first one in a line counts
NAMES = (*DEVICE, "whole", "prefix")  # and all groups with names of a line's subject
ADDRESSES = ("pci", "again")

Match: TypeAlias = re.Match[str]
Make: TypeAlias = Callable[[Match, float | None], HostEvent | None]


def made(form: LogForm, match: Match, time: float | None) -> HostEvent | None:
    """The event of a line that fits a form, if it means something here."""
    if form.event:
        return MAKERS[form.event](match, time) if form.event in MAKERS else None
    return logged(form, match, time) if form.check or form.name in referenced_forms() else None


def logged(form: LogForm, match: Match, time: float | None) -> Logged:
    """The form's meaning for the device that the line names."""
    groups = {name: text.strip() for name, text in match.groupdict().items() if text}
    groups |= {name: pci_address(groups[name]) or groups[name] for name in ADDRESSES if name in groups}
    names = tuple(groups[name] for name in NAMES if name in groups)
    device = next((groups[name] for name in DEVICE if name in groups), "")
    meaning = form.meaning.format_map(_Named(groups)) if form.meaning else match[0].strip()[:LONGEST_WORDS]
    return Logged(form.name, device, meaning, names, time)


class _Named(dict[str, str]):
    """Named groups of a line's match; `?` for one that the line lacks."""

    def __missing__(self, _: str) -> str:
        return "?"


class MemoryGroups:
    """Finds the cgroup of an out-of-memory kill: the kernel logs it on an earlier line."""

    def __init__(self) -> None:
        self._limits: dict[tuple[bool, str], tuple[str, str]] = {}  # by whether it is a group's limit, and by process

    def named(self, form: LogForm, match: Match, event: HostEvent | None) -> HostEvent | None:
        """The event; a kill with the group whose limit it was, if that was logged for the same process."""
        if isinstance(event, OomKill):
            of_group, pid = bool(event.group), str(event.pid)
            cut = ("", "") if of_group else self._limits.pop((False, ""), ("", ""))
            constraint, group = self._limits.pop((of_group, pid), cut)
            if of_group:
                return replace(event, group=group) if group else event
            return replace(event, group=BOUND) if constraint in _BOUND else event
        if form.event == "oom_limit":
            limited, killed = _OOM_GROUP.match(match.string), _OOM_PID.search(match.string)
            kill = match["constraint"] == "MEMCG", killed[1] if killed else ""
            self._limits[kill] = match["constraint"], limited[1] if limited else ""
        return event


# Between these are the names of the process and of its control groups, which users may choose.
_OOM_GROUP = Pattern(r"oom-kill:constraint=CONSTRAINT_MEMCG,.{0,400}?,oom_memcg=([^,]{1,200}),", IGNORING_CASE)
_OOM_PID = Pattern(r",pid=(\d{1,10}),uid=\d{1,10}\s*\Z", IGNORING_CASE)  # missing in a line that was cut
_BOUND = ("CPUSET", "MEMORY_POLICY")


def _killed(match: Match, time: float | None) -> OomKill:
    return OomKill(match["process"], int(match["pid"]), "?" if match["group"] else "", time)


def _page_allocation(match: Match, time: float | None) -> AllocationFailure:
    return AllocationFailure(f"page allocation failure of {match['process']}", int(match["order"]), time)


def _fork(match: Match, time: float | None) -> AllocationFailure:
    group = match["group"] or "a control group"
    return AllocationFailure(f"fork rejected by pids controller in {group}", None, time)


def _segfault(match: Match, time: float | None) -> Segfault:
    return Segfault(match["process"].strip(), int(match["pid"]), match["library"] or "", time)


def _hardware(source: str, is_corrected: bool, match: Match, time: float | None, count: int = 1) -> HardwareError:
    message = match.string[:LONGEST_WORDS].strip()
    return HardwareError(source, is_corrected, max(count, 1), message, False, time)


def _edac(match: Match, time: float | None) -> HardwareError:
    error = _hardware("edac", match["kind"].upper() == "CE", match, time, int(match["count"] or 1))
    module = _MODULE.search(error.words)
    return replace(error, location=f"{match['name']} {module[1]}" if module else match["name"])


_MODULE = Pattern(r" on (\S{1,80})")


def _machine_check(match: Match, time: float | None) -> HardwareError:
    return _hardware("mce", not int(match["status"], 16) & UNCORRECTED, match, time)


def _apei(match: Match, time: float | None) -> HardwareError | None:
    severity = match["kind"].lower()
    if severity == "info":
        return None
    # The kernel numbers reports as they occur. What it finds at boot, from the boot before, has no number.
    error = _hardware("apei", severity == "corrected", match, time)
    report = match["number"] or ""
    return replace(error, is_of_previous_boot=not report, severity=severity, report=report)


def _section(match: Match, time: float | None) -> ReportedSection:
    groups = match.groupdict()
    return ReportedSection(
        match["number"], (groups.get("section") or "").strip(), pci_address(groups.get("pci") or ""), time
    )


def _amd(match: Match, time: float | None) -> HardwareError:
    return _hardware("mce", match["kind"].lower() == "corrected error", match, time)


def _bus_error(match: Match, time: float | None) -> PcieError:
    return PcieError(pci_address(match["pci"]), _severity(match), match["layer"].strip().lower(), time)


def _announced(match: Match, time: float | None) -> PcieError:
    port, sender = pci_address(match["pci"]), int(match["id"] or "0", 16)  # bus, device and function in one number
    named = f"{port[:-8]}:{sender >> 8:02x}:{sender >> 3 & 31:02x}.{sender & 7}" if sender else port
    return PcieError(pci_address(match["of"] or "") or named, _severity(match), "", time)


def _severity(match: Match) -> str:
    if match["severity"].lower().startswith("correct"):
        return "corrected"
    return "fatal" if (match["serious"] or "").lower() == "fatal" else "nonfatal"


MAKERS: Mapping[str, Make] = {
    "oom_kill": _killed,
    "page_allocation": _page_allocation,
    "fork_rejected": _fork,
    "segfault": _segfault,
    "edac": _edac,
    "machine_check": _machine_check,
    "machine_checks_logged": lambda match, time: _hardware("mce log", True, match, time),
    "memory_lost": lambda match, time: _hardware("memory", False, match, time),
    "apei": _apei,
    "apei_section": _section,
    "mce_amd": _amd,
    "bus_error": _bus_error,
    "announced": _announced,
}
