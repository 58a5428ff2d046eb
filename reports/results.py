"""`--results FILE`: one JSON record per check and node, each on disk as soon as it is formed."""

from __future__ import annotations

import json
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

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
    """`Result.to_json` as JSON in one line. Most of its members are those of other nodes."""
    values = _values(result)
    own, shared, further = values[:_FIRST], values[_FIRST:_LAST], values[_LAST:]
    return f'{{"schema":{SCHEMA},{_members(_OWN, own)},{_shared_members(shared)},{_members(_FURTHER, further)}}}'


def _members(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    texts = (repr(data) if type(data) is float else _in_json(data) for data in values)
    return ",".join(f'"{name}":{text}' for name, text in zip(names, texts, strict=True))


CACHED = 4_096  # texts as JSON
_NAMES = names_of(Result)
_values = attrgetter(*_NAMES)
_FIRST, _LAST = _NAMES.index("verdict"), _NAMES.index("gpu_uuids")  # what is shared stands between
_OWN, _SHARED, _FURTHER = _NAMES[:_FIRST], _NAMES[_FIRST:_LAST], _NAMES[_LAST:]
_in_json = lru_cache(CACHED, typed=True)(json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode)
_shared_members = lru_cache(CACHED)(partial(_members, _SHARED))


def read_results(path: Path) -> list[Result]:
    """The results of a file that ResultsFile wrote."""
    return [from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]
