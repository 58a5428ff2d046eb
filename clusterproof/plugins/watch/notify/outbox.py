"""What is still to be delivered, and what was: alerts wait here until the receiver has taken them.

Every step is an entry, which JSON can hold. The same entries make the same outbox again, in another watch too.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.watch import Change, ChangeKind, Key, RuleResult
from clusterproof.plugins.watch.notify import MAX_MESSAGE, REMINDER, Alert, Notification, incident_of, only_first

MAX_WAITING = 20_000  # alerts; of more the oldest that were never tried are dropped, which is said
Entry: TypeAlias = dict[str, Any]
WRONG = (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
_CLOSED, _FLAPPING, _WORSE = ChangeKind.CLOSED.value, ChangeKind.FLAPPING.value, ChangeKind.WORSE.value
_STAYS_OPEN = frozenset({ChangeKind.OPENED.value, _WORSE, REMINDER})


class Outbox:
    """Of one receiver. It reads no clock and no file."""

    def __init__(self, cluster: str, receiver: str = "") -> None:
        """`receiver`: whose it is; of an outbox that was kept before outboxes had that, nothing is known."""
        self._cluster, self.receiver = cluster, receiver
        self._name = secrets.token_hex(6)  # of this outbox: its notifications' ids begin with it
        self._next = 1
        self._waiting: dict[int, Alert] = {}  # by number, and in that order
        self._frozen: dict[str, Notification] = {}  # that were tried, by id
        self._delivered: dict[Key, Alert] = {}  # what is open, as it was last taken
        self._incidents: dict[Key, str] = {}  # under which what is open was sent
        self.dropped = 0

    @property
    def open(self) -> Collection[Key]:
        """The findings that are open for the receiver."""
        return self._delivered.keys()

    @property
    def count(self) -> int:
        """How many alerts wait."""
        return sum(1 for _ in self._all())

    def taking(self, changes: Iterable[Change], wall_s: float, since_s: Mapping[Key, float] = {}) -> Iterator[Entry]:
        """The entries that add changes, but for those that repeat what was taken already.

        `since_s`: when findings of which the receiver knows nothing were opened, where not now.
        """
        delivered, number = self._delivered.copy(), self._next
        for change in changes:
            last = delivered.get(change.key)
            is_known = last is not None and last.kind in _STAYS_OPEN and last.message == Alert.of(0, change, 0).message
            if (change.kind is ChangeKind.CLOSED and not last) or (change.kind is ChangeKind.OPENED and is_known):
                continue
            alert = Alert.of(number, change, wall_s, last.since_s if last else since_s.get(change.key))
            _keep(delivered, alert)
            yield {"add": alert.to_data()}
            number += 1

    def catching_up(
        self,
        nodes: Collection[str],
        now: Mapping[Key, RuleResult],
        wall_s: float,
        since_s: Mapping[Key, float] = {},
    ) -> Iterator[Entry]:
        """The entries by which the receiver learns what is open of nodes now, where a watch goes on."""
        delivered = {key: one for key, one in self._delivered.items() if key.node in nodes}
        over = [
            Change(ChangeKind.CLOSED, key, one.verdict, one.message, 0.0)
            for key, one in delivered.items()
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
            if key in delivered and delivered[key].verdict is not seen.verdict
        ]
        yield from self.taking([*over, *worse, *new], wall_s, since_s)

    def reminding(self, after_s: float, wall_s: float, now: Mapping[Key, RuleResult]) -> Iterator[Entry]:
        """The entries that remind of what has stayed open so long, as it is now; with one finding all of its incident.

        `now`: all that is open; what flaps may be closed for the moment. What was told at a time that is still to come
        is due as well: the clock was set back.
        """
        busy = {alert.key for alert in self._all()}
        still = [
            one for one in self._delivered.values() if one.key not in busy and (one.key in now or one.kind == _FLAPPING)
        ]
        due = {self._together(one) for one in still if not 0 <= wall_s - one.time_s < after_s}
        again = (one for one in still if self._together(one) in due)
        for number, one in enumerate(again, start=self._next):
            yield {"add": replace(_as_of(one, now), number=number, kind=REMINDER, time_s=round(wall_s, 3)).to_data()}

    def _together(self, alert: Alert) -> object:
        """Alike for what is told again together."""
        return self._incidents.get(alert.key) or (alert.key.rule, alert.verdict)

    def groups(self) -> Iterator[Sequence[Alert]]:
        """What may be sent next and was not tried yet: alerts of a cause and an incident, each its finding's oldest."""
        taken = {alert.key for one in self._frozen.values() for alert in one.alerts}
        alike: dict[tuple[object, ...], list[Alert]] = {}
        for alert in only_first(list(self._waiting.values()), taken):
            alike.setdefault((alert.cause, self._incidents.get(alert.key)), []).append(alert)
        yield from alike.values()

    def freezing(self, alerts: Sequence[Alert]) -> Entry:
        """The entry that makes a notification of alerts, before it is first sent."""
        of = [one.number for one in alerts]
        return {"freeze": f"{self._name}-{of[0]}", "of": of, "incident": self._incident(alerts)}

    def _incident(self, alerts: Sequence[Alert]) -> str:
        """The one under which the receiver knows them; it is closed with the last finding of it, and not before."""
        known, closed = self._incidents.get(alerts[0].key), {one.key for one in alerts if one.kind == _CLOSED}
        if known and not (closed and any(one == known for key, one in self._incidents.items() if key not in closed)):
            return known
        return incident_of(self._cluster, alerts)

    def notification(self, name: str) -> Notification:
        """One that was frozen."""
        return self._frozen[name]

    @property
    def frozen(self) -> Collection[str]:
        """The ids of the notifications that were tried, and not taken."""
        return self._frozen.keys()

    def apply(self, entry: Entry) -> None:
        """Take an entry. Raises one of WRONG where it is none, or does not fit what came before."""
        if "outbox" in entry:
            self._name, self._next = str(entry["name"])[:40], max(self._next, int(entry["next"]))
            self.receiver = str(entry.get("receiver", ""))[:80] or self.receiver
        elif "add" in entry:
            self._add(Alert.from_data(entry["add"]))
        elif "delivered" in entry:
            alert = Alert.from_data(entry["delivered"])
            self._delivered[alert.key] = alert
        elif "freeze" in entry:
            self._freeze(str(entry["freeze"]), entry["of"], str(entry.get("incident", ""))[:80])
        elif "incident" in entry:
            keys = [Key(*map(str, names)) for names in entry["of"]]
            self._incidents.update(dict.fromkeys(keys, str(entry["incident"])[:80]))
        else:
            del self._frozen[entry["sent"]]

    def entries(self) -> Iterator[Entry]:
        """The fewest that make this outbox again."""
        yield {"outbox": 1, "name": self._name, "next": self._next, "receiver": self.receiver}
        for alert in sorted(self._all(), key=lambda one: one.number):
            yield {"add": alert.to_data()}
        for name, one in self._frozen.items():
            yield {"freeze": name, "of": [alert.number for alert in one.alerts], "incident": one.incident}
        for alert in self._delivered.values():
            yield {"delivered": alert.to_data()}
        of_incident: dict[str, list[list[str]]] = {}
        for key, incident in sorted(self._incidents.items(), key=lambda one: (one[1], *_names(one[0]))):
            of_incident.setdefault(incident, []).append(_names(key))
        for incident, keys in of_incident.items():
            yield {"incident": incident, "of": keys}

    def _all(self) -> Iterator[Alert]:
        yield from self._waiting.values()
        for one in self._frozen.values():
            yield from one.alerts

    def _freeze(self, name: str, numbers: Sequence[int], incident: str) -> None:
        alerts = tuple(self._waiting.pop(number) for number in numbers)
        self._frozen[name] = Notification(name, self._cluster, alerts, incident or incident_of(self._cluster, alerts))
        for alert in alerts:
            if alert.kind == _CLOSED:
                self._incidents.pop(alert.key, None)
            elif alert.kind != ChangeKind.HAPPENED.value:
                self._incidents.setdefault(alert.key, self._frozen[name].incident)

    def _add(self, alert: Alert) -> None:
        self._next = max(self._next, alert.number + 1)
        self._waiting[alert.number] = alert
        _keep(self._delivered, alert)
        for number in list(self._waiting)[: max(0, len(self._waiting) - MAX_WAITING)]:
            del self._waiting[number]
            self.dropped += 1


def _keep(delivered: dict[Key, Alert], alert: Alert) -> None:
    """What is open once an alert was taken."""
    before = delivered.get(alert.key)
    if alert.kind == _CLOSED:
        delivered.pop(alert.key, None)
    elif alert.kind == REMINDER and before:
        delivered[alert.key] = replace(before, time_s=alert.time_s)
    elif alert.kind == _WORSE and before and before.kind == _FLAPPING:
        delivered[alert.key] = replace(alert, kind=_FLAPPING)
    elif alert.kind != ChangeKind.HAPPENED.value:
        delivered[alert.key] = alert


def _as_of(alert: Alert, now: Mapping[Key, RuleResult]) -> Alert:
    """What is open, or flaps, by its verdict and words of now."""
    seen = now.get(alert.key)
    verdict, message = (seen.verdict, seen.message) if seen else (alert.verdict, alert.message)
    begin = "flapping: " if alert.kind == _FLAPPING else ""
    return replace(alert, verdict=verdict, message=printable(begin + message, MAX_MESSAGE))


def _names(key: Key) -> list[str]:
    return [key.node, key.device, key.rule]
