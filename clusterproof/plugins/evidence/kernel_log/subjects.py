"""The subjects of events that other lines of the log name: sections of firmware reports (APEI), addresses of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import (
    Event,
    HardwareError,
    Logged,
    PcieError,
    ReportedSection,
)

PCIE, MEMORY = "pcie error", "memory error"
OF_PCIE = {"recoverable": "nonfatal"}  # PCIe's own words for severities
_NUMBERED = Pattern(r"RPC response from (GPU\d{1,3}) GSP\b")  # in an Xid 119 or 120, more than a process can be called
DRIVERS_NUMBER = Pattern(r"GPU\d{1,3}")


def with_sections(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events, with firmware reports replaced by their subject: a PCI device, main memory, or something else.

    A report without a section stays as its severity says.
    """
    merged: list[Event] = []
    reports: dict[str, tuple[int, HardwareError]] = {}  # by its number, with where it stands; a boot begins anew
    for event in events:
        if isinstance(event, HardwareError) and event.report:
            reports[event.report] = len(merged), event
        if not isinstance(event, ReportedSection):
            merged.append(event)
        elif event.report in reports:
            at, error = reports[event.report]
            merged[at], *another = _about(merged[at], error, event)
            if another:
                reports[event.report] = len(merged), error
                merged += another
    return tuple(merged)


def _about(before: Event, error: HardwareError, section: ReportedSection) -> list[Event]:
    """Replace a report's event by what one more of its lines says; add another event if it is about two things."""
    if section.device:
        is_unnamed = isinstance(before, PcieError) and not before.device
        return [replace(before, device=section.device)] if is_unnamed else [before]
    if section.section.lower() == PCIE:
        severity = OF_PCIE.get(error.severity, error.severity)
        pcie = PcieError("", severity, "", error.time, error.lines)
        return [pcie] if before == error else [before, pcie]
    recovered = error.severity == "recoverable" and section.section.lower() != MEMORY
    own = replace(error, words=f"{error.words} ({section.section})", is_recovered=recovered)
    return [own] if before in (error, own) else [before, own]


def with_addresses(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events; those about a GPU of which an Xid has both number and address are about that address."""
    events = tuple(events)
    addresses: dict[str, set[str]] = {}
    for event in events:
        if isinstance(event, XidEvent) and event.pci and (numbered := _NUMBERED.search(event.text)):
            addresses.setdefault(numbered[1], set()).add(event.pci)
    known = {number: pci for number, (pci, *others) in addresses.items() if not others}
    return tuple(_addressed(event, known) if isinstance(event, Logged) else event for event in events)


def _addressed(event: Logged, known: Mapping[str, str]) -> Logged:
    pci = known.get(event.device)
    return replace(event, device=pci, names=(*event.names, pci)) if pci else event
