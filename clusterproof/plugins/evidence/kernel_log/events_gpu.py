"""Events that the NVIDIA driver logs about GPUs and NVSwitches."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.catalog.log_forms import LogForm
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TypeAlias
from clusterproof.plugins.evidence.kernel_log.line import IGNORING_CASE, pci_address

LONGEST_TEXT = 300
EVERY_GPU = ""  # the address in a line that is about all GPUs
REBOOT, RELOAD = "a reboot", "a reload of the driver"
EVERYTHING_CLEARED = {"booted": REBOOT, "switches_probed": "a reset of all GPUs and NVSwitches"}
PROBE_FAILED = ("probe_failed", "none_initialized", "gpu_probe_failed", "gpu_probe_failed_named")  # forms for this
WHILE_IT_RUNS = ("xid", "fell_off")  # events of a GPU that was started: what loads after them is another module
CHANNEL_REMOVED = 45
RECOVERY_ACTION_CHANGED = 154
NETIR = 149  # the part of an NVLink that trains it and watches its signal
SENTENCE_S = 5.0  # most time from the first to the last of its lines


@record
class XidEvent:
    """One Xid line.

    `pci` is the GPU as sysfs writes it (`0000:c5:00.0`): lines leave out the function, which is 0 on every NVIDIA GPU;
    it is empty if the line hides it. `time` is in seconds on the log's own clock: since boot if the probe read it.
    `severity` is the word in the line: `fatal`, `nonfatal` or empty. `lines` is how many lines of the log it stands
    for.
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
        """The part of the NVLink hardware that an Xid 144 to 150 names (`RLW_REMAP`), or empty."""
        named = _UNIT.match(self.text)
        return named[1] if named else ""

    @property
    def link_down(self) -> int | None:
        """Why an NVLink went down, by NVIDIA's number: bits 25 to 20 of the first word of its Xid 149."""
        match = _LINK_DOWN.match(self.text) if self.code == NETIR else None
        return int(match[1], 16) >> 20 & 0x3F if match else None

    @property
    def recovery_action(self) -> str:
        """The recovery action that the line names as due, in the words of Xid 154 (`GPU Reset Required`), or empty.

        An Xid 154 names it, or `None`. It also follows from an error that was or was not contained (`RST: Yes, D-RST:
        No`), and from a fatal error of the GPU's own processor, after which the driver marks the GPU for a reset.
        """
        if named := _RECOVERY.search(self.text):
            return str(named[1]).strip()
        due = _RESET.search(self.text)
        if _GSP_FATAL.search(self.text) or (due and due[1].lower() == "yes"):
            return "GPU Reset Required"
        return "Drain and Reset" if due and due[2].lower() == "yes" else ""

    @property
    def is_recovered(self) -> bool:
        """Whether the line says that no recovery action is due any more."""
        return self.code == RECOVERY_ACTION_CHANGED and self.recovery_action.lower() == "none"

    @property
    def needs_no_reset(self) -> bool:
        """Whether the line itself says that no reset is due (`RST: No, D-RST: No`)."""
        due = _RESET.search(self.text)
        return bool(due) and not self.recovery_action

    @property
    def cause(self) -> int | None:
        """The Xid that an Xid 45 names as its cause."""
        named = _CAUSE.search(self.text) if self.code == CHANNEL_REMOVED else None
        return int(named[1]) if named else None


@record
class SXidEvent:
    """One SXid line of the NVSwitch at `pci`; lines that only add data to it are ignored."""

    code: int
    pci: str
    time: float | None
    text: str
    severity: str = ""
    link: int | None = None
    lines: int = 1


@record
class FallenOffBus:
    """The driver lost a GPU and logged that without an Xid; `pci` is empty if it did not say which."""

    pci: str
    time: float | None
    lines: int = 1


@record
class InitFailed:
    """The driver could not start a GPU and logged that without an Xid; `pci` is empty if it did not say which."""

    pci: str
    time: float | None
    text: str
    lines: int = 1


@record
class Cleared:
    """Ends everything logged before it for the GPU at `pci`, or EVERY_GPU; `by` says what happened.

    `form` is the line's form. `is_partial`: the driver was loaded, but could not start some of its GPUs.
    """

    pci: str
    time: float | None
    by: str
    form: str = ""
    is_partial: bool = False


@record
class GpuNamed:
    """The driver logged a GPU's UUID with its `pci`, as it does before the first Xid of a GPU."""

    pci: str
    uuid: str


GpuEvent: TypeAlias = XidEvent | SXidEvent | FallenOffBus | InitFailed | Cleared | GpuNamed

_PROCESS = Pattern(r"\s*pid=([^,]{0,60})(?:,\s*name=([^,]{0,60}))?(?:,(.*))?\Z", IGNORING_CASE)
_SEVERITY = Pattern(r"\b(non-?)?fatal\b", IGNORING_CASE)
_LINK = Pattern(r"\blink\s{0,4}(-?\d{1,3})\b", IGNORING_CASE)
_UNIT = Pattern(r"([A-Z][A-Z0-9_]{1,40})\s{1,4}(?:Non-?)?fatal\b", IGNORING_CASE)
_LINK_DOWN = Pattern(r"NETIR_LINK_(?:EVT|DOWN)\b[^(\[]{0,60}[(\[]0x([0-9a-f]{8})\b", IGNORING_CASE)
_RECOVERY = Pattern(r"action changed from .{0,60}? to 0x[0-9a-f]{1,8} \(([^()]{1,40})\)", IGNORING_CASE)
_RESET = Pattern(r"\bRST: (Yes|No), D-RST: (Yes|No)\s*\Z", IGNORING_CASE)  # at the end, where no process is named
_GSP_FATAL = Pattern(
    r"GSP-RISCV instance \d{1,3} .{0,60}fatal error(?: \(mask: 0x[0-9a-f]{1,8}\))?\s*\Z", IGNORING_CASE
)
_CAUSE = Pattern(r" caused by previous Xid (\d{1,4})\s*\Z", IGNORING_CASE)


class Driver:
    """Parses the driver's lines in order, because some only make sense together."""

    def __init__(self) -> None:
        self._begun: list[tuple[str, float | None]] = []  # GPUs of messages over three lines, and when these began
        self._removed: set[str] = set()  # GPUs removed from the bus: when they return, they were reset
        self._started: set[str] | None = None  # GPUs that were started since the driver was loaded
        self._failed = False  # whether a probe has failed since the driver was loaded

    def unknown(self) -> None:
        """An unknown line of the driver, which ends a message of several lines. Lines of others may stand between."""
        self._begun.clear()

    def event(self, form: LogForm, match: re.Match[str], time: float | None) -> GpuEvent | None:
        """The event of a line, if it is about a GPU or a switch."""
        # A load line after a failed probe belongs to the same load, and is no restart.
        self._failed = self._failed or form.name in PROBE_FAILED
        if form.event in WHILE_IT_RUNS and self._started is not None:
            self._started.add(pci_address(match["pci"] or ""))
        if form.event == "lost_begins":
            self._begun.append((pci_address(match["pci"]), time))
        elif form.event == "fell_off":
            return FallenOffBus(pci_address(match["pci"] or "") or self._last_begun(time), time)
        elif form.event == "gpu_removed":
            self._removed.add(_of_gpu_id(match["id"]))
        elif form.event == "gpu_added":
            return self._came_back(pci_address(match["pci"]), time)
        elif form.event == "driver_loaded":
            failed, self._failed, self._started = self._failed, False, set()
            return Cleared(EVERY_GPU, time, RELOAD, form.name, is_partial=failed)
        return _of_one_line(form, match, time)

    def _last_begun(self, time: float | None) -> str:
        """The GPU of the last message that began and may end now; two can be logged at once."""
        while self._begun:
            pci, began = self._begun.pop()
            if time is None or began is None or time - began <= SENTENCE_S:
                return pci
        return ""

    def _came_back(self, pci: str, time: float | None) -> Cleared | None:
        if pci in self._removed:
            self._removed.remove(pci)
            return Cleared(pci, time, "a GPU reset", "gpu_added")
        if self._started is None or pci in self._started:
            return None
        self._started.add(pci)
        return Cleared(pci, time, RELOAD, "gpu_added")


def _of_one_line(form: LogForm, match: re.Match[str], time: float | None) -> GpuEvent | None:
    if form.event == "xid":
        return _xid(time, match)
    if form.event == "sxid":
        return _sxid(time, match)
    if form.event == "init_failed":
        return InitFailed(pci_address(match["pci"] or ""), time, match["text"][:LONGEST_TEXT])
    if form.event == "gpu_named":
        return GpuNamed(pci_address(match["pci"]), match["uuid"])
    if form.event in EVERYTHING_CLEARED:
        return Cleared(EVERY_GPU, time, EVERYTHING_CLEARED[form.event], form.name)
    return None


def _xid(time: float | None, match: re.Match[str]) -> XidEvent | None:
    code, text = int(match["code"]), match["text"] or ""
    pid, process = "", ""
    if named := _PROCESS.match(text):
        pid, process, text = named[1].strip(), (named[2] or "").strip(" '`"), named[3] or ""
    if not code:
        return None
    return XidEvent(
        code=code,
        pci=pci_address(match["pci"] or ""),
        time=time,
        text=text.strip()[:LONGEST_TEXT],
        pid=int(pid) if pid.isdecimal() and len(pid) <= 10 else None,
        process="" if process == "<unknown>" else process,
        severity=_severity(text),
        link=_link(text),
    )


def _sxid(time: float | None, match: re.Match[str]) -> SXidEvent | None:
    code, text = int(match["code"]), match["text"] or ""
    if not code:
        return None
    message = text.strip()[:LONGEST_TEXT]
    return SXidEvent(code, pci_address(match["pci"] or ""), time, message, _severity(text), _link(text))


def _severity(text: str) -> str:
    severities = _SEVERITY.findall(text)  # the last match, as text before it may belong to the process's name
    return "" if not severities else "nonfatal" if severities[-1] else "fatal"


def _link(text: str) -> int | None:
    link = _LINK.search(text)
    return int(link[1]) if link and not link[1].startswith("-") else None


def _of_gpu_id(number: str) -> str:
    """The address in the driver's GPU ID: domain, bus and device in one number (`0000cc00`)."""
    bits = int(number, 16)
    return f"{bits >> 16:04x}:{bits >> 8 & 0xFF:02x}:{bits & 0xFF:02x}.0"
