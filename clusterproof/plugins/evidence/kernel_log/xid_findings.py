"""Evaluates the Xids and SXids of a kernel log by the catalogue, for checks to turn into verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.catalog.nvidia import Xid, sxids, xid
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Literal, TypeVar
from clusterproof.plugins.evidence.kernel_log.events_gpu import (
    EVERY_GPU,
    REBOOT,
    Cleared,
    FallenOffBus,
    GpuNamed,
    InitFailed,
    SXidEvent,
    XidEvent,
)
from clusterproof.plugins.evidence.kernel_log.events_host import Event
from clusterproof.plugins.evidence.kernel_log.line import pci_address
from clusterproof.plugins.evidence.kernel_log.xid_rules import (
    DUE,
    RULES,
    Severity,
    is_repeated,
    occurrences,
    where_to_look,
)

WORST_FIRST: tuple[Severity, ...] = ("fail", "concern", "none")
FALLEN_OFF_THE_BUS = 79
INIT_FAILED = 143
LOST = (FALLEN_OFF_THE_BUS, INIT_FAILED)  # a GPU that is gone: only a reboot is known to bring it back
BUT_LOST = 0  # stands for all other codes
NAMED_PARTS, NAMED_LINKS = 4, 64  # an NVSwitch has 64 links

_Line = TypeVar("_Line", XidEvent, SXidEvent)


@record
class XidFinding:
    """The evaluation of all lines of one code on one GPU or NVSwitch.

    If some were cleared and some came after, the finding is about those after. `cleared_by` is empty unless
    all were cleared, and then the severity is none. `count` is of lines, `occurrences` of bursts of them.
    `part` is the part of the NVLink hardware and the links that the lines name. Times are in seconds on the log's own
    clock.
    """

    family: Literal["Xid", "SXid"]
    code: int
    name: str
    severity: Severity
    pci: str
    uuid: str
    count: int
    occurrences: int
    first: float | None
    last: float | None
    text: str
    action: str
    source: str
    process: str = ""
    pid: int | None = None
    cleared_by: str = ""
    part: str = ""


def evaluate(
    events: Iterable[Event],
    catalog: Catalog,
    *,
    remap_due: Collection[str] = (),
    uuids: Mapping[str, str] | None = None,
) -> tuple[XidFinding, ...]:
    """Evaluate the Xids of one boot, worst first, including those without significance.

    `remap_due` holds the PCI addresses of GPUs whose row remapping is pending or has failed; `uuids` gives GPU UUIDs by
    PCI address, for GPUs that answer (the log has those of others). A GPU that fell off the bus, or did not start,
    without an Xid is evaluated as the Xid for that; so is an Xid of which the log has only the Xid 45 that followed
    from it.
    """
    events = [*_with_causes([_as_xid(event) for event in events])]
    due = {pci_address(pci) for pci in remap_due}
    named = {event.pci: event.uuid for event in events if isinstance(event, GpuNamed)}
    named |= {pci_address(pci): uuid for pci, uuid in (uuids or {}).items() if uuid}
    answering = frozenset(pci_address(pci) for pci, uuid in (uuids or {}).items() if uuid)
    return _worst_first(
        _of_gpu(xid(code), pci, lines, pci in due, named.get(pci, ""), catalog)
        for (pci, code), lines in _grouped(events, XidEvent, answering).items()
    )


def evaluate_switches(events: Iterable[Event], catalog: Catalog) -> tuple[XidFinding, ...]:
    """Evaluate the SXids of one boot, worst first: fatal ones fail, all others are a concern."""
    groups = _grouped(list(events), SXidEvent)
    return _worst_first(_of_switch(code, pci, lines, catalog) for (pci, code), lines in groups.items())


def _as_xid(event: Event) -> Event:
    if isinstance(event, FallenOffBus):
        return XidEvent(FALLEN_OFF_THE_BUS, event.pci, event.time, "fallen off the bus", lines=event.lines)
    if isinstance(event, InitFailed):
        return XidEvent(INIT_FAILED, event.pci, event.time, event.text, lines=event.lines)
    return event


def _with_causes(events: Sequence[Event]) -> Iterator[Event]:
    """The events, with its cause before an Xid 45 if the log has lost the line of that."""
    logged = {(event.pci, event.code) for event in events if isinstance(event, XidEvent)}
    for event in events:
        if isinstance(event, XidEvent) and event.cause and (event.pci, event.cause) not in logged:
            yield XidEvent(event.cause, event.pci, event.time, "named as the cause of Xid 45", lines=event.lines)
        yield event


def _grouped(
    events: Sequence[Event], kind: type[_Line], answering: frozenset[str] = frozenset()
) -> dict[tuple[str, int], list[tuple[_Line, str]]]:
    """The lines of one kind by address and code, in the log's order, each with what cleared it, or empty."""
    groups: dict[tuple[str, int], list[tuple[_Line, str]]] = {}
    cleared: dict[tuple[str, int | None], str] = {}  # by address and code; None stands for every code
    for event in reversed(events):
        if isinstance(event, kind):
            others = EVERY_GPU, event.code if event.code in LOST else BUT_LOST
            keys = ((EVERY_GPU, None), others, (event.pci, None), (event.pci, event.code))
            by = next((cleared[key] for key in keys if key in cleared), "")
            groups.setdefault((event.pci, event.code), []).append((event, by))
        cleared |= _clears(event, answering)
    for lines in groups.values():
        lines.reverse()
    return groups


def _clears(event: Event, answering: frozenset[str]) -> dict[tuple[str, int | None], str]:
    """What an event ends, and in which words."""
    if isinstance(event, Cleared) and event.by != REBOOT and event.pci == EVERY_GPU:
        over: dict[tuple[str, int | None], str] = {(pci, None): event.by for pci in answering}
        return over if event.is_partial else {**over, (EVERY_GPU, BUT_LOST): event.by}
    if isinstance(event, Cleared):
        return {(event.pci, None): event.by}
    if not isinstance(event, XidEvent | SXidEvent) or not event.pci:
        return {}
    if isinstance(event, SXidEvent):
        is_cool = event.code == sxids().thermal_end
        return {(event.pci, sxids().thermal_start): f"SXid {event.code}"} if is_cool else {}
    if event.is_recovered:
        return {(event.pci, None): "the driver: no recovery action is due"}
    return {(event.pci, code): f"Xid {event.code}" for code in xid(event.code).clears}


def _of_gpu(
    row: Xid, pci: str, lines: list[tuple[XidEvent, str]], remap_due: bool, uuid: str, catalog: Catalog
) -> XidFinding:
    uncleared, cleared_by = _uncleared(lines)
    begun = _begun(uncleared, catalog)
    last = uncleared[-1]
    is_repeated_on_it = bool(pci) and is_repeated(begun, catalog)  # lines that name no GPU may be about several
    severity: Severity = "none" if cleared_by else RULES[row.verdict](uncleared, remap_due, is_repeated_on_it)
    recovery = DUE[row.verdict](uncleared) if row.verdict in DUE else None
    with_process = next((line for line in reversed(uncleared) if line.process or line.pid is not None), last)
    return XidFinding(
        family="Xid",
        code=row.code,
        name=row.name,
        severity=severity,
        pci=pci,
        uuid=uuid,
        count=sum(line.lines for line in uncleared),
        occurrences=len(begun),
        first=uncleared[0].time,
        last=last.time,
        text=last.text,
        action=_action(recovery.remedy if recovery else row.action, where_to_look(uncleared), severity),
        source=row.source,
        process=with_process.process,
        pid=with_process.pid,
        cleared_by=cleared_by,
        part=_part(uncleared),
    )


def _action(action: str, look: str, severity: Severity) -> str:
    """What to do, and where to look; only where to look if the GPU itself needs nothing."""
    return "; ".join(filter(None, (action if severity == "fail" or not look else "", look)))


def _begun(lines: Sequence[XidEvent | SXidEvent], catalog: Catalog) -> tuple[float | None, ...]:
    return occurrences([line.time for line in lines], catalog, [line.lines for line in lines])


def _part(lines: Sequence[XidEvent]) -> str:
    """The parts of the NVLink hardware and the links that lines name: `RLW_REMAP, link 4 10`."""
    units = list(dict.fromkeys(line.unit for line in lines if line.unit))
    more = [f"{len(units) - NAMED_PARTS} more parts"] if len(units) > NAMED_PARTS else []
    return ", ".join([*units[:NAMED_PARTS], *more, *_links(lines, at_least=1)])


def _links(lines: Sequence[XidEvent | SXidEvent], at_least: int) -> list[str]:
    """The links that lines name, in words: `link 4 10`; nothing if they are fewer."""
    links = sorted({line.link for line in lines if line.link is not None})
    return ["link " + " ".join(map(str, links[:NAMED_LINKS]))] if len(links) >= at_least else []


def _of_switch(code: int, pci: str, lines: list[tuple[SXidEvent, str]], catalog: Catalog) -> XidFinding:
    uncleared, cleared_by = _uncleared(lines)
    rules = sxids()
    fatal = [line for line in uncleared if line.severity == "fatal" or (not line.severity and code in rules.fatal)]
    worst = (fatal or uncleared)[-1]
    is_nothing = cleared_by or code == rules.thermal_end
    severity: Severity = "none" if is_nothing else "fail" if fatal else "concern"
    return XidFinding(
        family="SXid",
        code=code,
        name=worst.text,
        severity=severity,
        pci=pci,
        uuid="",
        count=sum(line.lines for line in uncleared),
        occurrences=len(_begun(uncleared, catalog)),
        first=uncleared[0].time,
        last=uncleared[-1].time,
        text=worst.text,
        action=rules.fatal_action if fatal else rules.other_action,
        source=rules.source,
        cleared_by=cleared_by,
        part="".join(_links(uncleared, at_least=2)),  # of one only, its name has it
    )


def _uncleared(lines: list[tuple[_Line, str]]) -> tuple[list[_Line], str]:
    """The lines that nothing cleared; or, if all were cleared, all of them and what cleared the last."""
    left = [line for line, by in lines if not by]
    return (left, "") if left else ([line for line, _ in lines], lines[-1][1])


def _worst_first(findings: Iterable[XidFinding]) -> tuple[XidFinding, ...]:
    return tuple(sorted(findings, key=lambda finding: (WORST_FIRST.index(finding.severity), finding.pci, finding.code)))
