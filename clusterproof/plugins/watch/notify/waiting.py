"""Alerts that were not tried yet, which of them may be sent next, and the incident of each open finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice

from clusterproof.plugins.watch import Key
from clusterproof.plugins.watch.notify import Alert, incident_of, only_first

GATHERED_S = 2.0  # the window in which versions without incidents gathered alerts to send together


class Incidents:
    """The incidents of one outbox."""

    def __init__(self) -> None:
        self._of: dict[Key, str] = {}
        self._keys: dict[str, set[Key]] = {}

    def get(self, key: Key) -> str | None:
        """The incident of a finding; None if it was not sent yet."""
        return self._of.get(key)

    def set(self, key: Key, incident: str) -> None:
        """Set a finding's incident."""
        self.forget(key)
        self._of[key] = incident
        self._keys.setdefault(incident, set()).add(key)

    def forget(self, key: Key) -> None:
        """Forget a finding that is over."""
        incident = self._of.pop(key, None)
        if incident is not None:
            self._keys[incident].discard(key)
            if not self._keys[incident]:
                del self._keys[incident]

    def is_closed_by(self, incident: str, closed: Collection[Key]) -> bool:
        """Whether an incident has no other open findings once these are closed."""
        return self._keys.get(incident, set()) <= set(closed)

    def infer(self, cluster: str, alerts: Iterable[Alert]) -> None:
        """Infer incidents of alerts that were sent without them, as they would be assigned now."""
        unnamed = [alert for alert in alerts if alert.key not in self._of]
        for together in _gathered(unnamed):
            incident = incident_of(cluster, together)
            for alert in together:
                self.set(alert.key, incident)

    def __iter__(self) -> Iterator[tuple[str, list[Key]]]:
        """Each incident with its findings, in a stable order."""
        for incident, keys in sorted(self._keys.items()):
            yield incident, sorted(keys, key=lambda key: (key.node, key.device, key.rule))


def _gathered(alerts: Iterable[Alert]) -> Iterator[list[Alert]]:
    """Alerts with one cause, within the window after the first of them."""
    for _, of_cause in groupby(
        sorted(alerts, key=lambda alert: (alert.cause, alert.time_s)), key=lambda alert: alert.cause
    ):
        together: list[Alert] = []
        for alert in of_cause:
            if together and alert.time_s - together[0].time_s > GATHERED_S:
                yield together
                together = []
            together.append(alert)
        yield together


MAX_WAITING = 20_000  # alerts; above this, the oldest are dropped and reported


class Waiting:
    """The waiting alerts of one outbox. Groups are cached: thousands may be sent one after the other."""

    def __init__(self, incidents: Incidents) -> None:
        self._incidents = incidents
        self._alerts: dict[int, Alert] = {}  # by number, in order
        self._counts: Counter[Key] = Counter()  # of them
        self._tried: set[Key] = set()  # findings with an alert that was tried but not taken
        self._groups: dict[tuple[object, ...], list[Alert]] | None = None

    def __iter__(self) -> Iterator[Alert]:
        return iter(self._alerts.values())

    def add(self, alert: Alert) -> list[Alert]:
        """Add one; returns those that were dropped to make room."""
        self._alerts[alert.number] = alert
        self._counts[alert.key] += 1
        oldest = list(islice(self._alerts.values(), max(0, len(self._alerts) - MAX_WAITING)))
        for dropped in oldest:
            self._pop(dropped.number)
        self._groups = None
        return oldest

    def has(self, key: Key) -> bool:
        """Whether an alert of this finding waits."""
        return key in self._counts

    def take(self, numbers: Sequence[int]) -> tuple[Alert, ...]:
        """Remove those with these numbers, which are now being tried. Raises LookupError for unknown numbers."""
        alerts = tuple(self._alerts[number] for number in dict.fromkeys(numbers))
        first = alerts[0]
        if self._groups and self._groups.pop(self._group_of(first), None) != [*alerts]:
            self._groups = None
        for alert in alerts:
            self._pop(alert.number)
            self._tried.add(alert.key)
        return alerts

    def delivered(self, keys: Iterable[Key]) -> None:
        """Alerts of these findings were taken: their other alerts may be sent."""
        for key in keys:
            self._tried.discard(key)
            if key in self._counts:
                self._groups = None

    def groups(self) -> Iterator[Sequence[Alert]]:
        """Alerts by cause and incident, each the oldest of its finding; none for findings with a tried alert."""
        if self._groups is None:
            self._groups = {}
            for alert in only_first(list(self), self._tried.copy()):
                self._groups.setdefault(self._group_of(alert), []).append(alert)
        yield from self._groups.values()

    def _group_of(self, alert: Alert) -> tuple[object, ...]:
        return alert.cause, self._incidents.get(alert.key)

    def _pop(self, number: int) -> None:
        alert = self._alerts.pop(number)
        self._counts[alert.key] -= 1
        if not self._counts[alert.key]:
            del self._counts[alert.key]
