"""The file with all changes that a watch reported, a line each, which the next watch in its folder goes on from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.opened import append, appendable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import ALSO, Change, ChangeKind, Key

CHANGES_FILE = "changes.jsonl"
MAX_MESSAGE = 2_000
_END_BYTES = 1 << 16


def append_changes(path: Path, changes: Iterable[Change], wall_s: float) -> None:
    """Append a line for each change after the last complete line. Raises OSError, with the file unchanged."""
    data = "".join(_line(change, wall_s) for change in changes).encode()
    with appendable(path) as file:
        size = _complete_length(file)
        file.truncate(size)
        append(file, size, data)


def read_changes(path: Path) -> Iterator[Change]:
    """Read the changes of another watch of this user's, in seconds since 1970. Invalid lines are skipped.

    Raises OSError, also for another user's file: what it says is open would not be reported again.
    """
    with BufferedReader(appendable(path)) as file:
        file.seek(0)
        for line in file:
            try:
                yield _change(json.loads(line))
            except (ArithmeticError, ValueError, TypeError, LookupError, RecursionError):
                continue  # from another version, or truncated


def _complete_length(file: FileIO) -> int:
    """The length of an open file up to the end of its last complete line."""
    end = file.seek(0, 2)
    while end:
        begin = max(0, end - _END_BYTES)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _line(change: Change, wall_s: float) -> str:
    record = {
        "time": round(wall_s, 3),
        "kind": change.kind.value,
        "node": change.key.node,
        "device": change.key.device,
        "rule": change.key.rule,
        "verdict": change.verdict.value,
        "message": change.message,
        "findings": change.findings,
    }
    return json.dumps(record) + "\n"


def _change(record: Any) -> Change:
    """Raises ArithmeticError, ValueError, TypeError or LookupError for an invalid record."""
    names = [record[key] for key in ("node", "device", "rule", "message")]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("no text")
    node, device, rule, message = names
    key = Key(node, printable(device, MAX_MESSAGE), printable(rule, MAX_MESSAGE))
    text = printable(message, MAX_MESSAGE)
    findings = record.get("findings", message.count(ALSO) + 1)  # files of older versions lack the value
    if type(findings) is not int or findings < 1:
        raise TypeError("no count")
    return Change(ChangeKind(record["kind"]), key, Verdict(record["verdict"]), text, float(record["time"]), findings)
