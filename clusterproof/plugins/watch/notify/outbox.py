"""What is still to be delivered, and what was: alerts wait here until the receiver has taken them.

Every step is an entry, a line of JSON. The same entries make the same outbox again, in another watch too. On disk, they
are there, and synced, before they count; a full disk costs a line and no alert.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, TypeAlias

from clusterproof.plugins.core.opened import append, appendable, created
from clusterproof.plugins.watch import Change, ChangeKind, Key, RuleResult
from clusterproof.plugins.watch.notify import REMINDER, Alert, Notification, only_first
from clusterproof.plugins.watch.own_health import Outage

MAX_WAITING = 20_000  # alerts; of more the oldest that were never tried are dropped, which is said
Entry: TypeAlias = dict[str, Any]
WRONG = (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
_STAYS_OPEN = frozenset({ChangeKind.OPENED.value, ChangeKind.WORSE.value, REMINDER})


class Outbox:
    """Of one receiver. It reads no clock and no file."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._name = secrets.token_hex(6)  # of this outbox: its notifications' ids begin with it
        self._next = 1
        self._waiting: dict[int, Alert] = {}  # by number, and in that order
        self._frozen: dict[str, tuple[Alert, ...]] = {}  # notifications that were tried, by id
        self._delivered: dict[Key, Alert] = {}  # what is open, as it was last taken
        self.dropped = 0

    @property
    def open(self) -> Collection[Key]:
        """The findings that are open for the receiver."""
        return self._delivered.keys()

    @property
    def count(self) -> int:
        """How many alerts wait."""
        return len(self._waiting) + sum(map(len, self._frozen.values()))

    def taking(self, changes: Iterable[Change], wall_s: float) -> Iterator[Entry]:
        """The entries that add changes, but for those that repeat what was taken already."""
        delivered, number = self._delivered.copy(), self._next
        for change in changes:
            last = delivered.get(change.key)
            is_known = last is not None and last.kind in _STAYS_OPEN and last.message == Alert.of(0, change, 0).message
            if (change.kind is ChangeKind.CLOSED and not last) or (change.kind is ChangeKind.OPENED and is_known):
                continue
            alert = Alert.of(number, change, wall_s)
            _keep(delivered, alert)
            yield {"add": alert.to_data()}
            number += 1

    def catching_up(self, nodes: Collection[str], now: Mapping[Key, RuleResult], wall_s: float) -> Iterator[Entry]:
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
        yield from self.taking([*over, *worse, *new], wall_s)

    def reminding(self, after_s: float, wall_s: float) -> Iterator[Entry]:
        """The entries that remind of what has stayed open so long; with one finding all of its cause.

        What was told at a time that is still to come is due as well: the clock was set back.
        """
        busy = {alert.key for alert in self._all()}
        still = [one for one in self._delivered.values() if one.kind in _STAYS_OPEN and one.key not in busy]
        due = {(one.key.rule, one.verdict) for one in still if not 0 <= wall_s - one.time_s < after_s}
        again = (one for one in still if (one.key.rule, one.verdict) in due)
        for number, one in enumerate(again, start=self._next):
            yield {"add": {**one.to_data(), "number": number, "kind": REMINDER, "time": round(wall_s, 3)}}

    def groups(self) -> Iterator[Sequence[Alert]]:
        """What may be sent next and was not tried yet: alerts of one cause, each the oldest of its finding."""
        taken = {alert.key for alerts in self._frozen.values() for alert in alerts}
        of_cause: dict[tuple[object, ...], list[Alert]] = {}
        for alert in only_first(list(self._waiting.values()), taken):
            of_cause.setdefault(alert.cause, []).append(alert)
        yield from of_cause.values()

    def freezing(self, alerts: Sequence[Alert]) -> Entry:
        """The entry that makes a notification of alerts, before it is first sent."""
        return {"freeze": f"{self._name}-{alerts[0].number}", "of": [one.number for one in alerts]}

    def notification(self, name: str) -> Notification:
        """One that was frozen."""
        return Notification(name, self._cluster, self._frozen[name])

    @property
    def frozen(self) -> Collection[str]:
        """The ids of the notifications that were tried, and not taken."""
        return self._frozen.keys()

    def apply(self, entry: Entry) -> None:
        """Take an entry. Raises one of WRONG where it is none, or does not fit what came before."""
        if "outbox" in entry:
            self._name, self._next = str(entry["name"])[:40], max(self._next, int(entry["next"]))
        elif "add" in entry:
            self._add(Alert.from_data(entry["add"]))
        elif "delivered" in entry:
            alert = Alert.from_data(entry["delivered"])
            self._delivered[alert.key] = alert
        elif "freeze" in entry:
            self._frozen[str(entry["freeze"])] = tuple(self._waiting.pop(number) for number in entry["of"])
        else:
            del self._frozen[entry["sent"]]

    def entries(self) -> Iterator[Entry]:
        """The fewest that make this outbox again."""
        yield {"outbox": 1, "name": self._name, "next": self._next}
        for alert in sorted(self._all(), key=lambda one: one.number):
            yield {"add": alert.to_data()}
        for name, alerts in self._frozen.items():
            yield {"freeze": name, "of": [one.number for one in alerts]}
        for alert in self._delivered.values():
            yield {"delivered": alert.to_data()}

    def _all(self) -> Iterator[Alert]:
        yield from self._waiting.values()
        for alerts in self._frozen.values():
            yield from alerts

    def _add(self, alert: Alert) -> None:
        self._next = max(self._next, alert.number + 1)
        self._waiting[alert.number] = alert
        _keep(self._delivered, alert)
        for number in list(self._waiting)[: max(0, len(self._waiting) - MAX_WAITING)]:
            del self._waiting[number]
            self.dropped += 1


def _keep(delivered: dict[Key, Alert], alert: Alert) -> None:
    """What is open once an alert was taken."""
    if alert.kind == ChangeKind.CLOSED.value:
        delivered.pop(alert.key, None)
    elif alert.kind != ChangeKind.HAPPENED.value:
        delivered[alert.key] = alert


RETRY_S = 5.0  # after a write that failed
SPARE_BYTES = 1 << 20  # of entries that are no longer needed, before the file is written anew
MAX_BYTES = 256 << 20


class OutboxFile:
    """The file of an outbox; without a path it is kept in memory alone."""

    def __init__(self, path: Path | None, outbox: Outbox, say: Callable[[str], object]) -> None:
        """Take up what another watch has left there. Raises OSError."""
        self._path, self.outbox = path, outbox
        self._file: FileIO | None = None
        self._size = self._least = 0  # bytes: of the file now, and when it was written anew
        self._paused_until = 0.0
        self.outage = Outage(
            say,
            f"the notifications that wait are not on disk ({path}): {{why}}; expected room there; memory has them",
            f"the notifications that wait are on disk again ({path})",
        )
        if path:
            if os.path.lexists(path):
                self._read(path)
            self.settle()

    @property
    def words(self) -> str:
        """What becomes of what waits when the watch ends."""
        if not self._path:
            return "they are lost; expected --record DIR, where they wait for the next watch"
        return f"they wait in {self._path}, for the watch that goes on there"

    def write(self, entries: Iterable[Entry]) -> None:
        """Take entries: on disk first, and in any case in memory."""
        kept = tuple(entries)
        data = b"".join(map(_line, kept))
        if data and self._file:
            self._guard(lambda: self._append(data))
        for entry in kept:
            self.outbox.apply(entry)
        self.settle()

    def settle(self) -> None:
        """Write all of it anew, where the file is not what is in memory, or mostly over."""
        if (self._path and not self._file and time.monotonic() >= self._paused_until) or (
            self._file and self._size > 2 * self._least + SPARE_BYTES
        ):
            self._guard(self._rewrite)

    def close(self) -> None:
        """Write what is not there yet, if that can be."""
        self._paused_until = 0.0
        self.settle()
        self._forget()

    def _read(self, path: Path) -> None:
        with appendable(path) as file:
            file.seek(0)
            data = bytearray()
            while piece := file.read(1 << 20):
                data += piece
                if len(data) > MAX_BYTES:
                    raise OSError(f"{path} has more than {MAX_BYTES:,} bytes; expected an outbox of clusterproof")
        for line in data.splitlines():
            with contextlib.suppress(*WRONG):  # torn, or of another version
                self.outbox.apply(json.loads(line))

    def _append(self, data: bytes) -> None:
        assert self._file
        append(self._file, self._size, data)
        os.fsync(self._file.fileno())
        self._size += len(data)

    def _rewrite(self) -> None:
        """Beside the file, and then in its place: whenever that ends, one of both is there whole."""
        assert self._path
        new_file = self._path.with_suffix(".new")
        data = b"".join(map(_line, self.outbox.entries()))
        file = created(new_file)
        try:
            append(file, 0, data)
            os.fsync(file.fileno())
            new_file.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                new_file.unlink()
            raise
        self._forget()
        self._file, self._size, self._least = file, len(data), len(data)

    def _guard(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as problem:
            self._forget()
            self._paused_until = time.monotonic() + RETRY_S
            self.outage.failed(problem.strerror or problem)
        else:
            self.outage.worked()

    def _forget(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None


def _line(entry: Entry) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
