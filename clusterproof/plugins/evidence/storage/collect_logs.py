"""How much logs and crash dumps take of their file systems, and the largest files: /var/log, /var/crash.

`{"folders": [{"name": "/var/log", "kib": 961200, "largest": [{"path": "/var/log/syslog.1", "kib": 402112}],
"unread": 0, "is_cut": false, "total_kib": 264212084, "used_kib": 31457280}]}`. `kib` is the disk space of the entries
looked at, `largest` are the three largest files, `unread` is the number of folders that may not be read or are nested
too deeply. `is_cut`: there are more than 8,192 entries, or the time was over. `total_kib` is the size of the file
system, `used_kib` what is in use. No link is followed, and no other file system entered.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Node

FOLDERS = ("/var/log", "/var/crash")
MAX_FILES = 8192  # in each, with the folders in it


def read(node: Node) -> object:
    """The size of each, its three largest files, and whether that is all of it."""
    return node.each("folders", [*filter(node.exists, FOLDERS)], lambda path: _folder(node, path))


def _folder(node: Node, path: str) -> dict[str, object]:
    node.at(path)
    until = time.monotonic() + node.collector_s / 4
    folder = os.open(node.path(path), os.O_DIRECTORY)
    files: dict[int, tuple[int, str]] = {}  # by inode: a file with two names counts once
    is_cut = False
    unread = 0
    for inode, kib, name in _entries(folder, path, os.fstat(folder).st_dev):
        files[inode] = kib, name
        unread += not inode
        if is_cut := len(files) > MAX_FILES or time.monotonic() > until:
            break
    sizes = os.fstatvfs(folder)
    return {
        "name": path,
        "kib": sum(kib for kib, _ in files.values()),
        "largest": [{"path": name, "kib": kib} for kib, name in sorted(files.values())[:-4:-1]],
        "unread": unread,
        "is_cut": is_cut,
        "total_kib": sizes.f_blocks * sizes.f_frsize // 1024,
        "used_kib": (sizes.f_blocks - sizes.f_bfree) * sizes.f_frsize // 1024,
    }


def _entries(folder: int, path: str, device: int) -> Iterator[tuple[int, int, str]]:
    """The inode, size in KiB and path of every entry: a folder's own before those of the folders in it.

    A folder that cannot be read has no inode.
    """
    names = []
    for entry in os.scandir(folder):
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # it was removed meanwhile
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and status.st_dev == device:
            names.append(entry.name)
        yield status.st_ino, 0 if is_folder else status.st_blocks // 2, f"{path}/{entry.name}"
    for name in names:
        try:
            opened = os.open(name, os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=folder)
            yield from _entries(opened, f"{path}/{name}", device)
            os.close(opened)
        except FileNotFoundError:
            continue
        except Exception:  # it may not be read, or is nested too deeply
            yield 0, 0, path
