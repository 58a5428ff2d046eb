"""Kernel logs that the node itself had rotated: parts of one log, and logs of earlier boots."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_PART = re.compile(
    r"(?P<base>(?:.*[._-])?(?P<log>dmesg|kern(?:el)?|kmsg)(?:\.log|\.txt)?)[.-](?P<number>\d{1,8})(?:\.gz)?",
    re.IGNORECASE,
)
_OF_ONE_BOOT = "dmesg"  # Debian's dmesg.service keeps each boot in a file of its own
_MANY = 10_000  # larger numbers are dates


def in_parts(files: Iterable[Path]) -> tuple[list[list[Path]], list[Path]]:
    """Each file alone, but a rotated log together, in the order of writing; and the files of earlier boots.

    Without the file that is still written, each is a log by itself.
    """
    parts: dict[Path, list[Path]] = {}
    earlier: list[Path] = []
    known = dict.fromkeys(files)
    for file in known:
        part = _PART.fullmatch(file.name)
        base = file.with_name(part["base"]) if part else file
        if not part or base not in known:
            parts.setdefault(file, []).append(file)
        elif part["log"].lower() == _OF_ONE_BOOT:
            earlier.append(file)
        else:
            parts.setdefault(base, []).append(file)
    return [sorted(group, key=_order) for group in parts.values()], earlier


def _order(file: Path) -> tuple[bool, int]:
    part = _PART.fullmatch(file.name)
    number = int(part["number"]) if part else 0
    return part is None, number if number >= _MANY else -number
