"""Writes a node's samples: JSON lines in frames of zstd, each closed, so that a cut file loses its tail only."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zstandard

from clusterproof.plugins.core.opened import append, appendable
from clusterproof.plugins.training_run.rank_processes import SOURCE, RankLook
from clusterproof.plugins.training_run.sample_columns import Header

LINES = 6  # in a frame: a minute at 10 s. One of 30 lines is smaller by a tenth
_COMPRESSOR = zstandard.ZstdCompressor(level=3, write_checksum=True)
_DECOMPRESSOR = zstandard.ZstdDecompressor()
_PIECE = 1 << 20


class SamplesFile:
    """The file of one node. A write that fails leaves the file as it was, and its lines to the next."""

    def __init__(self, path: Path) -> None:
        """Go on behind the last frame that is whole. Raises OSError."""
        self.path = path
        self._lines: list[str] = []
        if os.path.lexists(path):
            with appendable(path) as file:
                whole = whole_frames(path)
                if whole < os.fstat(file.fileno()).st_size:
                    file.truncate(whole)

    def begin(self, header: Header) -> None:
        """A line that says what the next samples are. Raises OSError."""
        self._lines.append(_line(header.to_json()))
        self.flush()

    def sample(self, time_s: float, values: Sequence[float | None]) -> None:
        """The values of a moment, in the order of the header's columns. Raises OSError."""
        self._lines.append(_line([round(time_s, 2), *values]))
        if len(self._lines) >= LINES:
            self.flush()

    def event(self, time_s: float, source: str, text: str) -> None:
        """Something that happened at a moment. Raises OSError."""
        self._lines.append(_line({"event": {"time": round(time_s, 2), "source": source, "text": text}}))
        self.flush()

    def ranks(self, time_s: float, looks: Sequence[RankLook]) -> None:
        """What the processes of ranks did at a moment. Raises OSError."""
        rows = [look.to_json() for look in looks]
        event = {"time": round(time_s, 2), "source": SOURCE, "text": "", "ranks": rows}
        self._lines.append(_line({"event": event}))
        if len(self._lines) >= LINES:
            self.flush()

    def gap(self, began: float, ended: float, why: str) -> None:
        """A stretch of time of which nothing is known, in seconds since 1970. Raises OSError."""
        self._lines.append(_line({"gap": {"from": round(began, 3), "to": round(ended, 3), "why": why}}))
        self.flush()

    def flush(self) -> None:
        """Write all lines so far as one frame, whole or not at all. Raises OSError."""
        if not self._lines:
            return
        frame = _COMPRESSOR.compress("".join(self._lines).encode())
        with appendable(self.path) as file:
            append(file, file.seek(0, os.SEEK_END), frame)
        self._lines.clear()

    def forget(self) -> int:
        """Let go of what could not be written; how many lines that is."""
        count = len(self._lines)
        self._lines.clear()
        return count


def whole_frames(path: Path) -> int:
    """Up to which byte a file consists of whole frames. Raises OSError."""
    whole = read = 0
    frame = _DECOMPRESSOR.decompressobj()
    with path.open("rb") as file:
        rest = b""
        while piece := rest or file.read(_PIECE):
            read += 0 if rest else len(piece)
            try:
                frame.decompress(piece)
            except zstandard.ZstdError:
                break
            rest = b""
            if frame.eof:
                rest = frame.unused_data
                whole = read - len(rest)
                frame = _DECOMPRESSOR.decompressobj()
    return whole


def _line(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n"
