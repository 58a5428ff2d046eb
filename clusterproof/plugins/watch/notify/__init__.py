"""Notifications of changes: a persistent outbox for each receiver, and heartbeats.

This module: alerts, one for each change of a finding; a notification groups those with one cause.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key

VERSION = 1
MAX_DEVICES = 64  # named in `devices`
MAX_MESSAGE = 1_000  # characters
REMINDER = "reminder"  # for something that is still open
KINDS = frozenset({*(kind.value for kind in ChangeKind), REMINDER})
_FIRST = frozenset(kind.value for kind in (ChangeKind.OPENED, ChangeKind.HAPPENED, ChangeKind.FLAPPING))


@dataclass(frozen=True, slots=True)
class Alert:
    """A change to be sent; an outbox numbers it once."""

    number: int
    kind: str
    key: Key
    verdict: Verdict
    message: str
    time_s: float  # since 1970
    opened_s: float | None  # when the finding was opened; None if an older version did not store it

    @classmethod
    def of(cls, number: int, change: Change, wall_s: float, since_s: float | None = None) -> Alert:
        """An alert for a change now; with the time when its finding was opened, if earlier."""
        message, now_s = printable(change.message, MAX_MESSAGE), round(wall_s, 3)
        opened_s = now_s if since_s is None else round(since_s, 3)
        return cls(number, change.kind.value, change.key, change.verdict, message, now_s, opened_s)

    @property
    def since_s(self) -> float:
        """When its finding was opened, if known."""
        return self.time_s if self.opened_s is None else self.opened_s

    @property
    def cause(self) -> tuple[str, str, Verdict]:
        """Alerts with the same cause are sent together."""
        return self.kind, self.key.rule, self.verdict

    def to_data(self) -> dict[str, Any]:
        """Its form in an outbox."""
        return {
            "number": self.number,
            "time": self.time_s,
            **({} if self.opened_s is None else {"since": self.opened_s}),
            "kind": self.kind,
            "node": self.key.node,
            "device": self.key.device,
            "rule": self.key.rule,
            "verdict": self.verdict.value,
            "message": self.message,
        }

    @classmethod
    def from_data(cls, record: Any) -> Alert:
        """Raises ArithmeticError, ValueError, TypeError or LookupError for invalid data."""
        names = [record[key] for key in ("node", "device", "rule", "message", "kind")]
        if not all(isinstance(name, str) for name in names) or type(record["number"]) is not int:
            raise TypeError("no alert")
        node, device, rule, message, kind = (printable(name, 2 * MAX_MESSAGE) for name in names)
        if kind not in KINDS:
            raise ValueError("no kind")
        verdict, time_s = Verdict(record["verdict"]), float(record["time"])
        known_s = record.get("since", time_s if kind in _FIRST else None)
        opened_s = None if known_s is None else float(known_s)
        return cls(record["number"], kind, Key(node, device, rule), verdict, message, time_s, opened_s)


@dataclass(frozen=True, slots=True)
class Notification:
    """Alerts with one cause. Its id and content stay the same however often it is sent.

    `incident` stays the same while one finding, or several opened together, are opened, changed and closed.
    """

    id: str
    cluster: str
    alerts: tuple[Alert, ...]
    incident: str

    @property
    def nodes(self) -> str:
        """Its nodes as a nodeset."""
        return fold({alert.key.node for alert in self.alerts})

    @property
    def devices(self) -> list[str]:
        """`gpu003 GPU 1`, in order of arrival."""
        return list(dict.fromkeys(f"{alert.key.node} {alert.key.device}" for alert in self.alerts if alert.key.device))

    def to_json(self) -> str:
        """A JSON object on one line."""
        first = self.alerts[0]
        keys = dict.fromkeys(alert.key for alert in self.alerts)
        record = {
            "version": VERSION,
            "id": self.id,
            "incident": self.incident,
            "cluster": self.cluster,
            "time": first.time_s,
            "since": first.since_s,
            "kind": first.kind,
            "check": first.key.rule,
            "verdict": first.verdict.value,
            "nodes": self.nodes,
            "node_count": len({key.node for key in keys}),
            "devices": self.devices[:MAX_DEVICES],
            "change_count": len(self.alerts),
            "message": first.message,
            "findings": [{"id": finding_id(self.cluster, key), "node": key.node, "device": key.device} for key in keys],
        }
        return json.dumps(record) + "\n"


def finding_id(cluster: str, key: Key) -> str:
    """The id of a check's finding on a device of a node: the same in every watch of that cluster."""
    return _digest(cluster, key.rule, key.node, key.device)


def incident_of(cluster: str, alerts: Iterable[Alert]) -> str:
    """For one finding its id; for several, one id for all."""
    ids = sorted({finding_id(cluster, alert.key) for alert in alerts})
    return ids[0] if len(ids) == 1 else _digest(*ids)


def only_first(alerts: Sequence[Alert], taken: set[Key]) -> list[Alert]:
    """The first alert of each finding, except the findings `taken`: later alerts have to wait."""
    free = []
    for alert in alerts:
        if alert.key not in taken:
            taken.add(alert.key)
            free.append(alert)
    return free


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
