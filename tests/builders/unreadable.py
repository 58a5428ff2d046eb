"""Makes paths unreadable even for root, for tests that root runs too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def lock(patch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Let nobody list or stat these."""
    locked = set(map(os.fspath, paths))

    def refusing(function: Any) -> Any:
        def refused(path: Any, *given: Any, **named: Any) -> Any:
            if isinstance(path, (str, os.PathLike)) and os.fspath(path) in locked:
                raise PermissionError(13, "Permission denied", os.fspath(path))
            return function(path, *given, **named)

        return refused

    patch.setattr(os, "scandir", refusing(os.scandir))
    patch.setattr(Path, "lstat", refusing(Path.lstat))
