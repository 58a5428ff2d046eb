"""The meaning of NVIDIA's numbers: Xid and SXid codes, clock reasons, recovery actions, fabrics, severities."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from clusterproof.plugins.catalog.rows import CatalogError, build, document, table
from clusterproof.plugins.core.record import record

MASKS = 256  # cached masks
FILE = "xid.toml"
KINDS = ("application", "engine", "driver", "memory", "bus", "nvlink", "information", "unknown")
VERDICTS = (
    *("none", "concern", "fail", "repeat-concern", "repeat-fail"),
    *("by-remap", "by-severity", "by-text", "by-reset", "unless-no-reset"),
)


@record
class ClocksEventReason:
    """One bit of NVML's clocks event reasons; `verdict` is none, concern or fail; `counters` are fields in ns."""

    bit: int
    words: str
    verdict: str
    source: str
    counters: tuple[int, ...] = ()


@record
class RecoveryAction:
    """What must be done before a GPU can be used again; `log` has its wordings in Xid 154."""

    value: int
    words: str
    log: tuple[str, ...]
    remedy: str
    source: str


@record
class FabricState:
    """A state or status of a GPU's registration with its NVLink fabric."""

    value: int
    words: str
    source: str


@record
class FabricHealth:
    """One field of the fabric health mask, and the values that are faults."""

    shift: int
    width: int
    words: str
    faults: tuple[int, ...]
    source: str


@record
class FabricSummary:
    """The driver's own summary of a GPU's fabric; `verdict` is none, concern or fail."""

    value: int
    words: str
    verdict: str
    source: str


@cache
def _reasons() -> Mapping[str, ClocksEventReason]:
    return table(ClocksEventReason, "clocks_event_reasons.toml", "clocks_event_reason")


@cache
def _actions() -> Mapping[str, RecoveryAction]:
    return table(RecoveryAction, "recovery_actions.toml", "recovery_action")


@cache
def _states() -> Mapping[str, FabricState]:
    return table(FabricState, "fabric.toml", "fabric_state")


@cache
def fabric_statuses() -> Mapping[int, str]:
    """The meaning of a fabric's status by NVML's return code."""
    return {status.value: status.words for status in table(FabricState, "fabric.toml", "fabric_status").values()}


@cache
def _health() -> Mapping[str, FabricHealth]:
    return table(FabricHealth, "fabric.toml", "fabric_health")


@cache
def _summaries() -> Mapping[str, FabricSummary]:
    return table(FabricSummary, "fabric.toml", "fabric_summary")


@lru_cache(MASKS)
def clocks_event_reasons(mask: int) -> tuple[ClocksEventReason, ...]:
    """The known reasons in a mask."""
    return tuple(reason for reason in _reasons().values() if mask & reason.bit)


@lru_cache(MASKS)
def unknown_clocks_event_reasons(mask: int) -> int:
    """The bits of a mask that are not in the catalogue."""
    return mask & ~sum(reason.bit for reason in _reasons().values())


def recovery_action(value: int) -> RecoveryAction | None:
    """The recovery action by NVML's number, if it is known."""
    return next((action for action in _actions().values() if action.value == value), None)


def recovery_action_in_log(text: str) -> RecoveryAction | None:
    """The recovery action by the wording of an Xid 154 line (`GPU Reset Required`), if it is known."""
    small = text.lower()
    return next((action for action in _actions().values() if small in map(str.lower, action.log)), None)


def fabric_state(value: int) -> str:
    """A fabric state in words."""
    return next((state.words for state in _states().values() if state.value == value), f"unknown ({value})")


def fabric_summary(value: int) -> FabricSummary:
    """The meaning of the driver's summary of a fabric; an unknown number is a concern."""
    known = (summary for summary in _summaries().values() if summary.value == value)
    return next(known, FabricSummary(value, f"unknown ({value})", "concern", ""))


def fabric_faults(health_mask: int) -> tuple[str, ...]:
    """The faults in a fabric health mask, in words."""
    return tuple(
        field.words
        for field in _health().values()
        if (health_mask >> field.shift) & ((1 << field.width) - 1) in field.faults
    )


@record
class Severity:
    """How severe DCGM considers an error of its diagnostic."""

    value: int
    words: str
    remedy: str
    source: str


@cache
def severities() -> Mapping[int, Severity]:
    """Every row of dcgm_severities.toml by DCGM's number. Raises CatalogError."""
    return {row.value: row for row in table(Severity, "dcgm_severities.toml", "severity").values()}


def severity_in_words(value: int | None) -> str:
    """`isolate: take the GPU out of use, and replace the node`; empty if none was reported."""
    if value is None:
        return ""
    known = severities().get(value)
    return f"{known.words}: {known.remedy}" if known else f"severity {value}"


@record
class Xid:
    """One Xid code. `clears` are codes that it ends; `disagreement` says which sources differ."""

    code: int
    name: str
    kind: str
    verdict: str
    action: str
    source: str
    clears: tuple[int, ...] = ()
    disagreement: str = ""


@record
class _Row:
    name: str
    kind: str
    verdict: str
    action: str
    source: str
    clears: tuple[int, ...] = ()


@record
class LinkDown:
    """The remedy for the cause of a lost NVLink (Xid 149), and the verdict if the line is fatal."""

    look: str
    verdict: str
    source: str


@record
class SXids:
    """How SXids are evaluated; `fatal` are the codes that are fatal unless their line says otherwise.

    `thermal_end` ends `thermal_start` on its switch, and is no finding itself.
    """

    fatal: tuple[int, ...]
    thermal_start: int
    thermal_end: int
    fatal_action: str
    other_action: str
    source: str


@cache
def xids() -> Mapping[int, Xid]:
    """Every row of xid.toml by its code. Raises CatalogError."""
    disagreement = document(FILE)["disagreement"]
    unused = set(disagreement) - set(document(FILE)["xid"])
    if unused:
        raise CatalogError(f"{FILE}: disagreement {min(unused)}: there is no such row")
    return {int(code): _xid(code, row, disagreement) for code, row in table(_Row, FILE, "xid").items()}


def xid(code: int) -> Xid:
    """The row of an Xid; a code that is not in the catalogue is a concern."""
    return xids().get(code) or Xid(
        code=code,
        name="unknown Xid",
        kind="unknown",
        verdict="concern",
        action="look it up in NVIDIA's Xid catalogue",
        source="policy",
    )


def link_down(cause: int | None) -> LinkDown | None:
    """The row of a cause; None if there is none."""
    return None if cause is None else _link_downs().get(str(cause))


@cache
def _link_downs() -> Mapping[str, LinkDown]:
    return table(LinkDown, FILE, "link_down")


@cache
def sxids() -> SXids:
    """How SXids are evaluated. Raises CatalogError."""
    parsed = document(FILE)
    return build(SXids, parsed["sxid"], f"{FILE}: sxid", parsed["sources"])


def _xid(code: str, row: _Row, disagreement: Mapping[str, str]) -> Xid:
    if not code.isdecimal() or row.kind not in KINDS or row.verdict not in VERDICTS:
        raise CatalogError(
            f"{FILE}: xid {code}: {row.kind!r} and {row.verdict!r}; "
            f"expected one of {', '.join(KINDS)} and one of {', '.join(VERDICTS)}"
        )
    return Xid(
        code=int(code),
        name=row.name,
        kind=row.kind,
        verdict=row.verdict,
        action=row.action,
        source=row.source,
        clears=row.clears,
        disagreement=disagreement.get(code, ""),
    )
