"""A full disk: an error, and a small file system that a test fills and frees."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KIB = 256


def no_room(*_: object) -> None:
    """In place of a write."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def small_disk(under: Path, kib: int = KIB) -> Iterator[tuple[Path, Callable[[], object], Callable[[], object]]]:
    """A folder on it, a function that fills it to the last byte, and one that frees it."""
    mount = under / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "testbed", str(mount)]
    subprocess.run(command, check=True)
    filler = mount / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                return

    try:
        yield mount / "kept", fill, lambda: filler.unlink()
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)
