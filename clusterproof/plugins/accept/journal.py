"""The journal of an acceptance: each finished run with digests of its evidence, written at once. JSON Lines.

The first line identifies the cluster and the plan. A run without a line did not end, and does not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.opened import append, appendable, opened, read_whole
from clusterproof.plugins.core.record import as_json, names_of, record

if TYPE_CHECKING:
    from io import FileIO

SCHEMA = "clusterproof acceptance 1"
FILE = "journal.jsonl"
DIGESTS = "SHA256SUMS"  # in a run's folder: a line for each file, in the format of sha256sum -c
MAX_BYTES = 1 << 28
MAX_DIGESTS = 1 << 26
BLOCK = 1 << 20
LATEST = 1e11  # seconds since 1970: the latest representable date
_FOLDER = re.compile(r"runs/[0-9]{4,9}-[a-z]{1,40}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class JournalError(ClusterproofError, ValueError):
    """A journal that cannot be continued; the message is one line."""


@record
class EndedRun:
    """One finished run. Times are seconds since 1970, UTC; `evidence` is the digest of its DIGESTS."""

    stage: str
    number: int  # number within the stage, from 0
    nodes: tuple[str, ...]
    command: tuple[str, ...]
    exit_code: int
    began: float
    ended: float
    seconds: float  # duration, independent of clock changes if this process saw the end
    folder: str
    evidence: str


@record
class RepairedNodes:
    """Nodes that were repaired or replaced: their earlier measurements no longer count."""

    nodes: tuple[str, ...]
    at: float


Line = EndedRun | RepairedNodes


def read(folder: Path, cluster: str, digest: str) -> list[Line]:
    """The lines of a folder's journal; empty if there is none yet. Raises JournalError, OSError."""
    path = folder / FILE
    try:
        lines = read_whole(path, MAX_BYTES, folder, is_own=True).decode().split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise JournalError(f"{path} is not UTF-8; expected a journal of clusterproof accept") from None
    complete = lines[:-1]  # drops a line that was cut by a kill
    if not complete:
        return []
    try:
        head = json.loads(complete[0])
        known = {"schema": SCHEMA, "cluster": cluster, "plan": digest}
        for key, due in known.items():
            if head[key] != due:
                raise JournalError(f"{path} has the {key} {head[key]!r:.100}; expected {due!r:.100}, or another --into")
        return [_line(json.loads(line)) for line in complete[1:] if line]
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        if isinstance(problem, JournalError):
            raise
        raise JournalError(
            f"{path} cannot be read ({problem!s:.200}); expected a journal of clusterproof accept"
        ) from None


def _line(record: Any) -> Line:
    """Raises ValueError, KeyError, TypeError."""
    if not isinstance(record, dict):
        raise TypeError("a line is not a JSON object")
    if "again" in record:
        return RepairedNodes(_texts(record, "again"), _number(record, "at"))
    if set(record) != set(names_of(EndedRun)):
        raise ValueError(f"a run has {', '.join(sorted(record)):.100}")
    if not (_FOLDER.fullmatch(record["folder"]) and _DIGEST.fullmatch(record["evidence"])):
        raise ValueError("a run has another folder, or another digest")
    return EndedRun(
        str(record["stage"]),
        _whole(record, "number"),
        _texts(record, "nodes"),
        _texts(record, "command"),
        _whole(record, "exit_code"),
        _number(record, "began"),
        _number(record, "ended"),
        _number(record, "seconds"),
        record["folder"],
        record["evidence"],
    )


def _texts(record: dict[str, Any], name: str) -> tuple[str, ...]:
    values = record[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} is not a list of texts")
    return tuple(values)


def _whole(record: dict[str, Any], name: str) -> int:
    if type(record[name]) is not int:
        raise ValueError(f"{name} is not a whole number")
    return int(record[name])


def _number(record: dict[str, Any], name: str) -> float:
    """0 or more."""
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < LATEST:
        raise ValueError(f"{name} is {value!r:.40}")
    return float(value)


class JournalWriter:
    """An open journal: each line is synced to disk before anything else begins."""

    def __init__(self, folder: Path, cluster: str, digest: str) -> None:
        """Create it, or append after its last complete line. Raises OSError."""
        self._file: FileIO = appendable(folder / FILE)
        self._file.seek(0)
        text = self._file.read()
        complete_bytes = text.rfind(b"\n") + 1
        if complete_bytes < len(text):
            self._file.truncate(complete_bytes)
        if not complete_bytes:
            self._write({"schema": SCHEMA, "cluster": cluster, "plan": digest})

    def append(self, line: Line) -> None:
        """Append an entry. Raises OSError."""
        record = as_json(line)
        self._write({"again": list(line.nodes), "at": line.at} if isinstance(line, RepairedNodes) else record)

    def _write(self, record: object) -> None:
        append(self._file, os.fstat(self._file.fileno()).st_size, json.dumps(record).encode() + b"\n")
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def sealed(folder: Path) -> str:
    """Write the digests of all files of a run into its folder; returns their digest. Raises OSError."""
    lines = [f"{_digest(path, folder)}  {path.relative_to(folder).as_posix()}\n" for path in _files(folder)]
    text = "".join(lines).encode("utf-8", "surrogateescape")
    (folder / DIGESTS).write_bytes(text)
    return hashlib.sha256(text).hexdigest()


def altered(folder: Path, evidence: str) -> str:
    """What has changed in a run's evidence since it ended; empty if nothing. Raises OSError."""
    text = read_whole(folder / DIGESTS, MAX_DIGESTS, folder)
    if hashlib.sha256(text).hexdigest() != evidence:
        return DIGESTS
    known = set()
    for line in text.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        digest, _, name = line.partition("  ")
        try:
            if _digest(folder / name, folder) != digest:
                return name
        except OSError:
            return name
        known.add(name)
    return min(
        (name for path in _files(folder) if (name := path.relative_to(folder).as_posix()) not in known), default=""
    )


def _files(folder: Path) -> list[Path]:
    """All files except the digests."""
    return sorted(
        path for path in folder.rglob("*") if (path.is_symlink() or not path.is_dir()) and path != folder / DIGESTS
    )


def _digest(path: Path, folder: Path) -> str:
    """Raises OSError: also for a link, or anything but a regular file."""
    digest = hashlib.sha256()
    with opened(path, folder) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
