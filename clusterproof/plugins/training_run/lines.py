"""Lines of a text file that somebody else wrote: bounded, and decoded strictly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clusterproof.plugins.training_run.records import RunError
from clusterproof.plugins.training_run.unpacked import RunFile, Unpacked

MAX_LINE = 1 << 20  # bytes


class Lines:
    """The lines of a file with their numbers. What a file that was cut has lost is its last line at most."""

    def __init__(self, path: RunFile, errors: str = "strict") -> None:
        self.path = path
        self.errors = errors  # as codecs have it: lines of a log that do not matter may hold anything
        self.number = 0
        self.is_cut = False  # in the line that was last read, as far as can be seen

    @property
    def where(self) -> str:
        """`trace.csv:12`."""
        return f"{self.path}:{self.number}"

    def __iter__(self) -> Iterator[str]:
        """Each line without its end. Raises RunError."""
        rest = b""
        for piece in Unpacked(self.path):
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield self._text(line)
            if len(rest) > MAX_LINE:
                self.number += 1
                raise RunError(f"{self.where}: no end of it; expected lines of less than {MAX_LINE:,} bytes")
        if rest:
            self.is_cut = True
            yield self._text(rest)

    def _text(self, line: bytes) -> str:
        self.number += 1
        if len(line) > MAX_LINE:
            raise RunError(f"{self.where}: {len(line):,} bytes; expected lines of less than {MAX_LINE:,} bytes")
        try:
            text = line.decode("utf-8", "replace" if self.is_cut else self.errors)
        except UnicodeDecodeError as wrong:
            raise RunError(f"{self.where}: byte {wrong.start} is not UTF-8; expected text") from None
        return text.removeprefix("\ufeff").rstrip("\r") if self.number == 1 else text.rstrip("\r")


def json_lines(lines: Lines, expected: str) -> Iterator[Any]:
    """What each line has; a last one that is no JSON is the tail that a file has lost. Raises RunError."""
    broken = ""
    for line in lines:
        if not line.strip():
            continue
        if broken:
            raise RunError(broken)
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            broken = f"{lines.where}: {line!r:.60} is not JSON; {expected}"
            continue
        yield data
    lines.is_cut = bool(broken)
