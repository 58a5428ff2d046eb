"""`--results FILE`: one JSON record per check and node, each on disk as soon as it is formed."""

from __future__ import annotations

import json
from functools import lru_cache
from operator import add, attrgetter
from pathlib import Path
from types import TracebackType

from clusterproof.plugins.core.record import names_of
from clusterproof.plugins.core.result import SCHEMA, Result, from_json
from clusterproof.plugins.core.whole_writes import append


class ResultsFile:
    """A JSON Lines file that is written line by line, so that a run that breaks off loses nothing."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0)
        self._whole = 0  # bytes
        self._name = str(path)

    def write(self, result: Result) -> None:
        """Append one result, whole or not at all. Raises OSError, and then the file is closed."""
        # A lone half of a surrogate pair, which UTF-8 cannot hold, becomes `\ud800`: JSON's own word for it.
        line = f"{as_line(result)}\n".encode("utf-8", "backslashreplace")
        try:
            append(self._file, self._whole, line)
        except OSError as problem:
            self.close()
            raise OSError(problem.errno, problem.strerror, self._name) from None
        self._whole += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def as_line(result: Result) -> str:
    """`Result.to_json` as JSON in one line. Most of its texts are those of the records before."""
    values = (repr(data) if type(data) is float else _in_json(data) for data in _values(result))
    return f'{{"schema":{SCHEMA},{",".join(map(add, _KEYS, values))}}}'


REMEMBERED = 4_096  # texts as JSON
_values = attrgetter(*names_of(Result))
_KEYS = [f'"{name}":' for name in names_of(Result)]
_in_json = lru_cache(REMEMBERED, typed=True)(json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode)


def read_results(path: Path) -> list[Result]:
    """The results of a file that ResultsFile wrote."""
    return [from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]
