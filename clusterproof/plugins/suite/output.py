"""What a run prints goes on where nobody reads it any more, and is missed where a disk has no room for it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO

import pytest

from clusterproof.plugins.core.opened import NO_ROOM
from clusterproof.plugins.suite.state import note_full


class FailSafeStream:
    """A text stream that falls silent where the one behind it can take no more; all else of it is unchanged."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.problem: OSError | None = None  # a disk without room for the rest; a reader who went away is none

    def write(self, text: str) -> int:
        """Write, or drop it."""
        try:
            return self._stream.write(text)
        except OSError as problem:
            self._fall_silent(problem)
            return len(text)

    def flush(self) -> None:
        """Flush, or drop what is left."""
        try:
            self._stream.flush()
        except OSError as problem:
            self._fall_silent(problem)

    def _fall_silent(self, problem: OSError) -> None:
        """Lead the descriptor to nothing: else Python complains of what it holds back when it ends."""
        if problem.errno in NO_ROOM:
            self.problem = problem
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)

    def end(self, config: pytest.Config) -> None:
        """Say where somebody still reads it that not all was written, for want of room: the run ends by that."""
        self.flush()
        if self.problem:
            note_full(config, self.problem)
            with suppress(OSError):
                sys.stderr.write(f"clusterproof: the answer could not be written: {self.problem.strerror}\n")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
