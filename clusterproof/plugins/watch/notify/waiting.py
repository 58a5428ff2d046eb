"""Alerts that were not tried yet, and what of them may be sent next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from clusterproof.plugins.watch import Key
from clusterproof.plugins.watch.notify import Alert, only_first
from clusterproof.plugins.watch.notify.incidents import Incidents

MAX_WAITING = 20_000  # alerts; of more the oldest are dropped, which is said


class Waiting:
    """Of one outbox. Groups are kept from one question to the next: thousands may be sent one after the other."""

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
