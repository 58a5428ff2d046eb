"""`clusterproof watch`: evaluates the same checks again whenever a node reports something they depend on.

This module: what rules find on nodes, and the changes of it that are reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Verdict

TOO_MANY = "watch.findings"  # the rule that reports too many, which always has room
ALSO = "; also "  # separates the things that one message names


class ChangeKind(str, Enum):
    """What happened to a state."""

    OPENED = "opened"
    HAPPENED = "happened"  # an event, over at once
    WORSE = "worse"  # now a failure
    CLOSED = "closed"
    FLAPPING = "flapping"


@record
class Key:
    """The identity of a state: node, device if any, and rule: a check's id if it is a check's verdict."""

    node: str
    device: str
    rule: str


@record
class RuleResult:
    """What a rule finds on a device now; `findings` counts the things that the message names."""

    verdict: Verdict
    message: str
    findings: int = 1


@record
class Change:
    """A line to print, with a time in seconds of the watcher's clock; `findings` as in RuleResult."""

    kind: ChangeKind
    key: Key
    verdict: Verdict
    message: str
    time_s: float
    findings: int = 1


RuleResults = Mapping[tuple[str, str], RuleResult]  # by device and rule
Unknown = frozenset[tuple[str, str]]  # devices, and the rules that could not be evaluated for them
