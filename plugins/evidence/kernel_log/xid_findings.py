"""Judges the Xids and SXids of a kernel log by the catalogue; a check turns the findings into a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.catalog.nvml_words import RecoveryAction, recovery_action_in_log
from clusterproof.plugins.catalog.xids import Xid, sxids, xid
from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.kernel_log.facts import (
    EVERY_GPU,
    Cleared,
    Event,
    FallenOffBus,
    GpuNamed,
    InitFailed,
    SXidEvent,
    XidEvent,
)
from clusterproof.plugins.evidence.kernel_log.line import pci_address

Severity: TypeAlias = Literal["none", "concern", "fail"]
WORST_FIRST: tuple[Severity, ...] = ("fail", "concern", "none")
FALLEN_OFF_THE_BUS = 79
INIT_FAILED = 143
RECOVERY_ACTION_CHANGED = 154
NAMED_PARTS, NAMED_LINKS = 4, 18

_Line = TypeVar("_Line", XidEvent, SXidEvent)


@record
class Finding:
    """All lines of one code on one GPU or NVSwitch, judged.

    Where some were cleared and some came after, the finding is of those after. `cleared_by` is empty unless
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
) -> tuple[Finding, ...]:
    """Judge the Xids of one boot, worst first, those that mean nothing included.

    `remap_due` holds the PCI addresses of GPUs whose row remapping is pending or has failed; `uuids` gives
    GPU UUIDs by PCI address (the log tells those of GPUs that are not in it). A GPU that fell off the bus, or did
    not start, without an Xid is judged as the Xid for that.
    """
    events = [_as_xid(event) for event in events]
    due = {pci_address(data) for data in remap_due}
    named = {event.pci: event.uuid for event in events if isinstance(event, GpuNamed)}
    named |= {pci_address(data): uuid for data, uuid in (uuids or {}).items() if uuid}
    return _worst_first(
        _of_gpu(xid(code), pci, lines, pci in due, named.get(pci, ""), catalog)
        for (pci, code), lines in _grouped(events, XidEvent).items()
    )


def evaluate_switches(events: Iterable[Event], catalog: Catalog) -> tuple[Finding, ...]:
    """Judge the SXids of one boot, worst first: fatal ones fail, all others are a concern."""
    groups = _grouped(list(events), SXidEvent)
    return _worst_first(_of_switch(code, pci, lines, catalog) for (pci, code), lines in groups.items())


def occurrences(times: Sequence[float | None], catalog: Catalog, lines: Sequence[int] = ()) -> tuple[float | None, ...]:
    """When each occurrence began: lines at most three minutes apart are one burst, and one occurrence.

    One fault writes many lines: of every channel that it ended, of every rank that used the GPU. A burst that
    goes on for an hour begins a new occurrence, so that a fault which never pauses does repeat. Lines without
    a time belong to the burst before them: nothing proves that they are another. `lines` is how many lines each time
    stands for: those that were left out before it lie evenly in the gap.
    """
    gap_s, longest_s = catalog.threshold("xid.burst_gap_s"), catalog.threshold("xid.burst_max_s")
    begun: list[float | None] = []
    last: float | None = None
    for time, stands_for in zip(times, lines or [1] * len(times), strict=True):
        if not begun:
            begun.append(time)
        elif time is not None and last is not None:
            start = begun[-1]
            if (time - last) / stands_for > gap_s or (start is not None and time - start > longest_s):
                begun.append(time)
        elif begun[-1] is None:
            begun[-1] = time
        last = time if time is not None else last
    return tuple(begun)


def is_repeated(begun: Iterable[float | None], catalog: Catalog) -> bool:
    """Whether two occurrences of one code on one GPU, or more, began within 24 hours."""
    needed, window_s = int(catalog.threshold("xid.repeat_count")), catalog.threshold("xid.repeat_window_s")
    times = sorted(time for time in begun if time is not None)
    return any(end - start <= window_s for start, end in zip(times, times[needed - 1 :], strict=False))


def _as_xid(event: Event) -> Event:
    if isinstance(event, FallenOffBus):
        return XidEvent(FALLEN_OFF_THE_BUS, event.pci, event.time, "fallen off the bus", lines=event.lines)
    if isinstance(event, InitFailed):
        return XidEvent(INIT_FAILED, event.pci, event.time, event.text, lines=event.lines)
    return event


def _grouped(events: Sequence[Event], kind: type[_Line]) -> dict[tuple[str, int], list[tuple[_Line, str]]]:
    """The lines of one kind by address and code, in the log's order, each with what cleared it or empty."""
    groups: dict[tuple[str, int], list[tuple[_Line, str]]] = {}
    cleared: dict[tuple[str, int | None], str] = {}  # by address and code; None is every code
    for event in reversed(events):
        if isinstance(event, kind):
            ends = ((EVERY_GPU, None), (event.pci, None), (event.pci, event.code))
            by = next((cleared[end] for end in ends if end in cleared), "")
            groups.setdefault((event.pci, event.code), []).append((event, by))
        cleared |= _clears(event)
    for lines in groups.values():
        lines.reverse()
    return groups


def _clears(event: Event) -> dict[tuple[str, int | None], str]:
    """What an event says is over, and in which words."""
    if isinstance(event, Cleared):
        return {(event.pci, None): event.by}
    if not isinstance(event, XidEvent) or not event.pci:
        return {}
    if event.code == RECOVERY_ACTION_CHANGED and event.recovery_action.lower() == "none":
        return {(event.pci, None): "the driver: no recovery action is due"}
    return {(event.pci, code): f"Xid {event.code}" for code in xid(event.code).clears}


def _of_gpu(
    row: Xid, pci: str, lines: list[tuple[XidEvent, str]], remap_due: bool, uuid: str, catalog: Catalog
) -> Finding:
    data, cleared_by = _standing(lines)
    begun = _begun(data, catalog)
    last = data[-1]
    severity: Severity = "none" if cleared_by else RULES[row.verdict](data, remap_due, is_repeated(begun, catalog))
    recovery = _recovery(data) if row.verdict == "by-text" else None
    with_process = next((line for line in reversed(data) if line.process or line.pid is not None), last)
    return Finding(
        family="Xid",
        code=row.code,
        name=row.name,
        severity=severity,
        pci=pci,
        uuid=uuid,
        count=sum(line.lines for line in data),
        occurrences=len(begun),
        first=data[0].time,
        last=last.time,
        text=last.text,
        action=recovery.remedy if recovery else row.action,
        source=row.source,
        process=with_process.process,
        pid=with_process.pid,
        cleared_by=cleared_by,
        part=_part(data),
    )


def _begun(lines: Sequence[XidEvent | SXidEvent], catalog: Catalog) -> tuple[float | None, ...]:
    return occurrences([line.time for line in lines], catalog, [line.lines for line in lines])


def _part(lines: Sequence[XidEvent]) -> str:
    """Which parts of the NVLink hardware and which links lines name: `RLW_REMAP, link 4 10`."""
    units = list(dict.fromkeys(line.unit for line in lines if line.unit))
    links = sorted({line.link for line in lines if line.link is not None})
    named = [*units[:NAMED_PARTS], *(["link " + " ".join(map(str, links[:NAMED_LINKS]))] if links else [])]
    return ", ".join(named)


def _of_switch(code: int, pci: str, lines: list[tuple[SXidEvent, str]], catalog: Catalog) -> Finding:
    data, cleared_by = _standing(lines)
    rules = sxids()
    fatal = [line for line in data if line.severity == "fatal" or (not line.severity and code in rules.fatal)]
    worst = (fatal or data)[-1]
    severity: Severity = "none" if cleared_by else "fail" if fatal else "concern"
    return Finding(
        family="SXid",
        code=code,
        name=worst.text,
        severity=severity,
        pci=pci,
        uuid="",
        count=sum(line.lines for line in data),
        occurrences=len(_begun(data, catalog)),
        first=data[0].time,
        last=data[-1].time,
        text=worst.text,
        action=rules.fatal_action if fatal else rules.other_action,
        source=rules.source,
        cleared_by=cleared_by,
    )


def _standing(lines: list[tuple[_Line, str]]) -> tuple[list[_Line], str]:
    """The lines that nothing cleared; or, where all were, all of them and what cleared the last."""
    left = [line for line, by in lines if not by]
    return (left, "") if left else ([line for line, _ in lines], lines[-1][1])


def _recovery(lines: Sequence[XidEvent]) -> RecoveryAction | None:
    """The recovery action that the last line names, if it is known."""
    return recovery_action_in_log(lines[-1].recovery_action)


def _by_severity(lines: Sequence[XidEvent]) -> Severity:
    words = {line.severity for line in lines}
    return "fail" if "fatal" in words else "concern" if "" in words else "none"


def _by_text(lines: Sequence[XidEvent]) -> Severity:
    action = _recovery(lines)
    return "concern" if action is None else "fail" if action.value else "none"


RULES: Mapping[str, Callable[[Sequence[XidEvent], bool, bool], Severity]] = {  # of lines, remap due, is repeated
    "none": lambda *_: "none",
    "concern": lambda *_: "concern",
    "fail": lambda *_: "fail",
    "repeat-concern": lambda _lines, _due, is_repeated: "concern" if is_repeated else "none",
    "repeat-fail": lambda _lines, _due, is_repeated: "fail" if is_repeated else "concern",
    "by-remap": lambda _lines, remap_due, _repeated: "fail" if remap_due else "concern",
    "by-severity": lambda lines, *_: _by_severity(lines),
    "by-text": lambda lines, *_: _by_text(lines),
}


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda found: (WORST_FIRST.index(found.severity), found.pci, found.code)))
