"""Alerts that were not sent yet, which may be next, and the incidents of open findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice

from clusterproof.plugins.watch import Key
from clusterproof.plugins.watch.notify import Alert, incident_of, only_first

GATHERED_S = 2.0  # in which the version before, which kept no incidents, gathered what it sent together


class Incidents:
    """The open incidents of one outbox."""

    def __init__(self) -> None:
        self._of: dict[Key, str] = {}
        self._keys: dict[str, set[Key]] = {}

    def get(self, key: Key) -> str | None:
        """The one of a finding; None where it was not sent yet."""
        return self._of.get(key)

    def set(self, key: Key, incident: str) -> None:
        """From now on it is that one."""
        self.forget(key)
        self._of[key] = incident
        self._keys.setdefault(incident, set()).add(key)

    def forget(self, key: Key) -> None:
        """The finding is over."""
        incident = self._of.pop(key, None)
        if incident is not None:
            self._keys[incident].discard(key)
            if not self._keys[incident]:
                del self._keys[incident]

    def ends_with(self, incident: str, closed: Collection[Key]) -> bool:
        """Whether nothing of an incident stays open once these are closed."""
        return self._keys.get(incident, set()) <= set(closed)

    def infer(self, cluster: str, alerts: Iterable[Alert]) -> None:
        """Of what was sent without one being kept: as it was then made of the alerts that were sent together."""
        unnamed = [alert for alert in alerts if alert.key not in self._of]
        for together in _gathered(unnamed):
            incident = incident_of(cluster, together)
            for alert in together:
                self.set(alert.key, incident)

    def __iter__(self) -> Iterator[tuple[str, list[Key]]]:
        """Each with its findings, in an order that is always the same."""
        for incident, keys in sorted(self._keys.items()):
            yield incident, sorted(keys, key=lambda key: (key.node, key.device, key.rule))


def _gathered(alerts: Iterable[Alert]) -> Iterator[list[Alert]]:
    """Alerts of one cause, up to so long after the first of them."""
    for _, alike in groupby(
        sorted(alerts, key=lambda alert: (alert.cause, alert.time_s)), key=lambda alert: alert.cause
    ):
        together: list[Alert] = []
        for alert in alike:
            if together and alert.time_s - together[0].time_s > GATHERED_S:
                yield together
                together = []
            together.append(alert)
        yield together


MAX_WAITING = 20_000  # alerts; of more the oldest are dropped, which is said


class Waiting:
    """The unsent alerts of one outbox, kept in groups, as thousands may be sent one after the other."""

    def __init__(self, incidents: Incidents) -> None:
        self._incidents = incidents
        self._alerts: dict[int, Alert] = {}  # by number, and in that order
        self._counts: Counter[Key] = Counter()  # of them
        self._tried: set[Key] = set()  # findings with an alert that was tried, and not taken
        self._groups: dict[tuple[object, ...], list[Alert]] | None = None

    def __iter__(self) -> Iterator[Alert]:
        return iter(self._alerts.values())

    def add(self, alert: Alert) -> int:
        """Let one wait; how many are dropped for it."""
        self._alerts[alert.number] = alert
        self._counts[alert.key] += 1
        oldest = list(islice(self._alerts, max(0, len(self._alerts) - MAX_WAITING)))
        for number in oldest:
            self._pop(number)
        self._groups = None
        return len(oldest)

    def take(self, numbers: Sequence[int]) -> tuple[Alert, ...]:
        """Those with these numbers: they are tried from now on. Raises LookupError where it is none that wait."""
        alerts = tuple(self._alerts[number] for number in dict.fromkeys(numbers))
        first = alerts[0]
        if self._groups and self._groups.pop(self._group_of(first), None) != [*alerts]:
            self._groups = None
        for alert in alerts:
            self._pop(alert.number)
            self._tried.add(alert.key)
        return alerts

    def taken(self, keys: Iterable[Key]) -> None:
        """What was tried of these findings was taken: what else waits of them may be sent."""
        for key in keys:
            self._tried.discard(key)
            if key in self._counts:
                self._groups = None

    def groups(self) -> Iterator[Sequence[Alert]]:
        """Alerts of one cause and incident, each the oldest of its finding; none of a finding that was tried."""
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
