"""Notifications of changes to a program: changes alike on many nodes are one, so that a storm is not a thousand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.printable import printable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch.states import Change, Kind

VERSION = 1
MAX_WAITING = 256  # notifications; of more the oldest are dropped
MAX_DEVICES = 64  # that one names
MAX_MESSAGE = 1_000  # characters


@dataclass(eq=False)
class Notification:
    """Changes of one kind, by one check, with one verdict."""

    kind: Kind
    rule: str
    verdict: Verdict
    message: str  # of the first
    began_s: float  # since 1970
    nodes: set[str] = field(default_factory=set)
    devices: dict[str, None] = field(default_factory=dict)  # `gpu003 GPU 1`, as they came
    changes: int = 0

    def takes(self, change: Change) -> bool:
        """Whether a change is of the same."""
        return (self.kind, self.rule, self.verdict) == (change.kind, change.key.rule, change.verdict)

    def add(self, change: Change) -> None:
        """Include this one too."""
        self.changes += 1
        self.nodes.add(change.key.node)
        if change.key.device and len(self.devices) < MAX_DEVICES:
            self.devices[f"{change.key.node} {change.key.device}"] = None

    def to_json(self, cluster: str) -> str:
        """One object, on a line."""
        data = {
            "version": VERSION,
            "cluster": cluster,
            "time": round(self.began_s, 3),
            "kind": self.kind.value,
            "check": self.rule,
            "verdict": self.verdict.value,
            "nodes": fold(self.nodes),
            "node_count": len(self.nodes),
            "devices": list(self.devices),
            "change_count": self.changes,
            "message": self.message,
        }
        return json.dumps(data) + "\n"


class Waiting:
    """Notifications that are still to be sent, in the order in which they began."""

    def __init__(self) -> None:
        self._all: list[Notification] = []
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, changes: Iterable[Change], wall_s: float) -> None:
        """Add these too: to what waits already, unless something else of the same check came in between."""
        for change in changes:
            of_rule = [one for one in self._all if one.rule == change.key.rule]
            last = next((one for one in reversed(of_rule) if one.takes(change)), None)
            if last is None or any(change.key.node in one.nodes for one in of_rule[of_rule.index(last) + 1 :]):
                message = printable(change.message, MAX_MESSAGE)
                last = Notification(change.kind, change.key.rule, change.verdict, message, wall_s)
                self._all.append(last)
            last.add(change)
        self.dropped += max(0, len(self._all) - MAX_WAITING)
        del self._all[:-MAX_WAITING]

    def take(self) -> Notification | None:
        """The first."""
        return self._all.pop(0) if self._all else None

    def clear(self) -> int:
        """Drop all of them; how many there were."""
        count = len(self._all)
        self._all.clear()
        return count
