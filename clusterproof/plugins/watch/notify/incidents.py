"""Under which incident the receiver knows each finding that is open."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from clusterproof.plugins.watch import Key
from clusterproof.plugins.watch.notify import Alert, incident_of

GATHERED_S = 2.0  # in which the version before, which kept no incidents, gathered what it sent together


class Incidents:
    """Of one outbox."""

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
