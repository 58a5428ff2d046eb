"""Reads the catalogue's TOML files into records; an invalid row is a clear error."""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
import zlib
from collections.abc import Iterator, Mapping
from functools import cache

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import is_record, required
from clusterproof.plugins.core.typed import Any, TypeVar

Row = TypeVar("Row")

FOLDER = os.path.dirname(__file__)
PARSED = f"{FOLDER}/parsed.json"  # the same files, in a form that is read ten times as fast


class CatalogError(ClusterproofError, ValueError):
    """An invalid row of the catalogue; the message says which and why."""


@cache
def document(file: str) -> Mapping[str, Any]:
    """One file of the catalogue, parsed once. Raises CatalogError."""
    text = _text(file)
    try:
        known: Mapping[str, Any] = json.loads(_parsed()[b'"%s"' % file.encode()])
        return known["data"] if known["of"] == zlib.crc32(text.encode()) else parse(text, file)
    except (KeyError, TypeError, ValueError):
        return parse(text, file)


def _text(file: str) -> str:
    with open(f"{FOLDER}/{file}", encoding="utf-8") as opened:
        return opened.read()


@cache
def _parsed() -> Mapping[bytes, bytes]:
    """Each file by name, as JSON with a checksum of its text: a prolog needs few."""
    try:
        with open(PARSED, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    return {name: entry.rstrip(b",") for name, _, entry in (line.partition(b": ") for line in lines)}


def written() -> str:
    """The text of PARSED, one line per file. Raises CatalogError."""
    texts = {file: _text(file) for file in sorted(os.listdir(FOLDER)) if file.endswith(".toml")}
    parsed = {name: {"of": zlib.crc32(text.encode()), "data": parse(text, name)} for name, text in texts.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in parsed.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def parse(text: str, file: str) -> Mapping[str, Any]:
    """Parse TOML whose table `sources` maps short names of sources to their text. Raises CatalogError."""
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        tables: dict[str, Any] = toml.loads(text)
    except ValueError as problem:
        raise CatalogError(f"{file}: {problem}") from problem
    sources = tables.get("sources")
    if not isinstance(sources, dict) or not all(isinstance(source, str) and source for source in sources.values()):
        raise CatalogError(f"{file}: expected a table [sources] of short names and texts")
    return tables


def table(kind: type[Row], file: str, name: str, key: str = "") -> Mapping[str, Row]:
    """The rows of one table of a file; `key` is the field for the row's key.

    Each row is built on first use, and only then raises CatalogError if it is invalid.
    """
    return Rows(kind, file, name, key)


class Rows(Mapping[str, Row]):
    """A table of the catalogue whose rows are built on demand: most runs use few."""

    def __init__(self, kind: type[Row], file: str, name: str, key: str) -> None:
        whole = document(file)
        self._rows, self._sources = whole[name], whole["sources"]
        self._kind, self._key = kind, key
        self._where = f"{file}: {name}"
        self._made: dict[str, Row] = {}

    def __getitem__(self, label: str) -> Row:
        if label not in self._made:
            row = self._rows[label]
            fields = {self._key: label, **row} if self._key else row
            self._made[label] = build(self._kind, fields, f"{self._where} {label}", self._sources)
        return self._made[label]

    def __contains__(self, label: object) -> bool:
        return label in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def build(kind: type[Row], fields: object, where: str, sources: Mapping[str, str]) -> Row:
    """Build a record from a row: known keys, right types, sources that `[sources]` explains.

    A missing key gets the record's default (None: not known). Raises CatalogError.
    """
    if not isinstance(fields, dict):
        raise CatalogError(f"{where}: expected a table, found {fields!r:.60}")
    shape: Any = kind
    hints = _hints(shape)
    unknown = sorted(set(fields) - set(hints))
    if unknown:
        raise CatalogError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(hints)}")
    missing = [name for name in _required(shape) if name not in fields]
    if missing:
        raise CatalogError(f"{where}: {missing[0]} is missing")
    for name, value in fields.items():
        if not _fits(value, hints[name]):
            raise CatalogError(f"{where}: {name} is {value!r:.60}; expected {_type_text(hints[name])}")
    unexplained = [name for name in str(fields["source"]).split() or [""] if name not in sources]
    if unexplained:
        raise CatalogError(f"{where}: source {unexplained[0]!r} is not explained in [sources]")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    annotations = [vars(base).get("__annotations__", {}) for base in reversed(kind.__mro__)]
    return {name: _type_of(text) for of_base in annotations for name, text in of_base.items()}


@cache  # rows have few
def _type_of(annotation: str) -> Any:
    return eval(annotation, {"Mapping": Mapping})  # noqa: S307 - of a record in this folder


@cache
def _required(kind: Any) -> tuple[str, ...]:
    if is_record(kind):
        return required(kind)
    from dataclasses import MISSING, fields

    return tuple(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_fits(value, kind) for kind in hint.__args__)
    origin = getattr(hint, "__origin__", None)
    if origin is tuple:
        return isinstance(value, list) and all(_fits(item, hint.__args__[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint


def _type_text(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("collections.abc.", "")
