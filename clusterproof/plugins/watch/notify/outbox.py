"""An outbox: alerts wait here until the receiver has taken them, and it remembers what was delivered.

Every change is an entry that can be stored as JSON. Replaying the entries rebuilds the outbox, also in a later watch.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import ALSO, Change, ChangeKind, Key, RuleResult
from clusterproof.plugins.watch.notify import MAX_MESSAGE, REMINDER, Alert, Notification, incident_of
from clusterproof.plugins.watch.notify.waiting import Incidents, Waiting

Entry: TypeAlias = dict[str, Any]
WRONG = (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
_CLOSED, _FLAPPING, _WORSE = ChangeKind.CLOSED.value, ChangeKind.FLAPPING.value, ChangeKind.WORSE.value
_STAYS_OPEN = frozenset({ChangeKind.OPENED.value, _WORSE, REMINDER})


class Outbox:
    """The outbox of one receiver. It reads no clock and no file."""

    def __init__(self, cluster: str, receiver: str = "") -> None:
        """`receiver` identifies whose it is; unknown for an outbox stored by an older version."""
        self._cluster, self.receiver = cluster, receiver
        self._name = secrets.token_hex(6)  # prefix of its notifications' ids
        self._next = 1
        self._frozen: dict[str, Notification] = {}  # notifications that were tried, by id
        self._delivered: dict[Key, Alert] = {}  # what is open for the receiver, as last delivered
        self._incidents = Incidents()  # the incidents under which open findings were sent
        self._waiting = Waiting(self._incidents)
        self._unnamed: dict[Key, Alert] = {}  # delivered, perhaps by a version without incidents
        self.dropped = 0

    @property
    def open(self) -> Collection[Key]:
        """The findings that are open for the receiver."""
        return self._delivered.keys()

    @property
    def delivered(self) -> Iterator[Change]:
        """The same as changes, each from when its finding was opened."""
        for alert in self._delivered.values():
            kind = ChangeKind.FLAPPING if alert.kind == _FLAPPING else ChangeKind.OPENED
            findings = alert.message.count(ALSO) + 1
            yield Change(kind, alert.key, alert.verdict, alert.message, alert.since_s, findings)

    @property
    def count(self) -> int:
        """The number of waiting alerts."""
        return sum(1 for _ in self._all())

    def taking(self, changes: Iterable[Change], wall_s: float, since_s: Mapping[Key, float] = {}) -> Iterator[Entry]:
        """The entries that add changes, except those that repeat what was delivered.

        `since_s`: when findings were opened, where not now and not stored.
        """
        delivered, number = self._delivered.copy(), self._next
        for change in changes:
            last = delivered.get(change.key)
            is_known = last is not None and last.kind in _STAYS_OPEN and last.message == Alert.of(0, change, 0).message
            if (change.kind is ChangeKind.CLOSED and not last) or (change.kind is ChangeKind.OPENED and is_known):
                continue
            opened_s = last.opened_s if last else None
            if opened_s is None:
                opened_s = since_s.get(change.key, last.since_s if last else None)
            alert = Alert.of(number, change, wall_s, opened_s)
            _keep(delivered, alert)
            yield {"add": alert.to_data()}
            number += 1

    def catching_up(
        self,
        nodes: Collection[str],
        now: Mapping[Key, RuleResult],
        wall_s: float,
        since_s: Mapping[Key, float],
    ) -> Iterator[Entry]:
        """The entries that tell the receiver what is open on nodes now, when a watch is resumed."""
        delivered = {key: alert for key, alert in self._delivered.items() if key.node in nodes}
        found_s = {
            key: min(alert.time_s, since_s.get(key, alert.time_s))
            for key, alert in delivered.items()
            if alert.opened_s is None
        }
        for key, opened_s in found_s.items():
            yield {"delivered": replace(delivered[key], opened_s=round(opened_s, 3)).to_data()}
        over = [
            Change(ChangeKind.CLOSED, key, alert.verdict, alert.message, 0.0)
            for key, alert in delivered.items()
            if key not in now
        ]
        new = [
            Change(ChangeKind.OPENED, key, seen.verdict, seen.message, 0.0)
            for key, seen in now.items()
            if key not in delivered
        ]
        worse = [
            Change(ChangeKind.WORSE, key, seen.verdict, seen.message, 0.0)
            for key, seen in now.items()
            if key in delivered and _differs(seen, delivered[key])
        ]
        yield from self.taking([*over, *worse, *new], wall_s, {**since_s, **found_s})

    def reminding(
        self, after_s: float, wall_s: float, now: Mapping[Key, RuleResult], nodes: Collection[str] | None = None
    ) -> Iterator[Entry]:
        """The entries for reminders of what has been open long enough; one finding's reminder includes its incident.

        `now`: all open states; a flapping one may be closed for the moment, unless its node is not among the watched
        `nodes`. A delivery time in the future also counts as due: the clock was set back.
        """
        busy = {alert.key for alert in self._all()}
        still = [
            alert
            for alert in self._delivered.values()
            if alert.key not in busy
            and (alert.key in now or (alert.kind == _FLAPPING and (nodes is None or alert.key.node in nodes)))
        ]
        due = {self._together(alert) for alert in still if not 0 <= wall_s - alert.time_s < after_s}
        again = (alert for alert in still if self._together(alert) in due)
        for number, reminded in enumerate(again, start=self._next):
            again_of = replace(_as_of(reminded, now), number=number, kind=REMINDER, opened_s=reminded.since_s)
            yield {"add": replace(again_of, time_s=round(wall_s, 3)).to_data()}

    def of_others(self, nodes: Collection[str]) -> list[str]:
        """Other nodes than these with findings that are open for the receiver."""
        return sorted({key.node for key in self._delivered if key.node not in nodes})

    def _together(self, alert: Alert) -> object:
        """A key that is equal for alerts that are reminded together."""
        return self._incidents.get(alert.key) or (alert.key.rule, alert.verdict)

    def groups(self) -> Iterator[Sequence[Alert]]:
        """Untried alerts that may be sent next, by cause and incident; of each finding the oldest."""
        return self._waiting.groups()

    def freezing(self, alerts: Sequence[Alert]) -> Entry:
        """The entry that makes a notification of alerts, before it is first sent."""
        of = [alert.number for alert in alerts]
        return {"freeze": f"{self._name}-{of[0]}", "of": of, "incident": self._incident(alerts)}

    def _incident(self, alerts: Sequence[Alert]) -> str:
        """The incident by which the receiver knows them; it is closed with its last finding."""
        known, closed = self._incidents.get(alerts[0].key), {alert.key for alert in alerts if alert.kind == _CLOSED}
        if known and (not closed or self._incidents.is_closed_by(known, closed)):
            return known
        return incident_of(self._cluster, alerts)

    def notification(self, name: str) -> Notification:
        """A notification that was frozen."""
        return self._frozen[name]

    @property
    def frozen(self) -> Collection[str]:
        """The ids of notifications that were tried but not taken."""
        return self._frozen.keys()

    def apply(self, entry: Entry) -> None:
        """Apply an entry. Raises one of WRONG if it is invalid, or does not fit the earlier ones."""
        if "add" in entry or "freeze" in entry:
            self.infer_incidents()
        if "outbox" in entry:
            self._name, self._next = str(entry["name"])[:40], max(self._next, int(entry["next"]))
            self.receiver = str(entry.get("receiver", ""))[:80] or self.receiver
        elif "add" in entry:
            self._add(Alert.from_data(entry["add"]))
        elif "delivered" in entry:
            alert = Alert.from_data(entry["delivered"])
            self._delivered[alert.key] = self._unnamed[alert.key] = alert
        elif "freeze" in entry:
            self._freeze(str(entry["freeze"]), entry["of"], str(entry.get("incident", ""))[:80])
        elif "incident" in entry:
            for key in [Key(*map(str, names)) for names in entry["of"]]:
                self._incidents.set(key, str(entry["incident"])[:80])
        else:
            self._waiting.delivered(alert.key for alert in self._frozen.pop(entry["sent"]).alerts)

    def entries(self) -> Iterator[Entry]:
        """The minimal entries that rebuild this outbox."""
        yield {"outbox": 1, "name": self._name, "next": self._next, "receiver": self.receiver}
        for alert in sorted(self._all(), key=lambda alert: alert.number):
            yield {"add": alert.to_data()}
        for name, notification in self._frozen.items():
            yield {
                "freeze": name,
                "of": [alert.number for alert in notification.alerts],
                "incident": notification.incident,
            }
        for alert in self._delivered.values():
            yield {"delivered": alert.to_data()}
        for incident, keys in self._incidents:
            yield {"incident": incident, "of": [[key.node, key.device, key.rule] for key in keys]}

    def infer_incidents(self) -> None:
        """Infer incidents of what an older version delivered without them; waiting alerts have none yet."""
        if self._unnamed:
            busy = {alert.key for alert in self._all()}
            self._incidents.infer(self._cluster, (unnamed for key, unnamed in self._unnamed.items() if key not in busy))
            self._unnamed.clear()

    def _all(self) -> Iterator[Alert]:
        yield from self._waiting
        for notification in self._frozen.values():
            yield from notification.alerts

    def _freeze(self, name: str, numbers: Sequence[int], incident: str) -> None:
        alerts = self._waiting.take(numbers)
        self._frozen[name] = Notification(name, self._cluster, alerts, incident or incident_of(self._cluster, alerts))
        for alert in alerts:
            if alert.kind == _CLOSED:
                self._incidents.forget(alert.key)
            elif alert.kind != ChangeKind.HAPPENED.value and not self._incidents.get(alert.key):
                self._incidents.set(alert.key, self._frozen[name].incident)

    def _add(self, alert: Alert) -> None:
        before = self._delivered.get(alert.key)
        if alert.opened_s is None and before:
            alert = replace(alert, opened_s=before.opened_s)
        self._next = max(self._next, alert.number + 1)
        dropped = self._waiting.add(alert)
        self.dropped += len(dropped)
        _keep(self._delivered, alert)
        for lost in dropped:
            self._drop(lost)

    def _drop(self, lost: Alert) -> None:
        """Keep what is open for the receiver as it was last sent, if nothing else tells it: for the next watch."""
        if self._waiting.has(lost.key):
            return
        was_sent = self._incidents.get(lost.key) is not None
        if was_sent and lost.kind == _CLOSED:
            self._delivered[lost.key] = replace(lost, kind=ChangeKind.OPENED.value)
        elif was_sent and lost.kind == _WORSE:  # than at most this
            message, _, _ = lost.message.partition(ALSO)
            self._delivered[lost.key] = replace(self._delivered[lost.key], verdict=Verdict.CONCERN, message=message)
        elif not was_sent:
            self._delivered.pop(lost.key, None)


def _keep(delivered: dict[Key, Alert], alert: Alert) -> None:
    """Record what is open after an alert was taken."""
    before = delivered.get(alert.key)
    if alert.kind == _CLOSED:
        delivered.pop(alert.key, None)
    elif alert.kind == REMINDER and before:
        delivered[alert.key] = replace(before, time_s=alert.time_s)
    elif alert.kind == _WORSE and before and before.kind == _FLAPPING:
        delivered[alert.key] = replace(alert, kind=_FLAPPING)
    elif alert.kind != ChangeKind.HAPPENED.value:
        delivered[alert.key] = alert


def _differs(seen: RuleResult, alert: Alert) -> bool:
    """Whether a state has another verdict than was delivered, or names more findings."""
    names_more = printable(seen.message, MAX_MESSAGE).count(ALSO) > alert.message.count(ALSO)
    return seen.verdict is not alert.verdict or names_more


def _as_of(alert: Alert, now: Mapping[Key, RuleResult]) -> Alert:
    """An open or flapping state, with its current verdict and message."""
    seen = now.get(alert.key)
    verdict, message = (seen.verdict, seen.message) if seen else (alert.verdict, alert.message)
    begin = "flapping: " if alert.kind == _FLAPPING else ""
    return replace(alert, verdict=verdict, message=printable(begin + message, MAX_MESSAGE))
