"""Where pytest prints to: when the reader has gone, or the disk is full, the run goes on to its reports."""

from __future__ import annotations

import os
from typing import Any, TextIO


class Outlet:
    """A text stream that falls silent where the one behind it can take no more; all else of it is unchanged."""

    def __init__(self, behind: TextIO) -> None:
        self._behind = behind

    def write(self, text: str) -> int:
        """Write, or drop it."""
        try:
            return self._behind.write(text)
        except OSError:
            self._fall_silent()
            return len(text)

    def flush(self) -> None:
        """Flush, or drop what is left."""
        try:
            self._behind.flush()
        except OSError:
            self._fall_silent()

    def _fall_silent(self) -> None:
        """Lead the descriptor to nothing: else Python complains of what it holds back when it ends."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._behind.fileno())
        os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)
