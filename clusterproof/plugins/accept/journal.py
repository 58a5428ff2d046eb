"""The journal of an acceptance: every run that ended, as soon as it did, with the digests of its evidence. JSON Lines.

The first line says of which cluster and plan it is. A run without its line did not end, and does not count.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.opened import opened, read_whole
from clusterproof.plugins.core.record import as_json, record
from clusterproof.plugins.core.written import appendable

SCHEMA = "clusterproof acceptance 1"
FILE = "journal.jsonl"
DIGESTS = "SHA256SUMS"  # of a run's folder: a line for each file, as sha256sum -c reads it
MAX_BYTES = 1 << 28
BLOCK = 1 << 20


class JournalError(ClusterproofError, ValueError):
    """A journal that cannot be gone on with; the message is one line."""


@record
class Ended:
    """One run that ended. Times are seconds since 1970, UTC; `evidence` is the digest of its DIGESTS."""

    stage: str
    number: int  # of the stage's runs, from 0
    nodes: tuple[str, ...]
    command: tuple[str, ...]
    exit_code: int
    began: float
    ended: float
    folder: str
    evidence: str


@record
class Again:
    """Nodes that were repaired or replaced: what was measured of them before counts no more."""

    nodes: tuple[str, ...]
    at: float


Line = Ended | Again


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
    except (ValueError, KeyError, TypeError) as problem:
        if isinstance(problem, JournalError):
            raise
        raise JournalError(f"{path} cannot be read ({problem}); expected a journal of clusterproof accept") from None


def _line(data: dict[str, Any]) -> Line:
    if "again" in data:
        return Again(tuple(map(str, data["again"])), float(data["at"]))
    data["nodes"], data["command"] = tuple(data["nodes"]), tuple(data["command"])
    return Ended(**data)


class Writer:
    """An open journal: each line is on the disk before anything else begins."""

    def __init__(self, folder: Path, cluster: str, digest: str) -> None:
        """Begin one, or go on behind its last whole line. Raises OSError."""
        self._file: IO[bytes] = appendable(folder / FILE)
        self._file.seek(0)
        text = self._file.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            self._file.truncate(whole)
        if not whole:
            self._write({"schema": SCHEMA, "cluster": cluster, "plan": digest})

    def append(self, line: Line) -> None:
        """Keep one. Raises OSError."""
        data = as_json(line)
        self._write({"again": list(line.nodes), "at": line.at} if isinstance(line, Again) else data)

    def _write(self, data: object) -> None:
        self._file.write(json.dumps(data).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def sealed(folder: Path) -> str:
    """Write the digest of each file of a run beside them; the digest of that. Raises OSError."""
    lines = [f"{_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in _files(folder)]
    text = "".join(lines).encode("utf-8", "surrogateescape")
    (folder / DIGESTS).write_bytes(text)
    return hashlib.sha256(text).hexdigest()


def altered(folder: Path, evidence: str) -> str:
    """What of a run's evidence is not what it was when the run ended; empty where all is. Raises OSError."""
    text = (folder / DIGESTS).read_bytes()
    if hashlib.sha256(text).hexdigest() != evidence:
        return DIGESTS
    for line in text.decode("utf-8", "surrogateescape").splitlines():
        digest, _, name = line.partition("  ")
        try:
            if _digest(folder / name) != digest:
                return name
        except OSError:
            return name
    return ""


def _files(folder: Path) -> Sequence[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.name != DIGESTS
    )


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
