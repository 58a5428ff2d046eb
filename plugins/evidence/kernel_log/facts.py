"""Reads the kernel log into typed events: of GPUs (events_gpu) and of the host (events_host). Never raises."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from clusterproof.plugins.catalog.xids import xid
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.field import number, optional, text, values, whole
from clusterproof.plugins.evidence.kernel_log.events_gpu import (
    EVERY_GPU,
    LONGEST_TEXT,
    REBOOT,
    Cleared,
    Driver,
    FallenOffBus,
    GpuEvent,
    GpuNamed,
    InitFailed,
    SXidEvent,
    XidEvent,
)
from clusterproof.plugins.evidence.kernel_log.events_host import HostEvent, HungTask
from clusterproof.plugins.evidence.kernel_log.forms_devices import Disks
from clusterproof.plugins.evidence.kernel_log.forms_host import MemoryGroups, host_event, process_event
from clusterproof.plugins.evidence.kernel_log.line import begins_with_a_name, pci_address, unwrap
from clusterproof.plugins.evidence.kernel_log.window import since_boot

__all__ = [
    "EVERY_GPU",
    "LONGEST_TEXT",
    "Cleared",
    "Event",
    "Events",
    "FallenOffBus",
    "GpuNamed",
    "HungTask",
    "InitFailed",
    "Line",
    "SXidEvent",
    "XidEvent",
    "lines",
    "of_this_boot",
    "parse",
    "pci_address",
    "within",
]

LONGEST_LINE = 2048

Event: TypeAlias = GpuEvent | HostEvent
Events: TypeAlias = tuple[Event, ...]
Line: TypeAlias = tuple[float | None, str] | tuple[float | None, str, int]
Message: TypeAlias = tuple[float | None, str, int]


def lines(data: object) -> list[Line]:
    """The lines as the probe sends them, for `parse`."""
    return [_line(values(entry)) for entry in values(data)]


def _line(entry: list[object]) -> Line:
    if len(entry) not in (2, 3):
        raise TypeError
    left_out = whole(entry[2]) if len(entry) == 3 else 0
    return optional(number)(entry[0]), text(entry[1]), max(left_out, 0)


def parse(lines: Iterable[Line]) -> Events:
    """The events of a kernel log, in its order.

    A line is its seconds (None: not known), its text, and how many lines like it were left out before it.
    """
    return tuple(_events(_messages(lines)))


def of_this_boot(events: Events) -> Events:
    """Those after the last start of the machine: a log of several boots may be one after the other."""
    starts = [at for at, event in enumerate(events) if isinstance(event, Cleared) and event.by == REBOOT]
    return events[starts[-1] :] if starts else events


def within(events: Events, begins: float, booted: float) -> Events:
    """Those since a moment (seconds since boot), those of unknown time, and what ended others before it."""

    def counts(event: Event) -> bool:
        time = None if isinstance(event, GpuNamed) else event.time
        return time is None or since_boot(time, booted) >= begins or _still_holds(event)

    return tuple(event for event in events if counts(event))


def _still_holds(event: Event) -> bool:
    if isinstance(event, XidEvent):
        return bool(xid(event.code).clears) or event.recovery_action.lower() == "none"
    return isinstance(event, Cleared)


def _events(messages: Iterable[Message]) -> Iterator[Event]:
    driver, groups, disks = Driver(), MemoryGroups(), Disks()
    for time, message, left_out in messages:
        if begins_with_a_name(message):
            event: Event | None = process_event(message, time)
        else:
            event = driver.event(message, time) or disks.followed(groups.named(message, host_event(message, time)))
        if event is None:
            continue
        if left_out and not isinstance(event, Cleared | GpuNamed):
            event = replace(event, lines=event.lines + left_out)
        yield event


def _messages(lines: Iterable[Line]) -> Iterator[Message]:
    """The kernel's own words of each line, with the time given, else the one in the line itself."""
    for time, line, *more in lines:
        head, *others = line[:LONGEST_LINE].splitlines() or [""]
        data, message = unwrap(head)
        when = data if time is None else time
        when = when if when is not None and math.isfinite(when) else None
        yield when, message, more[0] if more else 0
        if _is_of_driver(message):  # so its further lines may be too; a process's name can hold the end of a line
            yield from ((when, words, 0) for _, words in map(unwrap, others) if _is_of_driver(words))


def _is_of_driver(message: str) -> bool:
    return message[:5].upper() == "NVRM:"
