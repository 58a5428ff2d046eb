"""Where the programs of others lie once `scripts/counterparts` has installed them."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest


def folder(name: str) -> Path:
    """What tests/counterparts/NAME/install has filled, once it has run to its end."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "clusterproof" / "counterparts" / name


def without(name: str) -> str:
    """What is lost where the program is not installed, and what installs it; empty where it is there."""
    is_there = (folder(name) / "installed").exists()
    return "" if is_there else f"{name} is not installed ({what(name)}): scripts/counterparts {name}"


def what(name: str) -> str:
    """What a newcomer may not take from the name: the first words of the comment in NAME/install."""
    lines = (Path(__file__).parent / name / "install").read_text(encoding="utf-8").splitlines()[1:]
    comment = " ".join(line[2:] for line in itertools.takewhile(lambda line: line.startswith("# "), lines))
    return re.split(r"[.:;] |[.]$|, (?:as|built|into) ", comment)[0]


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test where the program is not installed, and says so."""
    return pytest.mark.skipif(bool(reason := without(name)), reason=reason)
