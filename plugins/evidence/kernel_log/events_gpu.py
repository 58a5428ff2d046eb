"""What the NVIDIA driver writes to the kernel log about GPUs and NVSwitches."""

from __future__ import annotations

import re
from typing import TypeAlias

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.kernel_log.line import ADDRESS, BOOTED, IGNORING_CASE, pci_address
from clusterproof.plugins.evidence.pattern import Pattern

LONGEST_TEXT = 300
EVERY_GPU = ""  # the address of a mark that holds for the whole node
REBOOT = "a reboot"
CHANNEL_REMOVED = 45


@record
class XidEvent:
    """One Xid line.

    `pci` is the GPU as sysfs writes it (`0000:c5:00.0`): lines leave out the function, which is 0 on every
    NVIDIA GPU. `time` is in seconds on the log's own clock: since boot where the probe read it. `severity` is
    the line's own word: `fatal`, `nonfatal` or empty. `lines` is how many lines of the log it stands for.
    """

    code: int
    pci: str
    time: float | None
    text: str
    pid: int | None = None
    process: str = ""
    severity: str = ""
    link: int | None = None
    lines: int = 1

    @property
    def unit(self) -> str:
        """The part of the NVLink hardware that an Xid 144 to 150 names (`RLW_REMAP`), else empty."""
        named = _UNIT.match(self.text)
        return named[1] if named else ""

    @property
    def recovery_action(self) -> str:
        """The action that the line names as now due, in the words of Xid 154 (`GPU Reset Required`), else empty.

        An Xid 154 names it, or `None`; so does an error that was contained or not (`RST: Yes, D-RST: No`), and a fatal
        error of the GPU's own processor, after which the driver marks the GPU for a reset.
        """
        if named := _RECOVERY.search(self.text):
            return named[1].strip()
        due = _RESET.search(self.text)
        if _GSP_FATAL.search(self.text) or (due and due[1].lower() == "yes"):
            return "GPU Reset Required"
        return "Drain and Reset" if due and due[2].lower() == "yes" else ""

    @property
    def needs_no_reset(self) -> bool:
        """Whether the line itself says that no reset is due (`RST: No, D-RST: No`)."""
        due = _RESET.search(self.text)
        return bool(due) and not self.recovery_action

    @property
    def cause(self) -> int | None:
        """The Xid that an Xid 45 names as the one that it follows from."""
        named = _CAUSE.search(self.text) if self.code == CHANNEL_REMOVED else None
        return int(named[1]) if named else None


@record
class SXidEvent:
    """One SXid line of the NVSwitch at `pci`; lines that only add data to it are passed over."""

    code: int
    pci: str
    time: float | None
    text: str
    severity: str = ""
    link: int | None = None
    lines: int = 1


@record
class FallenOffBus:
    """The driver lost a GPU and said so without an Xid; `pci` is empty where it did not say which."""

    pci: str
    time: float | None
    lines: int = 1


@record
class InitFailed:
    """The driver could not start a GPU and said so without an Xid; `pci` is empty where it did not say which."""

    pci: str
    time: float | None
    text: str
    lines: int = 1


@record
class Cleared:
    """What ends all that was logged before it, for the GPU at `pci` or EVERY_GPU; `by` says what happened."""

    pci: str
    time: float | None
    by: str


@record
class GpuNamed:
    """The driver logged the UUID of the GPU at `pci`, as it does before the first Xid of a GPU."""

    pci: str
    uuid: str


GpuEvent: TypeAlias = XidEvent | SXidEvent | FallenOffBus | InitFailed | Cleared | GpuNamed

_IN_PARENTHESES = rf"\(\s*(?:PCI:)?\s*({ADDRESS})(?:\s[^()]{{0,40}})?\)\s*:\s*(\d{{1,6}})\s*(?:,(.*))?\Z"
_XID = Pattern(rf"NVRM:\s*Xid\s*{_IN_PARENTHESES}", IGNORING_CASE)
_SXID = Pattern(rf"nvidia-nvswitch\d{{0,4}}:\s*SXid\s*{_IN_PARENTHESES}", IGNORING_CASE)
_SXID_DATA = Pattern(r"\s*(?:Data|Severity)\b", IGNORING_CASE)
_PROCESS = Pattern(r"\s*pid=([^,]{0,60})(?:,\s*name=([^,]{0,60}))?(?:,(.*))?\Z", IGNORING_CASE)
_SEVERITY = Pattern(r"\b(non-?)?fatal\b", IGNORING_CASE)
_LINK = Pattern(r"\blink\s{0,4}(-?\d{1,3})\b", IGNORING_CASE)
_UNIT = Pattern(r"([A-Z][A-Z0-9_]{1,40})\s{1,4}(?:Non-?)?fatal\b", IGNORING_CASE)
_RECOVERY = Pattern(r"action changed from .{0,60}? to 0x[0-9a-f]{1,8} \(([^()]{1,40})\)", IGNORING_CASE)
_RESET = Pattern(r"\bRST: (Yes|No), D-RST: (Yes|No)\s*\Z", IGNORING_CASE)  # at the end, where no process is named
_GSP_FATAL = Pattern(
    r"GSP-RISCV instance \d{1,3} .{0,60}fatal error(?: \(mask: 0x[0-9a-f]{1,8}\))?\s*\Z", IGNORING_CASE
)
_CAUSE = Pattern(r" caused by previous Xid (\d{1,4})\s*\Z", IGNORING_CASE)
_LOST = Pattern(r"NVRM:\s*The NVIDIA GPU (\S{1,40})", IGNORING_CASE)
_LOST_GOES_ON = Pattern(r"NVRM:\s*(?:\(PCI ID|installed in)", IGNORING_CASE)
_FALLEN = Pattern(rf"NVRM:\s*(?:GPU (?:at )?(?:PCI:)?({ADDRESS}))?.{{0,200}}fallen off the bus", IGNORING_CASE)
_INIT_FAILED = Pattern(
    rf"NVRM:\s*(?:GPU (?:at )?(?:PCI:)?({ADDRESS})\s*:\s*)?(rm_?init_?adapter failed.*)", IGNORING_CASE
)
_NAMED = Pattern(rf"NVRM:\s*GPU at (?:PCI:)?({ADDRESS})\s*:\s*(GPU-[0-9a-f-]{{1,60}})", IGNORING_CASE)
_REMOVED = Pattern(r"\[drm\] \[nvidia-drm\] \[GPU ID 0x([0-9a-f]{1,12})\] Removing device", IGNORING_CASE)
_ADDED = Pattern(rf"\[drm\] Initialized nvidia-drm .{{0,60}}?\bfor ({ADDRESS})\b", IGNORING_CASE)
_BEGINNINGS = ("nvrm:", "nvidia-nvswitch", "[drm] ", "linux version ", "-- ")  # of all that any form here fits
LONGEST_BEGINNING = 16
_EVERYTHING_CLEARED = (
    (
        Pattern(BOOTED, IGNORING_CASE),
        REBOOT,
    ),
    (Pattern(r"NVRM:\s*loading NVIDIA UNIX", IGNORING_CASE), "a reload of the driver"),
    (
        Pattern(r"nvidia-nvswitch\d{0,4}: Probing device", IGNORING_CASE),
        "a reset of all GPUs and NVSwitches",
    ),
)


class Driver:
    """The driver's lines one after the other, of which some make sense only together."""

    def __init__(self) -> None:
        self._lost = ""  # the GPU of a sentence that the driver spreads over three lines
        self._removed: set[str] = set()  # GPUs taken from the bus: when they are back they were reset

    def event(self, message: str, time: float | None) -> GpuEvent | None:
        """The event in the kernel's message, if any."""
        lost, self._lost = self._lost, ""
        if not message[:LONGEST_BEGINNING].lower().startswith(_BEGINNINGS):
            return None  # as most lines are of other things
        event = _of_one_line(message, time)
        if event:
            return event
        if _FALLEN.match(message):
            return FallenOffBus(_fallen(message) or lost, time)
        if named := _LOST.match(message):
            self._lost = pci_address(named[1])
        elif _LOST_GOES_ON.match(message):
            self._lost = lost
        return self._came_back(message, time)

    def _came_back(self, message: str, time: float | None) -> Cleared | None:
        if gone := _REMOVED.match(message):
            self._removed.add(_of_gpu_id(gone[1]))
        elif (back := _ADDED.match(message)) and pci_address(back[1]) in self._removed:
            self._removed.remove(pci_address(back[1]))
            return Cleared(pci_address(back[1]), time, "a GPU reset")
        return None


def _of_one_line(message: str, time: float | None) -> GpuEvent | None:
    if found := _XID.match(message):
        return _xid(time, found)
    if found := _SXID.match(message):
        return _sxid(time, found)
    if found := _INIT_FAILED.match(message):
        return InitFailed(pci_address(found[1] or ""), time, found[2][:LONGEST_TEXT])
    if found := _NAMED.match(message):
        return GpuNamed(pci_address(found[1]), found[2])
    for mark, what in _EVERYTHING_CLEARED:
        if mark.match(message):
            return Cleared(EVERY_GPU, time, what)
    return None


def _xid(time: float | None, found: re.Match[str]) -> XidEvent | None:
    address, code, text = found[1], int(found[2]), found[3] or ""
    pid, process = "", ""
    if data := _PROCESS.match(text):
        pid, process, text = data[1].strip(), (data[2] or "").strip(" '`"), data[3] or ""
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
    words = _SEVERITY.findall(text)  # the last, as what stands before may still be of the process's name
    return "" if not words else "nonfatal" if words[-1] else "fatal"


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
    data = int(number, 16)
    return f"{data >> 16:04x}:{data >> 8 & 0xFF:02x}:{data & 0xFF:02x}.0"
