"""`runs/<cluster>/<time>/`: a folder for each run's reports, and `runs/latest`, a link to the last one."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from clusterproof.plugins.core.opened import distrust

RUNS = "runs"
LATEST = "latest"
PAGE = "report.html"
RUN_FILES = (PAGE, "junit.xml", "metrics.prom", "summary.md", "summary.txt")
_LONGEST_NAME, _DIGEST = 80, 8
_MAX_AT_ONCE = 1_000  # runs of one cluster that begin in the same second
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ)(?:-(\d{1,3}))?")


def folder_of_its_own(where: Path, cluster: str, now: datetime) -> Path:
    """Create a new folder under `where` for a run that begins now. Raises OSError.

    The folder of all runs has a .gitignore, so that git ignores it.
    """
    runs = where / RUNS
    if not os.path.lexists(runs):
        runs.mkdir()
        (runs / ".gitignore").write_text("*\n", encoding="utf-8")
    require_own(runs)
    of_cluster = runs / safe_name(cluster)
    of_cluster.mkdir(exist_ok=True)
    require_own(of_cluster)
    time = f"{now.astimezone(timezone.utc):%Y-%m-%dT%H-%M-%SZ}"
    for number in range(1, _MAX_AT_ONCE):
        folder = of_cluster / (time if number == 1 else f"{time}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{of_cluster} has {_MAX_AT_ONCE} runs of {time}")


def require_own(folder: Path) -> None:
    """Refuse folders that another user has created, can change, or has linked. Raises OSError."""
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory; expected a folder", str(folder))
    doubt = distrust(folder)
    if doubt:
        raise PermissionError(errno.EPERM, f"{doubt}; expected a folder that only you and root may write", str(folder))


def safe_name(cluster: str) -> str:
    """The name of a cluster's folder: its own, or the valid part of it with a unique digest."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", cluster)[:_LONGEST_NAME].strip(".")
    if name and name == cluster != LATEST:
        return name
    digest = hashlib.sha256(cluster.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGEST]
    return f"{name or 'cluster'}-{digest}"


def point_latest(where: Path, folder: Path) -> None:
    """Point `runs/latest` to a run's folder. Raises OSError if that is not a link."""
    latest = where / RUNS / LATEST
    if latest.exists() and not latest.is_symlink():
        raise FileExistsError(f"{latest} is not a link")
    new = latest.with_name(f".{LATEST}-{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(folder.relative_to(latest.parent), target_is_directory=True)
    new.replace(latest)


def sibling_runs(folder: Path) -> list[Path]:
    """The folders of the cluster's completely reported runs, the oldest first. Raises OSError."""
    runs = [
        (time[1], int(time[2] or 1), path)
        for path in folder.parent.iterdir()
        if (time := _TIME.fullmatch(path.name))
        and not path.is_symlink()
        and all((path / name).is_file() for name in RUN_FILES)
    ]
    return [path for *_, path in sorted(runs)]


def remove_all_but(keep: int, folder: Path) -> int:
    """Remove the oldest runs next to `folder`, keeping `keep`; returns the number removed. Raises OSError."""
    require_own(folder.parent)
    old = [path for path in sibling_runs(folder)[:-keep] if path != folder]
    for path in old:
        with suppress(FileNotFoundError):  # another run removes it as well
            shutil.rmtree(path)
    return len(old)


def size_bytes(folders: list[Path]) -> int:
    """The size of the files in these folders; one that disappears meanwhile counts nothing. Raises OSError."""
    held = 0
    for folder in folders:
        with suppress(FileNotFoundError):
            held += sum(path.lstat().st_size for path in folder.rglob("*"))
    return held
