"""Where `scripts/counterparts` installs third-party programs."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest


def folder(name: str) -> Path:
    """The folder that tests/counterparts/NAME/install has filled, if it completed."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "clusterproof" / "counterparts" / name


def without(name: str) -> str:
    """What is lost if the program is not installed, and how to install it; empty if it is installed."""
    is_there = (folder(name) / "installed").exists()
    return "" if is_there else f"{name} is not installed ({what(name)}): scripts/counterparts {name}"


def what(name: str) -> str:
    """What the name does not tell a newcomer: the first words of the comment in NAME/install."""
    lines = (Path(__file__).parent / name / "install").read_text(encoding="utf-8").splitlines()[1:]
    comment = " ".join(line[2:] for line in itertools.takewhile(lambda line: line.startswith("# "), lines))
    return re.split(r"[.:;] |[.]$|, (?:as|built|into) ", comment)[0]


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test if the program is not installed, and say so."""
    return pytest.mark.skipif(bool(reason := without(name)), reason=reason)
