"""The lines that --check-installation prints: what is fine, what to fix, and what cannot be evaluated."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

WIDTH = 118
LABEL = 20
INDENT = " " * (LABEL + 2)


class LineStatus(str, Enum):
    """What a line asks of the reader."""

    FINE = " "
    MEND = "!"
    OPEN = "?"  # nothing is wrong, but something cannot be evaluated


@dataclass(frozen=True, slots=True)
class InstallationLine:
    """One line of a section; long ones are wrapped. Lines with the same `label` show it once."""

    text: str
    mark: LineStatus = LineStatus.FINE
    label: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """The lines under one heading."""

    heading: str
    lines: tuple[InstallationLine, ...]


def fine(text: str, label: str = "") -> InstallationLine:
    """An informational line."""
    return InstallationLine(text, LineStatus.FINE, label)


def to_fix(text: str, label: str = "") -> InstallationLine:
    """A problem; it reads `observed; expected …`."""
    return InstallationLine(text, LineStatus.MEND, label)


def unknown(text: str, label: str = "") -> InstallationLine:
    """Something that cannot be evaluated here."""
    return InstallationLine(text, LineStatus.OPEN, label)


def count(sections: Iterable[Section], mark: LineStatus) -> int:
    """The number of lines with this status."""
    return sum(line.mark is mark for section in sections for line in section.lines)


def rendered(sections: Iterable[Section]) -> str:
    """The sections as text for a terminal."""
    shown: list[str] = []
    for section in sections:
        shown.append(f"\n{section.heading}" if shown else section.heading)
        for line in section.lines:
            head = f"{line.mark.value} {line.label:<{LABEL}}"
            text = "".join(char if char.isprintable() else "?" for char in " ".join(line.text.split()))
            shown.append(
                textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=INDENT, break_on_hyphens=False)
            )
    return "\n".join(shown)
