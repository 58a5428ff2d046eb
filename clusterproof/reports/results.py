"""`--results FILE`: one JSON record per check and node, each on disk as soon as it is formed."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from clusterproof.plugins.core.opened import append, created
from clusterproof.plugins.core.result import Result
from clusterproof.reports.records import Described, read

PART = ".part"  # behind the name of a file that a full disk ended


class ResultsFile:
    """A JSON Lines file that is written line by line, so that a run that breaks off loses nothing."""

    def __init__(self, path: Path, *, is_named: bool = True) -> None:
        """Begin it anew. Where the command line names it, it may be a pipe or a link. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0) if is_named else created(path)
        self._written = (0, 0)  # bytes and results: one value, so that a signal finds both or neither
        self._described = Described()
        self._path = path
        self._is_regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        if self._is_regular:
            with suppress(OSError):
                self._part.unlink(missing_ok=True)  # of an earlier run

    @property
    def _part(self) -> Path:
        return self._path.with_name(f"{self._path.name}{PART}")

    @property
    def count(self) -> int:
        """How many results are in it."""
        return self._written[1]

    def write_rest(self, results: Sequence[Result]) -> None:
        """Append those of all results that are not in it. Raises OSError, as `write` does."""
        for result in results[self.count :]:
            self.write(result)

    def write(self, result: Result) -> None:
        """Append one result, whole or not at all. Raises OSError: the file is closed then, and no longer of its name.

        Who reads it would take the nodes that it speaks of as checked, where nothing says that others are missing.
        """
        whole, count = self._written
        if self._is_regular and self._file.tell() != whole:  # a signal came between a line and its end here
            self._file.truncate(whole)
            self._file.seek(whole)
        # A lone half of a surrogate pair, which UTF-8 cannot hold, becomes `\ud800`: JSON's own word for it.
        text = "".join(f"{line}\n" for line in self._described.lines(result))
        data = text.encode("utf-8", "backslashreplace")
        try:
            append(self._file, whole, data)
        except OSError as problem:
            self.close()
            self._put_aside()
            raise OSError(problem.errno, problem.strerror, str(self._path)) from None
        self._written = (whole + len(data), count + 1)
        self._described.add(result)

    def _put_aside(self) -> None:
        """Call it `results.jsonl.part`, which takes no room."""
        if self._is_regular and not self._path.is_symlink():
            with suppress(OSError):
                self._path.replace(self._part)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_results(path: Path) -> list[Result]:
    """The results of a file that ResultsFile wrote. Raises OSError, and ValueError where it is none."""
    return list(read(line for line in path.read_text(encoding="utf-8").split("\n") if line))
