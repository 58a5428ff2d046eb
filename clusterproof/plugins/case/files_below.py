"""The files below a folder, and a line for each kind of file that is not read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from clusterproof.plugins.case import CaseError, one_line
from clusterproof.plugins.core.message import listed
from clusterproof.plugins.core.record import field, record

MAX_FILES = 20_000
MAX_DEPTH = 6  # nesting depth of folders


@record
class NotRead:
    """Names of files that are left out, by reason."""

    names: dict[str, list[str]] = field(default_factory=dict)

    def add(self, why: str, name: str) -> None:
        """Add a name."""
        self.names.setdefault(why, []).append(one_line(name))

    def lines(self) -> Iterator[str]:
        """One line for each reason."""
        for why, names in self.names.items():
            yield f"{why}: {listed(names)}"


def files_below(folder: Path, not_read: NotRead, most: int) -> Iterator[Path]:
    """The files under a folder, by name. Raises CaseError if there are more than `most`."""
    count = 0

    def locked(wrong: OSError) -> None:
        where = os.path.relpath(wrong.filename or folder, folder)
        not_read.add("folders that cannot be opened", f"{where} ({wrong.strerror})")

    for where, folders, names in os.walk(folder, onerror=locked):
        folder_path = Path(where)
        folders.sort()
        for name in folders:
            if (folder_path / name).is_symlink():
                not_read.add("links are not followed", name)
        if len(folder_path.relative_to(folder).parts) >= MAX_DEPTH:
            for name in folders:
                not_read.add(
                    f"folders deeper than {MAX_DEPTH} are not read", str((folder_path / name).relative_to(folder))
                )
            folders.clear()
        for name in sorted(names):
            count += 1
            if count > most:
                expected = "the folder of one job" if most == MAX_FILES else "fewer"
                raise CaseError(f"{str(folder)!r:.120}: more than {most:,} files; expected {expected}")
            why = _why_not(folder_path / name)
            if why:
                not_read.add(why, name)
            else:
                yield folder_path / name


def _why_not(path: Path) -> str:
    """Why a file is not read; empty if it is."""
    try:
        mode = path.lstat().st_mode
    except OSError as wrong:
        return f"not read, {wrong.strerror}"
    if stat.S_ISLNK(mode):
        return "links are not followed"
    if not stat.S_ISREG(mode):
        return "pipes, sockets and devices are not read"
    return "names that begin with a dot are not read" if path.name.startswith(".") else ""
