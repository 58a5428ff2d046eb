"""Where the programs of others lie once `scripts/counterparts` has installed them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def folder(name: str) -> Path:
    """What tests/counterparts/NAME/install has filled, once it has run to its end."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "clusterproof" / "counterparts" / name


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test where the program is not installed, and says what installs it."""
    missing = not (folder(name) / "installed").exists()
    return pytest.mark.skipif(missing, reason=f"{name} is not installed: scripts/counterparts {name}")
