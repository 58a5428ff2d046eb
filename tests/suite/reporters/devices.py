"""Devices that a test creates, for a run to write its reports to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


def full_device(path: Path) -> Path:
    """A device that accepts nothing, like /dev/full."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        path.open("wb").close()
    except PermissionError:
        pytest.skip("needs root, and a file system with devices: to make one that is full")
    return path
