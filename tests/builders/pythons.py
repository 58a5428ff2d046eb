"""The other Pythons of this machine, as far as whoever runs the tests may look at them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def interpreters() -> list[str]:
    """Every Python 3 that is installed here, this one included."""
    named = (shutil.which(f"python3.{n}", path="/usr/bin:/usr/local/bin") for n in range(8, 15))
    return sorted({sys.executable, *filter(None, named), *map(str, _of_pyenv("python3"))})


def interpreter(name: str) -> Path | None:
    """A Python of that name ("python3.8")."""
    return min(_of_pyenv(name), default=None)


def _of_pyenv(name: str) -> Iterator[Path]:
    with suppress(PermissionError):  # another's: a login without a home of its own keeps the one before
        root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
        for version in os.listdir(root) if root.is_dir() else ():  # noqa: PTH208
            python = root / version / "bin" / name
            if os.access(python, os.X_OK):
                yield python
