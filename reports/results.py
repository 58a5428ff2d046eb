"""`--results FILE`: one JSON record per check and node, each on disk as soon as it is formed."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import TextIO

from clusterproof.plugins.result import Result, from_json


class ResultsFile:
    """A JSON Lines file that is written line by line, so that a run that breaks off loses nothing."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A lone half of a surrogate pair, which UTF-8 cannot hold, becomes `\ud800`: JSON's own word for it.
        self._file: TextIO = path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)

    def write(self, result: Result) -> None:
        """Append one result."""
        self._file.write(f"{_in_json(result.to_json())}\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_in_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def read_results(path: Path) -> list[Result]:
    """The results of a file that ResultsFile wrote."""
    return [from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]
