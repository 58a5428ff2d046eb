"""Neuron devices from the driver and neuron-ls, and their errors in the kernel log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.fact import (
    NEURON_DEVICES,
    Absent,
    CollectorData,
    collected_as,
    collected_by,
    limited_list,
)
from clusterproof.plugins.evidence.field import Field, Reported, integer, read, text, value_of, values
from clusterproof.plugins.evidence.host.facts import (
    Command,
)
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.line import BOOTED, IGNORING_CASE, begins_with_a_name, unwrap

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


MAX_NAME = 80  # characters of a process's name in a message


@record
class NeuronDevice(Reported):
    """One Trainium or Inferentia device. Counters are since the driver was loaded."""

    index = Field(integer)
    serial = Field(text)
    model = Field(text)
    cores = Field(integer)
    mem_ecc_uncorrected = Field(integer)
    mem_ecc_repairable_uncorrected = Field(integer)
    sram_ecc_uncorrected = Field(integer)

    @property
    def label(self) -> str:
        """`Neuron device 3`."""
        return f"Neuron device {self.index}"

    @property
    def connected(self) -> tuple[int, ...]:
        """The devices that it is linked with. Raises Incomplete."""
        return tuple(read(number, integer, "connected") for number in value_of(self.data, "connected", values))


@record
class Neuron(Reported):
    """The Neuron driver and its devices."""

    driver = Field(text)
    on_bus = Field(integer)
    devices = Field(limited_list(NeuronDevice, NEURON_DEVICES), where="neuron: devices")  # those that the driver runs


@record
class Listed:
    """A device as neuron-ls lists it; `processes` are those that use it: `python3 (pid 4711)`."""

    index: int
    processes: tuple[str, ...]


@record
class HardwareError:
    """A hardware error that the Neuron runtime had the kernel log; `device` and `action` are empty if unknown."""

    kind: str
    device: str
    action: str

    @property
    def description(self) -> str:
        """`SRAM_UNCORRECTABLE_ERROR of device 3 (TERMINATE_INSTANCE)`."""
        device = f" of device {self.device}" if self.device else ""
        return f"{self.kind}{device} ({self.action})" if self.action else f"{self.kind}{device}"


def parse_neuron_ls(output: str) -> tuple[Listed, ...] | None:
    """The devices in `neuron-ls --json-output`; None if it is no such list."""
    entries = entries_of(output)
    return None if entries is None else tuple(_listed(entry) for entry in entries)


def entries_of(output: str) -> list[dict[str, Any]] | None:
    """The entries as printed: each has its number under `neuron_device`."""
    begin = min((at for at in (output.find("["), output.find("{")) if at >= 0), default=-1)
    if begin < 0:
        return None
    try:
        answer = json.JSONDecoder().raw_decode(output, begin)[0]
    except (ValueError, RecursionError):
        return None
    return _entries(answer)


def _entries(answer: object) -> list[dict[str, Any]] | None:
    """The list of devices: the whole answer, or a member of it."""
    lists = [entry for entry in answer.values() if entry] if isinstance(answer, dict) else [answer]
    return next((entry for entry in lists if isinstance(entry, list) and all(map(_is_device, entry))), None)


def _is_device(entry: object) -> bool:
    return isinstance(entry, dict) and type(entry.get("neuron_device")) is int


def _listed(entry: Mapping[str, Any]) -> Listed:
    processes = entry.get("neuron_processes")
    running = [process for process in processes if isinstance(process, dict)] if isinstance(processes, list) else []
    return Listed(entry["neuron_device"], tuple(_process(process) for process in running))


def _process(process: Mapping[str, Any]) -> str:
    command = str(process.get("command") or "a process").split()
    return f"{command[0][:MAX_NAME] if command else 'a process'} (pid {str(process.get('pid', '?'))[:10]})"


_MARK = "NEURON_HW_ERR="
_ERROR = Pattern(r"(?:neuron[\w:.-]{0,60}\s{1,4})?" + _MARK + r"([A-Z0-9_]{1,60})(?:\s(.{0,1000}))?\Z", re.DOTALL)
LONGEST_LINE = 2048
_BOOTED = Pattern(BOOTED, IGNORING_CASE)
_STARTED = Pattern(r"(?:neuron[\w:.-]{0,60}\s{1,4})?Neuron Driver Started\b")
_DEVICE = Pattern(r"\bnd-id=(\d{1,4})\b")
_ACTION = Pattern(r"\baction=([A-Z0-9_]{1,60})")


def hardware_errors(log: Iterable[str]) -> tuple[HardwareError, ...]:
    """The hardware errors since the last boot in a log; a restart of the driver ends those that it repairs."""
    errors: list[HardwareError] = []
    lines = list(log)
    if not any(_MARK in line for line in lines):
        return ()
    for line in lines:
        message = unwrap(line[:LONGEST_LINE])[1]
        if begins_with_a_name(message):
            continue  # a name that the user may choose
        if _BOOTED.match(message):
            errors = []
        elif _STARTED.match(message):
            errors = [error for error in errors if "REPAIRABLE" not in error.kind]
        elif error := _ERROR.match(message):
            device, action = _DEVICE.search(error[2] or ""), _ACTION.search(error[2] or "")
            errors.append(HardwareError(error[1], device[1] if device else "", action[1] if action else ""))
    return tuple(errors)


neuron = collected_as("neuron", Neuron)


@collected_by()
def neuron_devices_due(node: Node) -> int:
    """How many Neuron devices its type has; if the type is unknown, how many the PCI bus shows."""
    try:
        return node.type.neuron_devices or 0
    except Incomplete:
        return _neuron_devices_on_bus(node)


def _neuron_devices_on_bus(node: Node) -> int:
    try:
        return node.neuron.on_bus
    except Absent:
        return 0


@collected_by()
def neuron_devices(node: Node) -> tuple[NeuronDevice, ...]:
    """The Neuron devices with a driver, at least one. Raises NotApplicable if there should be none."""
    due = node.neuron_devices_due
    try:
        devices = node.neuron.devices
    except Absent:
        devices = ()
    if not devices and not due:
        raise NotApplicable(f"{node.type_name or 'this node'} has no Neuron device")
    if not devices:
        raise Incomplete(f"the driver runs no Neuron device of {due}", cause="no Neuron device answers")
    return devices


neuron_ls = collected_as("neuron_ls", Command)


@collected_by()
def neuron_ls_hangs(node: Node) -> str:
    """What neuron-ls was doing when it missed its deadline, or empty. Raises Incomplete."""
    collector = node.collector("neuron_ls")
    return collector.detail or "neuron-ls" if collector.status in (Status.TIMED_OUT, Status.STUCK) else ""


@collected_by("kernel_log")
def neuron_hardware_errors(node: Node, log: CollectorData) -> tuple[HardwareError, ...]:
    """The hardware errors of Neuron devices since boot: what failed since then is still broken."""
    return hardware_errors(line[1] for line in node.counting(log.get("lines", kernel_log.lines)))
