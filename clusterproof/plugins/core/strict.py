"""Strict parsing of an inventory's files: an unknown key, wrong type or invalid number is a one-line error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.opened import NotOwnError, read_whole
from clusterproof.plugins.core.record import record

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any

EXPECTED = ("gpus", "nvlinks", "nvswitch", "efa", "ib", "trays")  # keys of `expect`
MAX_PARTS = 100  # of a key
MAX_WORD = 1_000  # characters of a key or a number
_QUOTED = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'")
_BETWEEN = re.compile(r"[,\[\]{}=]")
MAX_FILE_BYTES = 64 * 1024 * 1024  # of an inventory; 100,000 nodes take about 20 MB
_WORDS = {
    bool: "true or false",
    str: "text",
    int: "a whole number",
    float: "a number with a fraction",
    list: "a list",
    dict: "a table",
    type(None): "nothing",
}
_MAX_EXPECTED = 100_000
_EXPECTATION = re.compile(r"\s*([^=\s]+)\s*=\s*([0-9]{1,6})\s*")


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)`, or empty if no known word is close."""
    from difflib import get_close_matches  # rarely needed

    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def parse_expect(text: str) -> dict[str, int]:
    """Parse `--expect gpus=8,efa=32`; an empty text gives nothing. Raises InventoryError."""
    expected: dict[str, int] = {}
    for part in text.split(",") if text else []:
        match = _EXPECTATION.fullmatch(part)
        if not match:
            raise InventoryError(f"--expect {text!r:.80}: {part!r:.40} is not NAME=NUMBER; expected gpus=8,efa=32")
        name, count = match.groups()
        _known_expectation(name, f"--expect {text!r:.80}")
        if name in expected:
            raise InventoryError(f"--expect {text!r:.80} gives {name} twice; expected it once")
        expected[name] = int(count)
    return expected


def read_text(
    path: str | os.PathLike[str],
    expected: str,
    most_bytes: int = MAX_FILE_BYTES,
    below: str | os.PathLike[str] | None = None,
    *,
    is_own: bool = False,
) -> str:
    """The whole text of a file; `expected` says what it should have been.

    Raises InventoryError; NotOwnError if the file must be the caller's own and is not.
    """
    try:
        text = read_whole(path, most_bytes, below, is_own=is_own).decode("utf-8-sig")
    except NotOwnError:
        raise
    except UnicodeDecodeError as problem:
        raise InventoryError(f"{path}: byte {problem.start} is not UTF-8; expected {expected}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise InventoryError(f"{str(path)!r:.200}: {reason}; expected {expected}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_toml(text: str, name: str, described: str = "") -> dict[str, Any]:
    """Parse TOML; `name` is the file's name, `described` the document that describes its format.

    Raises InventoryError.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    see = f"; see {described}" if described else ""
    for number, line in enumerate(text.split("\n"), start=1):
        if _is_endless(line):
            raise InventoryError(f"{name} is not TOML: a key or number without end in line {number}{see}")
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InventoryError(f"{name} is not TOML: {problem}{see}") from None
    return document


def _is_endless(line: str) -> bool:
    """Whether a line has a key with so many parts, or a number with so many digits, that TOML parsers take forever."""
    if len(line) <= MAX_PARTS:
        return False
    bare = _QUOTED.sub('""', line).partition("#")[0]
    return any(word.count(".") > MAX_PARTS or len(word) > MAX_WORD for word in _BETWEEN.split(bare))


@record
class Table:
    """One table of a file, and its place in it (`cluster.toml [ssh]`). Each method raises InventoryError."""

    where: str
    values: Mapping[str, object]

    @classmethod
    def of(cls, where: str, value: object) -> Table:
        """Require `value` to be a table."""
        if not isinstance(value, Mapping):
            raise InventoryError(f"{where} is {_kind(value)}; expected a table")
        return cls(where, value)

    def only(self, *keys: str) -> None:
        """Reject unknown keys: mostly typos, which would silently have no effect."""
        for key in self.values:
            if key not in keys:
                raise InventoryError(
                    f"{self.where}: {key!r:.60} is not a known key{nearest(str(key), keys)}; expected {', '.join(keys)}"
                )

    def text(self, key: str, default: str | None = "") -> str:
        """A text without control characters; required if the default is None."""
        value = self.values.get(key, default)
        if value is None:
            raise InventoryError(f"{self.where} has no {key}; expected one")
        if not isinstance(value, str):
            raise InventoryError(f"{self.where}: {key} is {_kind(value)}; expected text")
        if key in self.values and not (value.strip() and value.isprintable()):
            raise InventoryError(f"{self.where}: {key} is {value!r:.60}; expected text on one line, and not empty")
        return value

    def number(self, key: str, least: int, most: int, default: int = 0) -> int:
        """A whole number between `least` and `most`."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InventoryError(f"{self.where}: {key} is {_kind(value)}; expected a whole number")
        if key in self.values and not least <= value <= most:
            raise InventoryError(f"{self.where}: {key} is {value!r:.30}; expected {least} to {most}")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false if missing."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise InventoryError(f"{self.where}: {key} is {_kind(value)}; expected true or false")
        return value

    def table(self, key: str) -> Table:
        """A table; empty if missing."""
        return Table.of(f"{self.where} [{key}]", self.values.get(key, {}))

    def tables(self, key: str) -> list[Table]:
        """A list of tables, numbered from 1 in messages."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise InventoryError(f"{self.where}: {key} is {_kind(value)}; expected a list of tables, [[{key}]]")
        return [Table.of(f"{self.where} {key} {number}", entry) for number, entry in enumerate(value, 1)]

    def expect(self) -> dict[str, int]:
        """The numbers under `expect`."""
        expected = self.table("expect")
        for name in expected.values:
            _known_expectation(str(name), expected.where)
        return {name: expected.number(name, 0, _MAX_EXPECTED) for name in expected.values}


def _known_expectation(name: str, where: str) -> None:
    if name not in EXPECTED:
        hint = nearest(name, EXPECTED)
        raise InventoryError(f"{where}: {name!r:.40} is not a known resource{hint}; expected {', '.join(EXPECTED)}")


def _kind(value: object) -> str:
    """The type of a value, in words."""
    return _WORDS.get(type(value), f"a {type(value).__name__}")
