"""The journal of an acceptance (JSON Lines): every run as it ends, with digests of its evidence.

The first line says of which cluster and plan it is. A run without its line did not end, and does not count.
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
DIGESTS = "SHA256SUMS"  # of a run's folder: a line for each file, as sha256sum -c reads it
MAX_BYTES = 1 << 28
MAX_DIGESTS = 1 << 26
BLOCK = 1 << 20
LATEST = 1e11  # seconds since 1970 that a date can still say
_FOLDER = re.compile(r"runs/[0-9]{4,9}-[a-z]{1,40}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class JournalError(ClusterproofError, ValueError):
    """A journal that the acceptance cannot continue; the message is one line."""


@record
class EndedRun:
    """One run that ended. Times are seconds since 1970, UTC; `evidence` is the digest of its DIGESTS."""

    stage: str
    number: int  # of the stage's runs, from 0
    nodes: tuple[str, ...]
    command: tuple[str, ...]
    exit_code: int
    began: float
    ended: float
    seconds: float  # that it took, which a clock that is set does not change where this process saw its end
    folder: str
    evidence: str


@record
class RepairedNodes:
    """Nodes that were repaired or replaced: earlier measurements of them no longer count."""

    nodes: tuple[str, ...]
    at: float


Line = EndedRun | RepairedNodes


def read(folder: Path, cluster: str, digest: str) -> list[Line]:
    """The lines of a folder's journal; none where there is none yet. Raises JournalError, OSError."""
    path = folder / FILE
    try:
        lines = read_whole(path, MAX_BYTES, folder, is_own=True).decode().split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise JournalError(f"{path} is not UTF-8; expected a journal of clusterproof accept") from None
    whole = lines[:-1]  # a line that a kill cut short is none
    if not whole:
        return []
    try:
        head = json.loads(whole[0])
        known = {"schema": SCHEMA, "cluster": cluster, "plan": digest}
        for key, due in known.items():
            if head[key] != due:
                raise JournalError(f"{path} has the {key} {head[key]!r:.100}; expected {due!r:.100}, or another --into")
        return [_line(json.loads(line)) for line in whole[1:] if line]
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
    """An open journal: each line is synced to disk before the next run begins."""

    def __init__(self, folder: Path, cluster: str, digest: str) -> None:
        """Begin one, or go on behind its last whole line. Raises OSError."""
        self._file: FileIO = appendable(folder / FILE)
        self._file.seek(0)
        text = self._file.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            self._file.truncate(whole)
        if not whole:
            self._write({"schema": SCHEMA, "cluster": cluster, "plan": digest})

    def append(self, line: Line) -> None:
        """Keep one. Raises OSError."""
        record = as_json(line)
        self._write({"again": list(line.nodes), "at": line.at} if isinstance(line, RepairedNodes) else record)

    def _write(self, record: object) -> None:
        append(self._file, os.fstat(self._file.fileno()).st_size, json.dumps(record).encode() + b"\n")
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def sealed(folder: Path) -> str:
    """Write the digest of each file of a run beside them; the digest of that. Raises OSError."""
    lines = [f"{_digest(path, folder)}  {path.relative_to(folder).as_posix()}\n" for path in _files(folder)]
    text = "".join(lines).encode("utf-8", "surrogateescape")
    (folder / DIGESTS).write_bytes(text)
    return hashlib.sha256(text).hexdigest()


def altered(folder: Path, evidence: str) -> str:
    """What of a run's evidence is not what it was when the run ended; empty where all is. Raises OSError."""
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
    """All that is no folder, but the digests."""
    return sorted(
        path for path in folder.rglob("*") if (path.is_symlink() or not path.is_dir()) and path != folder / DIGESTS
    )


def _digest(path: Path, folder: Path) -> str:
    """Raises OSError: also of a link, or of what is no file."""
    digest = hashlib.sha256()
    with opened(path, folder) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
