"""Reads the kernel log's lines about GPUs, NVSwitches and hung tasks into typed events. Never raises."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from clusterproof.plugins.facts.kernel_line import IGNORING_CASE, unwrap

LONGEST_LINE = 2048
LONGEST_TEXT = 300
EVERY_GPU = ""  # the address of a mark that holds for the whole node


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One Xid line.

    `pci` is the GPU as sysfs writes it (`0000:c5:00.0`): lines leave out the function, which is 0 on every
    NVIDIA GPU. `time` is in seconds on the log's own clock: since boot where the probe told it. `severity` is
    the line's own word: `fatal`, `nonfatal` or empty.
    """

    code: int
    pci: str
    time: float | None
    text: str
    pid: int | None = None
    process: str = ""
    severity: str = ""
    link: int | None = None

    @property
    def recovery_action(self) -> str:
        """The action that an Xid 154 names as now due (`GPU Reset Required`, `None`), else empty."""
        named = _RECOVERY.search(self.text)
        return named[1].strip() if named else ""


@dataclass(frozen=True, slots=True)
class SXidEvent:
    """One SXid line of the NVSwitch at `pci`; lines that only add data to it are passed over."""

    code: int
    pci: str
    time: float | None
    text: str
    severity: str = ""
    link: int | None = None


@dataclass(frozen=True, slots=True)
class FallenOffBus:
    """The driver lost a GPU and said so without an Xid; `pci` is empty where it did not say which."""

    pci: str
    time: float | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """What ends all that was logged before it, for the GPU at `pci` or EVERY_GPU; `by` says what happened."""

    pci: str
    time: float | None
    by: str


@dataclass(frozen=True, slots=True)
class GpuNamed:
    """The driver told the UUID of the GPU at `pci`, as it does before the first Xid of a GPU."""

    pci: str
    uuid: str


@dataclass(frozen=True, slots=True)
class HungTask:
    """A process that the kernel saw blocked for more than `seconds`."""

    process: str
    pid: int
    seconds: int
    time: float | None


Event: TypeAlias = XidEvent | SXidEvent | FallenOffBus | Cleared | GpuNamed | HungTask
Events: TypeAlias = tuple[Event, ...]

_ADDRESS = r"(?:[0-9a-f]{1,8}:)?[0-9a-f]{1,2}:[0-9a-f]{1,2}(?:\.[0-7])?"
_IN_PARENTHESES = rf"\(\s*(?:PCI:)?\s*({_ADDRESS})(?:\s[^()]{{0,40}})?\)\s*:\s*(\d{{1,6}})\s*(?:,(.*))?\Z"
_XID = re.compile(rf"NVRM:\s*Xid\s*{_IN_PARENTHESES}", IGNORING_CASE)
_SXID = re.compile(rf"nvidia-nvswitch\d{{0,4}}:\s*SXid\s*{_IN_PARENTHESES}", IGNORING_CASE)
_SXID_DATA = re.compile(r"\s*(?:Data|Severity)\b", IGNORING_CASE)
_PROCESS = re.compile(r"\s*pid=([^,]{0,60})(?:,\s*name=([^,]{0,60}))?(?:,(.*))?\Z", IGNORING_CASE)
_SEVERITY = re.compile(r"\b(non-?)?fatal\b", IGNORING_CASE)
_LINK = re.compile(r"\blink\s{0,4}(-?\d{1,3})\b", IGNORING_CASE)
_RECOVERY = re.compile(r"action changed from .{0,60}? to 0x[0-9a-f]{1,8} \(([^()]{1,40})\)", IGNORING_CASE)
_LOST = re.compile(r"NVRM:\s*The NVIDIA GPU (\S{1,40})", IGNORING_CASE)
_LOST_GOES_ON = re.compile(r"NVRM:\s*(?:\(PCI ID|installed in)", IGNORING_CASE)
_FALLEN = re.compile(rf"NVRM:\s*(?:GPU (?:at )?(?:PCI:)?({_ADDRESS}))?.{{0,200}}fallen off the bus", IGNORING_CASE)
_NAMED = re.compile(rf"NVRM:\s*GPU at (?:PCI:)?({_ADDRESS})\s*:\s*(GPU-[0-9a-f-]{{1,60}})", IGNORING_CASE)
_HUNG = re.compile(r"INFO: task (.{1,64}):(\d{1,10}) blocked\b.{0,40}? for more than (\d{1,9}) seconds", IGNORING_CASE)
_REMOVED = re.compile(r"\[drm\] \[nvidia-drm\] \[GPU ID 0x([0-9a-f]{1,12})\] Removing device", IGNORING_CASE)
_ADDED = re.compile(rf"\[drm\] Initialized nvidia-drm .{{0,60}}?\bfor ({_ADDRESS})\b", IGNORING_CASE)
_EVERYTHING_CLEARED = (
    (re.compile(r"Linux version \d|-- (?:Re)?boot\b", IGNORING_CASE), "a reboot"),
    (re.compile(r"NVRM:\s*loading NVIDIA UNIX", IGNORING_CASE), "a reload of the driver"),
    (
        re.compile(r"nvidia-nvswitch\d{0,4}: Probing device", IGNORING_CASE),
        "a reset of all GPUs and NVSwitches",
    ),
)


def parse(lines: Iterable[tuple[float | None, str]]) -> Events:
    """The events of a kernel log, in its order: lines of text, each with its seconds where they are known."""
    return tuple(_events(_messages(lines)))


def pci_address(told: str) -> str:
    """A PCI address in any form that driver and NVML write, as sysfs writes it; empty where it is none."""
    if not re.fullmatch(_ADDRESS, told, IGNORING_CASE):
        return ""
    place, _, function = told.lower().partition(".")
    domain, bus, device = [int(part, 16) for part in f"0:{place}".split(":")[-3:]]
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function or 0}"


def _events(messages: Iterable[tuple[float | None, str]]) -> Iterator[Event]:
    lost = ""  # the GPU of a sentence that the driver spreads over three lines
    removed: set[str] = set()  # GPUs taken from the bus: when they are back they were reset
    for time, message in messages:
        event = _of_one_line(time, message)
        if event:
            yield event
        elif _FALLEN.match(message):
            yield FallenOffBus(_fallen(message) or lost, time)
            lost = ""
        elif named := _LOST.match(message):
            lost = pci_address(named[1])
        elif not _LOST_GOES_ON.match(message):
            lost = ""
        if gone := _REMOVED.match(message):
            removed.add(_of_gpu_id(gone[1]))
        elif (back := _ADDED.match(message)) and pci_address(back[1]) in removed:
            removed.remove(pci_address(back[1]))
            yield Cleared(pci_address(back[1]), time, "a GPU reset")


def _of_one_line(time: float | None, message: str) -> Event | None:
    if found := _XID.match(message):
        return _xid(time, found)
    if found := _SXID.match(message):
        return _sxid(time, found)
    if found := _NAMED.match(message):
        return GpuNamed(pci_address(found[1]), found[2])
    if found := _HUNG.match(message):
        return HungTask(found[1], int(found[2]), int(found[3]), time)
    for mark, what in _EVERYTHING_CLEARED:
        if mark.match(message):
            return Cleared(EVERY_GPU, time, what)
    return None


def _xid(time: float | None, found: re.Match[str]) -> XidEvent | None:
    address, code, text = found[1], int(found[2]), found[3] or ""
    pid, process = "", ""
    if told := _PROCESS.match(text):
        pid, process, text = told[1].strip(), (told[2] or "").strip(" '`"), told[3] or ""
    if not code:
        return None
    return XidEvent(
        code=code,
        pci=pci_address(address),
        time=time,
        text=text.strip()[:LONGEST_TEXT],
        pid=int(pid) if pid.isdecimal() and len(pid) <= 10 else None,
        process="" if process == "<unknown>" else process,
        severity=_severity(text),
        link=_link(text),
    )


def _sxid(time: float | None, found: re.Match[str]) -> SXidEvent | None:
    address, code, text = found[1], int(found[2]), found[3] or ""
    if not code or _SXID_DATA.match(text):
        return None
    return SXidEvent(code, pci_address(address), time, text.strip()[:LONGEST_TEXT], _severity(text), _link(text))


def _severity(text: str) -> str:
    word = _SEVERITY.search(text)
    return "" if not word else "nonfatal" if word[1] else "fatal"


def _link(text: str) -> int | None:
    found = _LINK.search(text)
    return int(found[1]) if found and not found[1].startswith("-") else None


def _fallen(message: str) -> str:
    """The address in a line that says "fallen off the bus", beside the words or where the sentence began."""
    found = _FALLEN.match(message)
    begun = _LOST.match(message)
    return pci_address((found and found[1]) or (begun and begun[1]) or "")


def _of_gpu_id(number: str) -> str:
    """The address of the driver's GPU ID: domain, bus and device in one number (`0000cc00`)."""
    told = int(number, 16)
    return f"{told >> 16:04x}:{told >> 8 & 0xFF:02x}:{told & 0xFF:02x}.0"


def _messages(lines: Iterable[tuple[float | None, str]]) -> Iterator[tuple[float | None, str]]:
    """The kernel's own words of each line, with the time given, else the one that the line itself tells."""
    for time, line in lines:
        head, *others = line[:LONGEST_LINE].splitlines() or [""]
        told, message = unwrap(head)
        when = told if time is None else time
        when = when if when is not None and math.isfinite(when) else None
        yield when, message
        if message[:5].upper() == "NVRM:":  # the driver's, so its further lines are too
            for other in others:
                yield when, unwrap(other)[1]
