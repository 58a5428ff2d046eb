"""Records a watch in a folder: each node's samples and all changes; a failure to record is only reported."""

from __future__ import annotations

import errno
import fcntl
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from pathlib import Path

from clusterproof.plugins.core.opened import DISK_FULL, appendable
from clusterproof.plugins.evidence.recording import recording_file
from clusterproof.plugins.training_run.sample_columns import (
    GPU_COLUMNS,
    KERNEL_LOG,
    NOT_WATCHED,
    SUFFIX,
    Header,
    SampledGpu,
    SamplesFile,
    columns_for,
)
from clusterproof.plugins.watch import Change
from clusterproof.plugins.watch.changes_file import CHANGES_FILE, append_changes, read_changes
from clusterproof.plugins.watch.updates import Hello, LogUpdate, Tick, Update

RETRY_S = 60.0  # after a write that failed
MAX_OWED = 10_000  # writes that wait for the disk


class NodeRecording:
    """The samples of one node, with a header for each connection, and whenever its GPUs are counted again."""

    def __init__(self, folder: Path, node: str, every_s: float) -> None:
        self._path = folder / (recording_file(node).removesuffix(".json") + SUFFIX)
        self._node, self._every_s = node, every_s
        self._file: SamplesFile | None = None
        self._hello = Hello("", 0.0, 0.0)
        self._gpus: tuple[SampledGpu, ...] = ()
        self._is_begun = False
        self._recorded = self._path.stat().st_mtime if self._path.exists() else 0.0  # until when, in seconds since 1970
        self._why = NOT_WATCHED

    def learn(self, update: Update, why: str = "") -> None:
        """Set the values of the next header; `why` the node was disconnected in between."""
        if isinstance(update, Hello):
            self._hello, self._is_begun, self._why = update, False, why or self._why
        elif isinstance(update, Tick):
            count = len(update.gpu) or len(self._gpus)
            known = update.gpus if update.gpus is not None else self._gpus
            gpus = known if len(known) == count else (SampledGpu(),) * count
            self._is_begun = self._is_begun and gpus == self._gpus
            self._gpus = gpus

    def write(self, update: Update, wall_s: float) -> None:
        """Write samples. Raises OSError."""
        if isinstance(update, Tick):
            self._begin(wall_s)
            nothing = (None,) * len(GPU_COLUMNS)
            values = [value for gpu in update.gpu or (nothing,) * len(self._gpus) for value in gpu]
            self._opened().sample(max(0.0, update.up - self._hello.up), [*values, *update.host])
            if update.ranks:
                self._opened().ranks(max(0.0, update.up - self._hello.up), update.ranks)
            self._recorded = wall_s
        elif isinstance(update, LogUpdate):
            self._begin(wall_s)
            for line in update.lines:
                more = f" (and {line.left_out} lines like it before)" if line.left_out else ""
                self._opened().event(max(0.0, line.seconds - self._hello.up), KERNEL_LOG, f"{line.text}{more}")

    def close(self) -> None:
        """Write what is left. Raises OSError."""
        if self._file:
            self._file.flush()

    def forget(self, why: str) -> None:
        """Discard what could not be written; the next write starts with a new header."""
        if self._file:
            self._file.forget()
        self._is_begun, self._why = False, why

    def _begin(self, wall_s: float) -> None:
        if self._is_begun:
            return
        if self._recorded and self._why:
            self._opened().gap(min(self._recorded, wall_s), wall_s, self._why)
        columns = columns_for(len(self._gpus))
        hello = self._hello
        self._opened().begin(Header(self._node, hello.boot_id, hello.now, self._every_s, self._gpus, columns))
        self._is_begun, self._why = True, ""

    def _opened(self) -> SamplesFile:
        if self._file is None:
            self._file = SamplesFile(self._path)
        return self._file


class Recording:
    """The recording's folder. A failed write is reported once, retried each minute, and its recovery reported."""

    def __init__(self, folder: Path, every_s: float, say: Callable[[str], object]) -> None:
        """Raises OSError, also if the folder, or a link to it, is another user's."""
        folder.mkdir(parents=True, exist_ok=True)
        for status in (folder.lstat(), folder.stat()):
            if status.st_uid not in (0, os.geteuid()):
                raise OSError(errno.EACCES, f"belongs to user {status.st_uid}", str(folder))
        self.folder = folder
        self._every_s, self._say = every_s, say
        self._nodes: dict[str, NodeRecording] = {}
        self._paused_until = 0.0
        self._problem = ""
        self._owed: deque[Callable[[], object]] = deque(maxlen=MAX_OWED)
        self._dropped = 0  # of them, the oldest
        self._held: FileIO | None = None

    @property
    def is_failing(self) -> bool:
        """Whether the last write failed."""
        return bool(self._problem)

    def record(self, node: str, update: Update, wall_s: float, now: float, why: str = "") -> None:
        """Record what a node sent."""
        recording = self._nodes.get(node)
        if recording is None:
            recording = self._nodes[node] = NodeRecording(self.folder, node, self._every_s)
        recording.learn(update, why)
        self.guard(lambda: recording.write(update, wall_s), now)
        if self._problem:
            recording.forget(self._problem)

    def earlier_changes(self) -> Iterator[Change]:
        """The changes of the watch that this one resumes, in seconds since 1970. Raises OSError.

        Until it is closed no other may begin here: each would lose what the other has to deliver.
        """
        path = self.folder / CHANGES_FILE
        try:
            self._held = appendable(path)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise BlockingIOError(problem.errno, "another watch records there", str(self.folder)) from None
        except OSError as problem:
            if problem.errno in DISK_FULL:  # there is no such file, and no room for one
                return iter(())
        return read_changes(path)  # also where a file system has no locks

    def changes(
        self, changes: Iterable[Change], wall_s: float, now: float, is_free: Callable[[], bool] = lambda: True
    ) -> None:
        """Record changes, a line each; what cannot be written now is written later."""
        kept = tuple(changes)

        def write() -> None:
            if not is_free():
                raise OSError(errno.ENOSPC, "notifications of before are not on disk yet")
            append_changes(self.folder / CHANGES_FILE, kept, wall_s)

        if kept:
            self.guard(write, now, is_owed=True)

    def guard(self, write: Callable[[], object], now: float, *, is_owed: bool = False) -> None:
        """Write; on a full disk report it and retry later."""
        if is_owed:
            self._dropped += len(self._owed) == MAX_OWED
            self._owed.append(write)
        if now < self._paused_until:
            return
        try:
            while self._owed:
                self._owed[0]()
                self._owed.popleft()
            if not is_owed:
                write()
        except OSError as problem:
            if not self._problem:
                self._say(f"nothing is recorded under {self.folder}: {problem.strerror or problem}; watching goes on")
            self._problem = problem.strerror or str(problem)
            self._paused_until = now + RETRY_S
        else:
            if self._problem:
                without = f", without the first {self._dropped:,} of what waited" if self._dropped else ""
                self._say(f"recording under {self.folder} again{without}")
                self._problem, self._dropped = "", 0

    def close(self, now: float) -> None:
        """Write what is left; changes that wait for the disk are tried once more, however recently it failed."""
        if self._owed:
            self._paused_until = now
            self.guard(lambda: None, now)
        for recording in self._nodes.values():
            self.guard(recording.close, now)
        if self._held:
            self._held.close()
