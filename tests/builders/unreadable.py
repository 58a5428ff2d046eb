"""Folders and files that may not be read, for tests that root runs too, who may read everything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def lock(patch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Let these be listed by nobody, and say nothing of themselves."""
    locked = set(map(os.fspath, paths))

    def refusing(function: Any) -> Any:
        def refused(path: Any, *given: Any, **named: Any) -> Any:
            if isinstance(path, (str, os.PathLike)) and os.fspath(path) in locked:
                raise PermissionError(13, "Permission denied", os.fspath(path))
            return function(path, *given, **named)

        return refused

    patch.setattr(os, "scandir", refusing(os.scandir))
    patch.setattr(Path, "lstat", refusing(Path.lstat))
