"""Converts the kernel log into typed events about GPUs and the host, for the period that counts. Never raises."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.catalog.nvidia import xid
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.typed import TYPE_CHECKING, TypeAlias
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.fact import Absent, CollectorData, collected_by
from clusterproof.plugins.evidence.field import boolean, integer, number, optional, read, table, text, values
from clusterproof.plugins.evidence.kernel_log.collect_lines import ERROR, OURS, UNKNOWN, without_numbers
from clusterproof.plugins.evidence.kernel_log.events_gpu import (
    REBOOT,
    Cleared,
    Driver,
    GpuEvent,
    GpuNamed,
    XidEvent,
)
from clusterproof.plugins.evidence.kernel_log.events_host import (
    LONGEST_WORDS,
    Event,
    Logged,
    MemoryGroups,
    NotKnown,
    made,
)
from clusterproof.plugins.evidence.kernel_log.line import (
    IGNORING_CASE,
    begins_with_a_name,
    form_of,
    unwrap,
)
from clusterproof.plugins.evidence.kernel_log.subjects import with_addresses, with_sections
from clusterproof.plugins.evidence.kernel_log.window import since_boot

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node


LONGEST_LINE = 2048
OF_GPUS = ("gpu", "nvswitch")  # scopes
OF_ALL_PROGRAMS = "all programs"  # the source of a log that came from a journal or a syslog of all programs

Events: TypeAlias = tuple[Event, ...]
Line: TypeAlias = tuple[float | None, str] | tuple[float | None, str, int] | tuple[float | None, str, int, int]
Message: TypeAlias = tuple[float | None, str, int, int]


def lines(data: object) -> list[Line]:
    """The lines as the probe sends them, for `parse`."""
    return [_line(values(entry)) for entry in values(data)]


def _line(entry: list[object]) -> Line:
    if not 2 <= len(entry) <= 4:
        raise TypeError
    left_out, level = _further(*map(integer, entry[2:]))
    return optional(number)(entry[0]), text(entry[1]), max(left_out, 0), level


def _further(left_out: int = 0, level: int = UNKNOWN) -> tuple[int, int]:
    """The further values of a line: how many similar ones were left out before it, and its level."""
    return left_out, level


def parse(lines: Iterable[Line]) -> Events:
    """The events of a kernel log, in its order.

    A line is its seconds (None: unknown), its text, how many similar lines were left out before it, and its level.
    """
    return with_addresses(with_sections(_events(_messages(lines))))


def of_no_gpu(events: Events) -> Events:
    """The events that are not about a GPU or an NVSwitch."""
    return tuple(
        event
        for event in events
        if not isinstance(event, GpuEvent)
        and not (isinstance(event, Logged) and log_forms()[event.form].scope in OF_GPUS)
    )


def of_this_boot(events: Events) -> Events:
    """The events after the machine's last start: logs of several boots may follow each other."""
    starts = [at for at, event in enumerate(events) if isinstance(event, Cleared) and event.by == REBOOT]
    return events[starts[-1] :] if starts else events


def within(events: Events, begins: float, booted: float) -> Events:
    """The events since a moment (seconds since boot), those of unknown time, and those that ended others before it."""

    def counts(event: Event) -> bool:
        time = None if isinstance(event, GpuNamed) else event.time
        return time is None or since_boot(time, booted) >= begins or _still_holds(event)

    return tuple(event for event in events if counts(event))


def _still_holds(event: Event) -> bool:
    if isinstance(event, XidEvent):
        return bool(xid(event.code).clears) or event.is_recovered
    return isinstance(event, Cleared) or (isinstance(event, Logged) and not log_forms()[event.form].check)


def _events(messages: Iterable[Message]) -> Iterator[Event]:
    driver, groups = Driver(), MemoryGroups()
    for time, message, left_out, level in messages:
        fitted = form_of(message)
        event: Event | None = None
        if not fitted and _is_of_driver(message):
            driver.unknown()
        if fitted:
            event = driver.event(*fitted, time) or groups.named(*fitted, made(*fitted, time))
        elif level <= ERROR and OURS.match(message.lower().encode()) and not begins_with_a_name(message):
            event = NotKnown(without_numbers(message[:LONGEST_WORDS]), message[:LONGEST_WORDS].strip(), time)
        if event is None:
            continue
        if left_out and not isinstance(event, Cleared | GpuNamed):
            event = replace(event, lines=event.lines + left_out)
        yield event


def _messages(lines: Iterable[Line]) -> Iterator[Message]:
    """The kernel's own text of each line, with the time given, else the one in the line itself."""
    for time, line, *more in lines:
        left_out, level = _further(*more)
        head, *others = line[:LONGEST_LINE].splitlines() or [""]
        stamp, message = unwrap(head)
        when = stamp if time is None else time
        when = when if when is not None and math.isfinite(when) else None
        yield when, message, left_out, level
        if _is_of_driver(message):  # so its further lines may be too; a process's name can contain the end of a line
            further = (text for _, text in map(unwrap, others) if _is_of_driver(text))
            yield from ((when, text, 0, UNKNOWN) for text in further)


def _is_of_driver(message: str) -> bool:
    return message[:5].upper() == "NVRM:"


OF_NEURON = Pattern(r"neuron(?::| \S+: | driver|_hw_err)", IGNORING_CASE)  # beginning of its driver's lines


@collected_by("kernel_log")
def kernel_events(node: Node, log: CollectorData) -> Events:
    """The kernel log's events about GPUs and the host, of this boot and within the window that counts."""
    events = of_this_boot(parse(log.get("lines", lines)))
    if _may_be_neurons(node, log):
        events = of_no_gpu(events)
    return events if node.since.is_boot else within(events, node.window_begins, node.boot.booted)


@collected_by("kernel_log")
def users_write_the_log(node: Node, log: CollectorData) -> bool:
    """Whether users can have whole records written: into those of Neuron devices (NEURON_IOCTL_PRINTK), and into a
    saved log of all programs.
    """
    return log.get("source", optional(text)) == OF_ALL_PROGRAMS or _may_be_neurons(node, log)


def _may_be_neurons(node: Node, log: CollectorData) -> bool:
    """Whether this may be the log of a node with Neuron devices, as far as is known."""
    try:
        return bool(node.neuron.on_bus or node.neuron.devices)
    except Absent:
        return False
    except Incomplete:
        messages = (unwrap(line[1])[1] for line in log.get("lines", lines))
        return any(OF_NEURON.match(message) and not begins_with_a_name(message) for message in messages)


@collected_by("kernel_log")
def kernel_log_is_cut(node: Node, log: CollectorData) -> bool:
    """Whether the log had already lost records that count."""
    if node.since.is_boot or not log.get("truncated", boolean):
        return log.get("truncated", boolean)
    whole_from = log.get("whole_from", optional(number))
    return whole_from is None or whole_from > node.window_begins


@collected_by("kernel_log")
def kernel_log_is_unfinished(node: Node, log: CollectorData) -> bool:
    """Whether there was no time to read what it says last."""
    return bool(log.get("unfinished", optional(boolean)))


@collected_by("kernel_log")
def kernel_lines_cut(node: Node, log: CollectorData) -> Mapping[str, int]:
    """How many lines that may count were removed from the node's answer, by class: `file_servers`, `others`, …"""
    cut = {name: read(row, values, name) for name, row in (log.get("cut", optional(table)) or {}).items()}
    begins = -math.inf if node.since.is_boot else node.window_begins
    return {
        name: read(row[0], integer, "cut")
        for name, row in cut.items()
        if len(row) == 2 and read(row[1], number, "cut") >= begins
    }


@collected_by("kernel_log")
def kernel_lines_uncounted(node: Node, log: CollectorData) -> int:
    """How many of the kernel's own lines were left out that were each unlike the others."""
    return log.get("uncounted", optional(integer)) or 0


@collected_by("kernel_log")
def kernel_lines_folded(node: Node, log: CollectorData) -> Mapping[str, int]:
    """How many lines with ever varying users' text were left out, by class: `segf`, `INFO: task`, …"""
    folded = log.get("folded", optional(table)) or {}
    return {name: read(count, integer, name) for name, count in folded.items()}


def counting(node: Node, logged: list[Line]) -> list[Line]:
    """The lines of the kernel log that may be within the window. Raises Incomplete."""
    if node.since.is_boot:
        return logged
    begins, booted = node.window_begins, node.boot.booted
    return [line for line in logged if line[0] is None or since_boot(line[0], booted) >= begins]


@collected_by()
def window_begins(node: Node) -> float:
    """When the window begins, in seconds since boot. Raises Incomplete."""
    return node.since.begins(node.boot.uptime_s, node.boot.booted)
