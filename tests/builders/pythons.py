"""The other Pythons of this machine that the current user may see."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def interpreters() -> list[str]:
    """Every installed Python 3, including this one."""
    named = (shutil.which(f"python3.{n}", path="/usr/bin:/usr/local/bin") for n in range(8, 15))
    return sorted({sys.executable, *filter(None, named), *map(str, _of_pyenv("python3"))})


def interpreter(name: str) -> Path | None:
    """A Python by name ("python3.8")."""
    return min(_of_pyenv(name), default=None)


def _of_pyenv(name: str) -> Iterator[Path]:
    with suppress(PermissionError):  # not ours: a login without a home keeps the previous HOME
        root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
        for version in os.listdir(root) if root.is_dir() else ():  # noqa: PTH208
            python = root / version / "bin" / name
            if os.access(python, os.X_OK):
                yield python
