"""The texts of captured files, and of kernel logs that the node itself had rotated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from clusterproof.plugins.captures.text import MAX_BYTES, decoded, is_archive, most_bytes, plain, unpacked
from clusterproof.plugins.core.opened import Budget, opened

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


def text_of(files: Sequence[Path], root: Path, budget: Budget) -> tuple[str | None, list[tuple[Path, str]]]:
    """The text of a file, or of a rotated log from its last part back; None if none was read. And the problems.

    All parts together may be as long as one file.
    """
    texts: list[str] = []
    problems: list[tuple[Path, str]] = []
    length = 0
    for file in reversed(files):
        if length >= MAX_BYTES:
            problems.append((file, f"is left out, as the later parts of the log have {length:,} bytes"))
            continue
        try:
            with opened(file, root) as stream:
                content = stream.read(MAX_BYTES + 1)
            data = unpacked(content)
            budget.take(len(data))
        except OSError as problem:
            problems.append((file, problem.strerror or str(problem)))
            continue
        if is_archive(data):
            problems.append((file, "is an archive, of which nothing was read; expected the files that are in it"))
            continue
        length += len(data)
        texts.insert(0, plain(decoded(data)).removesuffix("\n"))
        most = most_bytes(content)
        if len(content) > most or (len(data) >= most and data != content):
            problems.append((file, f"is longer than {most:,} bytes, and was read no further"))
    return "\n".join(texts) if texts else None, problems
