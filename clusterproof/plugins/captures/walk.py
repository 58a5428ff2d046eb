"""The files under a capture's folder, and why others are not read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

REPORTS = frozenset({"results.jsonl", "junit.xml"})  # a folder with these was written by a run
OF_A_RUN = "has the reports of a run, which are no outputs of a node"
MAX_DEPTH = 8  # nesting depth of folders


def files_under(folder: Path, most: int, strays: list[str], root: Path) -> list[Path]:
    """All files under a folder, without links; at most one more than `most`, and a line for each that is not read."""
    files: list[Path] = []

    def locked(wrong: OSError) -> None:
        strays.append(f"{Path(wrong.filename).relative_to(root)} cannot be opened: {wrong.strerror}")

    for where, folders, names in os.walk(folder, onerror=locked):
        folder_path = Path(where)
        if REPORTS.issubset(names):
            strays.append(f"{folder_path.relative_to(root)} {OF_A_RUN}")
            folders.clear()
            continue
        if len(folder_path.relative_to(folder).parts) >= MAX_DEPTH:
            strays += (
                f"{(folder_path / name).relative_to(root)} is more than {MAX_DEPTH} folders deep, and not read"
                for name in folders
            )
            folders.clear()
        folders.sort()
        for name in sorted(name for name in names if not name.startswith(".")):
            file = folder_path / name
            why = _why_not(file)
            if why:
                strays.append(f"{file.relative_to(root)} {why}")
            else:
                files.append(file)
            if len(files) > most or len(strays) > most:
                return files
    return files


def _why_not(path: Path) -> str:
    """Why a file is not read; empty if it is."""
    try:
        mode = path.lstat().st_mode
    except OSError as wrong:
        return f"cannot be read: {wrong.strerror}"
    if stat.S_ISLNK(mode):
        return "is a link, which is not followed"
    return "" if stat.S_ISREG(mode) else "is no regular file, and not read"
