"""The file of an outbox: an entry is synced before it takes effect; a full disk causes a message but loses no alert."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import FileIO
from itertools import count
from pathlib import Path

from clusterproof.plugins.core.opened import append, appendable, created
from clusterproof.plugins.watch import Change, Key
from clusterproof.plugins.watch.notify.outbox import WRONG, Entry, Outbox
from clusterproof.plugins.watch.own_health import Outage

RETRY_S = 5.0  # after a write that failed
SPARE_BYTES = 1 << 20  # of obsolete entries, before the file is rewritten
MAX_BYTES = 256 << 20
_NAME = re.compile(r"outbox-([1-9][0-9]{0,5})[.]jsonl")


def read(path: Path, outbox: Outbox) -> None:
    """Read the entries of a file, including older versions. Raises OSError."""
    with appendable(path) as file:
        file.seek(0)
        data = bytearray()
        while piece := file.read(1 << 20):
            data += piece
            if len(data) > MAX_BYTES:
                raise OSError(f"{path} has more than {MAX_BYTES:,} bytes; expected an outbox of clusterproof")
    for line in data.splitlines():
        with contextlib.suppress(*WRONG):  # truncated, or of another version
            outbox.apply(json.loads(line))
    outbox.infer_incidents()


def outboxes_in(folder: Path, cluster: str, say: Callable[[str], object]) -> dict[Path, Outbox]:
    """All outboxes stored in a folder, by number; an unreadable one is None. Raises OSError."""
    numbers = sorted(int(match[1]) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name)))
    outboxes = {_path(folder, number): Outbox(cluster) for number in numbers}
    for path, outbox in outboxes.items():
        try:
            read(path, outbox)
        except OSError as problem:
            say(f"what waits in {path} is not known: {problem.strerror or problem}; expected an outbox of this user's")
    return outboxes


def with_delivered(changes: Iterable[Change], folder: Path, cluster: str) -> Iterator[Change]:
    """The recorded changes, then those that receivers know and no record has: it may be lost, or have had no room.

    Otherwise what is open would be sent as over. Raises OSError.
    """
    known: set[Key] = set()
    for change in changes:
        known.add(change.key)
        yield change
    for outbox in outboxes_in(folder, cluster, lambda _: None).values():
        for change in outbox.delivered:
            if change.key not in known:
                known.add(change.key)
                yield change


def paths_for(folder: Path, receivers: Sequence[str], outboxes: Mapping[Path, Outbox]) -> list[Path]:
    """The path of each receiver's outbox, assigned by stored identity.

    An outbox without a stored identity belongs to the receiver with its number.
    """
    free, paths = dict(outboxes), list[Path]()
    for number, receiver in enumerate(receivers, start=1):
        default = _path(folder, number)
        own = [path for path, outbox in free.items() if outbox.receiver == receiver]
        if not own and default in free and not free[default].receiver:
            own = [default]
        new = (path for other in count(number) if (path := _path(folder, other)) not in {*outboxes, *paths})
        paths.append(own[0] if own else next(new))
        free.pop(paths[-1], None)
    return paths


def _path(folder: Path, number: int) -> Path:
    return folder / f"outbox-{number}.jsonl"


class OutboxFile:
    """The file of an outbox; without a path it is only kept in memory."""

    def __init__(self, path: Path | None, outbox: Outbox, say: Callable[[str], object]) -> None:
        """Load what another watch has left there. Raises OSError."""
        self._path, self.outbox = path, outbox
        self._file: FileIO | None = None
        self._size = self._least = 0  # bytes: of the file now, and after the last rewrite
        self._paused_until = 0.0
        self.outage = Outage(
            say,
            f"the notifications that wait are not on disk ({path}): {{why}}; expected room there; memory has them",
            f"the notifications that wait are on disk again ({path})",
        )
        if path:
            if os.path.lexists(path):
                read(path, outbox)
            self.settle()

    @property
    def description(self) -> str:
        """What happens to waiting alerts when the watch ends."""
        if not self._path:
            return "they are lost; expected --record DIR, where they wait for the next watch"
        return f"they wait in {self._path}, for the watch that goes on there"

    def write(self, entries: Iterable[Entry]) -> None:
        """Apply entries: on disk first, and in memory in any case."""
        kept = tuple(entries)
        data = b"".join(map(_line, kept))
        if data and self._file:
            self._guard(lambda: self._append(data))
        for entry in kept:
            self.outbox.apply(entry)
        self.settle()

    def settle(self) -> None:
        """Rewrite the file if it differs from memory, or is mostly obsolete."""
        if (self._path and not self._file and time.monotonic() >= self._paused_until) or (
            self._file and self._size > 2 * self._least + SPARE_BYTES
        ):
            self._guard(self._rewrite)

    def close(self) -> None:
        """Write what is not there yet, if possible."""
        self._paused_until = 0.0
        self.settle()
        self._forget()

    def _append(self, data: bytes) -> None:
        assert self._file
        append(self._file, self._size, data)
        os.fsync(self._file.fileno())
        self._size += len(data)

    def _rewrite(self) -> None:
        """Write a new file, then replace the old one: at any moment, one of them is complete."""
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
