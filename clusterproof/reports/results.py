"""`--results FILE`: a JSON record per check and node, written as soon as it is known; and reading such files."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from clusterproof.plugins.core.opened import append, created
from clusterproof.plugins.core.result import SCHEMA, SEVERITIES, Result, from_json, split_message
from clusterproof.plugins.core.verdict import Verdict

PART = ".part"  # suffix of a file that a full disk ended


class ResultsFile:
    """A JSON Lines file that is written line by line, so that an interrupted run loses nothing."""

    def __init__(self, path: Path, *, is_named: bool = True) -> None:
        """Create it. If the command line names it, it may be a pipe or a link. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=0) if is_named else created(path)
        self._written = (0, 0)  # bytes and results: one value, so that a signal handler sees both or neither
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
        """The number of results in it."""
        return self._written[1]

    def write_rest(self, results: Sequence[Result]) -> None:
        """Append those of all results that are missing. Raises OSError, as `write` does."""
        for result in results[self.count :]:
            self.write(result)

    def write(self, result: Result) -> None:
        """Append one result atomically. Raises OSError: the file is then closed and renamed.

        Otherwise readers would consider its nodes fully checked, because nothing shows that others are missing.
        """
        complete_bytes, count = self._written
        if self._is_regular and self._file.tell() != complete_bytes:  # a signal interrupted this write earlier
            self._file.truncate(complete_bytes)
            self._file.seek(complete_bytes)
        # An unpaired surrogate, which UTF-8 cannot encode, becomes `\ud800`, as in JSON.
        text = "".join(f"{line}\n" for line in self._described.lines(result))
        content = text.encode("utf-8", "backslashreplace")
        try:
            append(self._file, complete_bytes, content)
        except OSError as problem:
            self.close()
            self._put_aside()
            raise OSError(problem.errno, problem.strerror, str(self._path)) from None
        self._written = (complete_bytes + len(content), count + 1)
        self._described.add(result)

    def _put_aside(self) -> None:
        """Rename it to `results.jsonl.part`, which needs no space."""
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
    """The results in a file written by ResultsFile. Raises OSError, and ValueError if it is invalid."""
    return list(read(line for line in path.read_text(encoding="utf-8").split("\n") if line))


CHECK_KEYS = ("title", "owner", "section", "evidence", "meaning", "remedy", "subsystem", "subject", "team")
NODE_KEYS = ("instance_type", "gpu_uuids")
FULL_VERDICTS = (Verdict.FAIL, Verdict.CONCERN)  # records with everything repeated, for readers of findings only
SILENT = (Verdict.PASS, Verdict.NOT_APPLICABLE)  # verdicts without findings

MIN_DURATION_S = 0.001  # shorter durations are omitted

_IMPLIED = ("severity", "observed", "expected", "findings")
_OWN = ("message", "devices", "cause", "since_last", "action")
_check_values, _node_values, _own = attrgetter(*CHECK_KEYS), attrgetter(*NODE_KEYS), attrgetter(*_OWN, *_IMPLIED)
_NOTHING = ("", (), "", "", "", "none", "", "", ())
_DEFAULTS = Result("", "", Verdict.PASS).to_json()
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Described:
    """The checks and nodes described so far, which records need not repeat."""

    def __init__(self) -> None:
        self._checks: dict[str, tuple[Any, ...]] = {}
        self._nodes: dict[str, tuple[Any, ...]] = {}

    def add(self, result: Result) -> None:
        """Mark its check and its node as described."""
        self._checks.setdefault(result.check, _check_values(result))
        self._nodes.setdefault(result.node, _node_values(result))

    def lines(self, result: Result) -> Iterator[str]:
        """The result as one line of JSON; preceded by descriptions of its check and node, if new."""
        if result.check not in self._checks:
            yield _encode({"schema": SCHEMA, "describes": "check", **_picked(result.to_json(), ("check", *CHECK_KEYS))})
        if result.node not in self._nodes:
            yield _encode({"schema": SCHEMA, "describes": "node", **_picked(result.to_json(), ("node", *NODE_KEYS))})
        yield _encode(result.to_json() if result.verdict in FULL_VERDICTS else self._short(result))

    def _short(self, result: Result) -> dict[str, Any]:
        """What a reader could not restore from the preceding lines."""
        record: dict[str, Any] = {"check": result.check, "node": result.node, "verdict": result.verdict.value}
        if result.duration_s >= MIN_DURATION_S:
            record["duration_s"] = result.duration_s
        names: list[str] = []
        if self._checks.get(result.check, values := _check_values(result)) != values:
            names += CHECK_KEYS
        if self._nodes.get(result.node, values := _node_values(result)) != values:
            names += NODE_KEYS
        if names or _own(result) != _NOTHING:
            document = result.to_json()
            names += [name for name in _OWN if document[name]]
            names += [name for name, value in _implied(document).items() if document[name] != value]
            record |= _picked(document, names)
        return record


def lines_of(results: Iterable[Result]) -> Iterator[str]:
    """All lines of a file with these results."""
    described = Described()
    for result in results:
        yield from described.lines(result)
        described.add(result)


def read(lines: Iterable[str]) -> Iterator[Result]:
    """The results in such lines; also schema 1 and 2, whose records are all complete. Raises ValueError."""
    described: dict[tuple[str, str], dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            result = _read(json.loads(line), described)
        except (AttributeError, KeyError, TypeError) as problem:
            why = f"{type(problem).__name__}: {problem}"
            raise ValueError(
                f"line {number} is not a record of results ({why}); expected what --results wrote"
            ) from None
        if result:
            yield result


def _read(record: dict[str, Any], described: dict[tuple[str, str], dict[str, Any]]) -> Result | None:
    """A line's result; None for a description of a check or a node, which is kept. Raises ValueError and others."""
    kind = record.get("describes")
    if kind:
        described[kind, record[kind]] = record
        return None
    if "schema" in record:
        return from_json(record)
    given = {**_DEFAULTS, **_about(described, record), **record}
    return from_json({**given, **_implied(given), **record})


def _about(described: Mapping[tuple[str, str], dict[str, Any]], record: Mapping[str, Any]) -> dict[str, Any]:
    """The descriptions of its check and its node. Raises ValueError."""
    try:
        return {**described["check", record["check"]], **described["node", record["node"]]}
    except KeyError as name:
        raise ValueError(f"{name} is not described before its first result; expected the file from its start") from None


def _picked(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: record[name] for name in names}


def _implied(record: Mapping[str, Any]) -> dict[str, Any]:
    """The values implied by a record's verdict, message, devices and cause."""
    verdict = Verdict(record["verdict"])
    observed, expected = split_message(record["message"].partition("\n")[0])
    devices = record["devices"]
    finding = {
        "verdict": verdict.value,
        "message": record["message"].removeprefix(f"{', '.join(devices)}: ") if devices else record["message"],
        **_picked(record, ("devices", "cause", "action")),
    }
    return {
        "severity": SEVERITIES.get(verdict, "none"),
        "observed": observed,
        "expected": expected,
        "findings": [] if verdict in SILENT else [finding],
    }
