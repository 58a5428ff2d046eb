"""Rules for the lines of one Xid on one GPU: how often it happened, and the rules named in the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.catalog.nvidia import RecoveryAction, link_down, recovery_action_in_log
from clusterproof.plugins.core.typed import Literal, TypeAlias
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent

Severity: TypeAlias = Literal["none", "concern", "fail"]


def _recovery(lines: Sequence[XidEvent]) -> RecoveryAction | None:
    """The recovery action in the last line, if it is known."""
    return recovery_action_in_log(lines[-1].recovery_action)


def _reset_due(lines: Sequence[XidEvent]) -> RecoveryAction | None:
    """The last recovery action that any of the lines names as due."""
    named = (recovery_action_in_log(line.recovery_action) for line in reversed(lines))
    return next((action for action in named if action and action.value), None)


def _by_severity(lines: Sequence[XidEvent]) -> Severity:
    severities = {"" if line.severity == "fatal" and _is_ignored(line) else line.severity for line in lines}
    return "fail" if "fatal" in severities else "concern" if "" in severities else "none"


def _is_ignored(line: XidEvent) -> bool:
    """Whether it is the loss of an NVLink for which, according to NVIDIA, the GPU needs nothing."""
    row = link_down(line.link_down)
    return row is not None and row.verdict != "fail"


def where_to_look(lines: Sequence[XidEvent]) -> str:
    """Where to look for the loss of NVLinks, by the causes in the lines: link, cable, switch or host; or empty."""
    rows = (link_down(line.link_down) for line in lines)
    return "; ".join(dict.fromkeys(row.look for row in rows if row))


def _by_text(lines: Sequence[XidEvent]) -> Severity:
    action = _recovery(lines)
    return "concern" if action is None else "fail" if action.value else "none"


def _unless_no_reset(lines: Sequence[XidEvent]) -> Severity:
    return "concern" if all(line.needs_no_reset for line in lines) else "fail"


RULES: Mapping[str, Callable[[Sequence[XidEvent], bool, bool], Severity]] = {  # of lines, remap due, is repeated
    "none": lambda *_: "none",
    "concern": lambda *_: "concern",
    "fail": lambda *_: "fail",
    "repeat-concern": lambda _lines, _due, is_repeated: "concern" if is_repeated else "none",
    "repeat-fail": lambda _lines, _due, is_repeated: "fail" if is_repeated else "concern",
    "by-remap": lambda _lines, remap_due, _repeated: "fail" if remap_due else "concern",
    "by-severity": lambda lines, *_: _by_severity(lines),
    "by-text": lambda lines, *_: _by_text(lines),
    "by-reset": lambda lines, *_: "fail" if _reset_due(lines) else "none",
    "unless-no-reset": lambda lines, *_: _unless_no_reset(lines),
}
DUE: Mapping[str, Callable[[Sequence[XidEvent]], RecoveryAction | None]] = {  # what the lines ask for, by rule
    "by-text": _recovery,
    "by-reset": _reset_due,
    "unless-no-reset": _reset_due,
}


def occurrences(times: Sequence[float | None], catalog: Catalog, lines: Sequence[int] = ()) -> tuple[float | None, ...]:
    """When each occurrence began: lines at most three minutes apart are one burst, and one occurrence.

    One fault writes many lines: for every channel that it ended, for every rank that used the GPU. A burst that
    goes on for an hour begins a new occurrence, so that a fault without pauses counts as repeated. Lines without
    a time belong to the burst before them: nothing proves that they are another. `lines` is how many lines each time
    stands for: those that were left out before it are spread evenly over the gap.
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
    """Whether two or more occurrences of one code on one GPU began within 24 hours."""
    needed, window_s = int(catalog.threshold("xid.repeat_count")), catalog.threshold("xid.repeat_window_s")
    times = sorted(time for time in begun if time is not None)
    return any(end - start <= window_s for start, end in zip(times, times[needed - 1 :], strict=False))
