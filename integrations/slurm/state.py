"""What the scripts remember on a node: a few small files in one folder, each written whole or not at all.

Nothing in it is needed: where a file is missing, broken or cannot be written, the next run finds out anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEPT_S = 30 * 24 * 3600.0  # of a job whose epilog never came
UNFINISHED_S = 3600.0
MAX_BYTES = 1024 * 1024
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class State:
    """One folder. Of its methods only `write` raises: OSError."""

    folder: Path

    def prepare(self) -> str:
        """Make the folder, for root alone; why it cannot be used, else empty."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            return f"{self.folder}: {problem.strerror}; nothing is remembered from job to job"
        return ""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One run at a time on this node; the lock is the folder's, and dies with its owner."""
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            yield
            return
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def read(self, name: str) -> Mapping[str, Any]:
        """A record; an empty one where there is none that can be read."""
        try:
            with (self.folder / f"{name}.json").open("rb") as file:
                told = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Replace a record by another; whoever reads meanwhile sees the old one or the new one. Raises OSError."""
        file = self.folder / f"{name}.json"
        file.parent.mkdir(mode=0o700, exist_ok=True)
        new = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            new.write_text(json.dumps(record), encoding="utf-8")
            new.replace(file)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def forget(self, name: str) -> None:
        """Remove a record."""
        with contextlib.suppress(OSError):
            (self.folder / f"{name}.json").unlink()

    def sweep(self) -> None:
        """Remove what jobs without an epilog have left, and what was begun and never finished."""
        for pattern, kept_s in (("jobs/*", KEPT_S), (".*.json.*", UNFINISHED_S)):
            for file in self.folder.glob(pattern):
                with contextlib.suppress(OSError):
                    if time.time() - file.stat().st_mtime > kept_s:
                        file.unlink()


def boot_id() -> str:
    """This boot's own name; empty where the kernel does not tell."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def since_boot_s() -> float:
    """Seconds since boot, which no clock that is set changes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
