"""`--notify`: sends changes, one notification at a time, and retries until the receiver takes them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.watch import Change, Key, RuleResult
from clusterproof.plugins.watch.notify import Alert, Notification
from clusterproof.plugins.watch.notify.outbox_file import OutboxFile
from clusterproof.plugins.watch.notify.receiver import Delivery, Receiver
from clusterproof.plugins.watch.own_health import MAX_NODES, Outage

FIRST_S = 1.0  # doubled with each failure
MAX_S = 60.0


def pause_s(failures: int, retry_after_s: float = 0.0) -> float:
    """The pause after so many consecutive failures; at least what the receiver asked for."""
    return max(retry_after_s, min(MAX_S, FIRST_S * (1 << min(failures - 1, 16))))


class RetrySchedule:
    """The retries of one receiver. A failed notification only delays others about the same findings."""

    def __init__(self) -> None:
        self._failures = 0  # consecutive, of all notifications
        self._from = 0.0  # nothing is sent before this time
        self._of: dict[str, tuple[int, float]] = {}  # failures of each notification, and when it is due

    def failed(self, name: str, now: float, retry_after_s: float = 0.0) -> None:
        """Record a failed notification."""
        failures = self._of.get(name, (0, 0.0))[0] + 1
        self._failures += 1
        self._from = now + pause_s(self._failures, retry_after_s)
        self._of[name] = failures, now + pause_s(failures, retry_after_s)

    def delivered(self, name: str) -> None:
        """Record a delivered notification."""
        self._failures, self._from = 0, 0.0
        self._of.pop(name, None)

    def due_s(self, name: str) -> float:
        """When a notification is due, by its own failures."""
        return self._of.get(name, (0, 0.0))[1]

    def not_before(self, due_s: float) -> float:
        """When something due at that time may be sent."""
        return max(due_s, self._from)

    def next(self, names: Collection[str]) -> str | None:
        """The notification that is due first."""
        return min(names, key=self.due_s, default=None)


GATHER_S = 2.0  # from the first change on: a failing switch affects all its nodes within that time
END_S = 10.0  # for everything left to be sent when the watch ends
CHECK_S = 5.0  # interval for due reminders, and for a disk that was full
OUTCOMES = ("delivered", "failed", "dropped")  # counts every attempt


class Notifier:
    """A thread that sends what waits in an outbox to one receiver, from its creation until it is closed."""

    def __init__(
        self,
        receiver: Receiver,
        file: OutboxFile,
        say: Callable[[str], object],
        remind_s: float | None = None,
        open_now: Callable[[], Mapping[Key, RuleResult]] = dict,
    ) -> None:
        """`open_now` returns the open states; it is called on this thread, so that reminders are up to date."""
        self._receiver, self._file, self._say = receiver, file, say
        self._remind_s, self._open_now = remind_s, open_now
        self._nodes: Collection[str] | None = None  # the watched nodes
        self._outbox, self._retries = file.outbox, RetrySchedule()
        self._change = threading.Condition()
        self._is_over = self._is_cancelled = False
        self._came: dict[int, float] = {}  # arrival times of alerts, by number
        self._last_try: set[str] = set()  # sent since the watch ended
        self.counts: Counter[str] = Counter()
        self.outage = Outage(
            say,
            "a notification was not delivered: {why}; it is sent again until it is, and watching goes on",
            "notifications are delivered again",
        )
        if self._outbox.count:
            say(f"waiting since before, to be sent by {receiver.name}: {_changes(self._outbox.count)}")
        self._thread = threading.Thread(target=self._run, name="watch-notify", daemon=True)
        self._thread.start()

    @property
    def is_failing(self) -> bool:
        """Whether something is currently undelivered, or not on disk."""
        return self.outage.is_failing or self._file.outage.is_failing

    @property
    def is_kept(self) -> bool:
        """Whether everything waiting is on disk, if it should be."""
        return not self._file.outage.is_failing

    def queue(self, changes: Sequence[Change]) -> None:
        """Queue notifications of these changes; they are on disk when this returns."""
        if changes:
            with self._change:
                self._file.write(self._outbox.taking(changes, time.time()))
                self._change.notify()

    def catch_up(
        self, nodes: Collection[str], now: Mapping[Key, RuleResult], since_s: Mapping[Key, float] = {}
    ) -> None:
        """Queue what is open on these nodes but undelivered, and what was delivered and is over.

        `since_s`: when each was opened, in seconds since 1970.
        """
        with self._change:
            self._nodes = nodes
            if others := self._outbox.of_others(nodes):
                self._say(
                    f"{self._receiver.name} has open findings of nodes that are not watched now, and hears no more of "
                    f"them: {within(fold(others), MAX_NODES)}"
                )
            self._file.write(self._outbox.catching_up(nodes, now, time.time(), since_s))
            self._change.notify()

    def close(self) -> None:
        """Send what is left once more, as far as time permits."""
        with self._change:
            self._is_over = True
            self._change.notify()
        self._thread.join(END_S)
        with self._change:
            self._is_cancelled = True
            self._change.notify()
        self._receiver.cancel()
        self._thread.join(END_S)
        with self._change:
            self._file.close()
            left = self._outbox.count
        if left:
            self._say(
                f"not delivered when the watch ended: {_changes(left)} by {self._receiver.name}; "
                f"{self._file.description}"
            )

    def _run(self) -> None:
        while True:
            with self._change:
                notification = self._next()
                while notification is None:
                    if self._is_over:
                        return
                    self._file.settle()
                    self._remind()
                    self._change.wait(max(0.0, min(self._due_s() - time.monotonic(), CHECK_S)))
                    notification = self._next()
            outcome = self._deliver(notification)
            with self._change:
                self._count(notification, outcome)

    def _remind(self) -> None:
        if self._remind_s is not None:
            self._file.write(self._outbox.reminding(self._remind_s, time.time(), self._open_now(), self._nodes))

    def _next(self) -> Notification | None:
        """The next notification to send; it is on disk under its id when this returns."""
        if self._is_cancelled:
            return None
        if self._is_over:
            return self._next_at_close()
        if time.monotonic() < self._due_s():
            return None
        name, group = self._retries.next(self._outbox.frozen), self._oldest()
        if group and (name is None or self._gathered_s(group) <= self._retries.due_s(name)):
            return self._frozen(group)
        return self._outbox.notification(name) if name else None

    def _next_at_close(self) -> Notification | None:
        name = next((notification for notification in self._outbox.frozen if notification not in self._last_try), None)
        group = None if name else self._oldest()
        last = self._frozen(group) if group else self._outbox.notification(name) if name else None
        if last:
            self._last_try.add(last.id)
        return last

    def _oldest(self) -> Sequence[Alert] | None:
        return next(self._outbox.groups(), None)

    def _frozen(self, group: Sequence[Alert]) -> Notification:
        entry = self._outbox.freezing(group)
        self._file.write([entry])
        for alert in group:
            self._came.pop(alert.number, None)
        return self._outbox.notification(entry["freeze"])

    def _gathered_s(self, group: Sequence[Alert]) -> float:
        """Until when alerts wait for others with their cause."""
        return self._came.setdefault(group[0].number, time.monotonic()) + GATHER_S

    def _due_s(self) -> float:
        """When there is something to send."""
        name, group = self._retries.next(self._outbox.frozen), self._oldest()
        due = [self._retries.due_s(name)] if name else []
        due += [self._gathered_s(group)] if group else []
        return self._retries.not_before(min(due, default=float("inf")))

    def _deliver(self, notification: Notification) -> Delivery:
        try:
            return self._receiver.send(notification)
        except OSError as problem:  # for example, no memory for the program's output
            return Delivery(f"{self._receiver.name}: {problem.strerror or problem}")
        except Exception as problem:  # for example, no thread can be started; its message may contain a password
            return Delivery(f"{self._receiver.name}: {type(problem).__name__}")

    def _count(self, notification: Notification, outcome: Delivery) -> None:
        self.counts["failed" if outcome.why else "delivered"] += 1
        if outcome.why:
            self._retries.failed(notification.id, time.monotonic(), outcome.after_s)
            self.outage.failed(f"{outcome.why} (of {notification.alerts[0].key.rule}, {notification.nodes:.100})")
        else:
            self._retries.delivered(notification.id)
            self._file.write([{"sent": notification.id}])
            self.outage.worked()
        if self._outbox.dropped > self.counts["dropped"]:
            self.counts["dropped"] = self._outbox.dropped
            self._say(
                f"too many changes wait for {self._receiver.name}; the oldest are dropped: {self._outbox.dropped}"
            )


def _changes(count: int) -> str:
    return f"{count} change{'s' if count > 1 else ''}"
