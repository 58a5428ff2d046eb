"""What was said, kept as lines of JSON: written whole or not at all, and read by the next watch that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.core.written import append, appendable
from clusterproof.plugins.watch.states import Change, Key, Kind

CHANGES_FILE = "changes.jsonl"
MAX_MESSAGE = 2_000
_END_BYTES = 1 << 16


def append_changes(path: Path, changes: Iterable[Change], wall_s: float) -> None:
    """A line for each, behind the last line that is whole. Raises OSError, and then the file is as it was."""
    data = "".join(_line(change, wall_s) for change in changes).encode()
    with appendable(path) as file:
        size = _whole_lines(file)
        file.truncate(size)
        append(file, size, data)


def read_changes(path: Path) -> Iterator[Change]:
    """What another watch has said, in seconds since 1970. A line that holds no change is skipped. Raises OSError."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield _change(json.loads(line))
            except (ArithmeticError, ValueError, TypeError, LookupError, RecursionError):
                continue  # written by another version, or torn


def _whole_lines(file: Any) -> int:
    """Up to where a file that is open consists of whole lines."""
    end: int = file.seek(0, 2)
    while end:
        begin = max(0, end - _END_BYTES)
        file.seek(begin)
        found: int = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _line(change: Change, wall_s: float) -> str:
    data = {
        "time": round(wall_s, 3),
        "kind": change.kind.value,
        "node": change.key.node,
        "device": change.key.device,
        "rule": change.key.rule,
        "verdict": change.verdict.value,
        "message": change.message,
    }
    return json.dumps(data) + "\n"


def _change(data: Any) -> Change:
    """Raises ArithmeticError, ValueError, TypeError, LookupError where it is none."""
    names = [data[key] for key in ("node", "device", "rule", "message")]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("no text")
    node, device, rule, message = names
    key = Key(node, printable(device, MAX_MESSAGE), printable(rule, MAX_MESSAGE))
    words = printable(message, MAX_MESSAGE)
    return Change(Kind(data["kind"]), key, Verdict(data["verdict"]), words, float(data["time"]))
