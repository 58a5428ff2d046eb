"""Kernel log lines by the form they match: lines.toml."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("lines.toml")


@dataclass(frozen=True)
class KnownLine:
    """A line as a kernel or driver writes it; `device` is what it concerns, empty for the node."""

    form: str
    verdict: str
    text: str
    device: str


def _read() -> tuple[KnownLine, ...]:
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    forms = toml.loads(FILE.read_text(encoding="utf-8"))
    return tuple(KnownLine(name, row["verdict"], *line) for name, row in forms.items() for line in row["lines"])


KNOWN_LINES = _read()
EVERY_TEXT = tuple(line.text for line in KNOWN_LINES)
