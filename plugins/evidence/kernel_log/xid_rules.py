"""How the lines of one Xid on one GPU are evaluated: the rules that the catalogue names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from clusterproof.plugins.catalog.nvml_words import RecoveryAction, recovery_action_in_log
from clusterproof.plugins.evidence.kernel_log.facts import XidEvent

Severity: TypeAlias = Literal["none", "concern", "fail"]


def _recovery(lines: Sequence[XidEvent]) -> RecoveryAction | None:
    """The recovery action that the last line names, if it is known."""
    return recovery_action_in_log(lines[-1].recovery_action)


def _reset_due(lines: Sequence[XidEvent]) -> RecoveryAction | None:
    """The last recovery action that any of the lines says is due."""
    named = (recovery_action_in_log(line.recovery_action) for line in reversed(lines))
    return next((action for action in named if action and action.value), None)


def _by_severity(lines: Sequence[XidEvent]) -> Severity:
    words = {line.severity for line in lines}
    return "fail" if "fatal" in words else "concern" if "" in words else "none"


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
DUE: Mapping[str, Callable[[Sequence[XidEvent]], RecoveryAction | None]] = {  # what the lines ask for, by their rule
    "by-text": _recovery,
    "by-reset": _reset_due,
    "unless-no-reset": _reset_due,
}
