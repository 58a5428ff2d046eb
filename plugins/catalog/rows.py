"""Reads the catalogue's TOML files into frozen dataclasses; a row that is not right is one clear error."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Row = TypeVar("Row")

FOLDER = Path(__file__).parent


class CatalogError(ValueError):
    """A row of the catalogue that cannot be used; the message says which and why."""


@cache
def document(file: str) -> Mapping[str, Any]:
    """One file of the catalogue, parsed once. Raises CatalogError."""
    return parse((FOLDER / file).read_text(encoding="utf-8"), file)


def parse(text: str, file: str) -> Mapping[str, Any]:
    """Parse TOML whose table `sources` gives every short name of a source its text. Raises CatalogError."""
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        told: dict[str, Any] = toml.loads(text)
    except ValueError as problem:
        raise CatalogError(f"{file}: {problem}") from problem
    sources = told.get("sources")
    if not isinstance(sources, dict) or not all(isinstance(said, str) and said for said in sources.values()):
        raise CatalogError(f"{file}: expected a table [sources] of short names and texts")
    return told


def table(kind: type[Row], file: str, name: str, key: str = "") -> Mapping[str, Row]:
    """The rows of one table of a file; `key` is the field that takes the row's key. Raises CatalogError."""
    told = document(file)
    return {
        label: build(kind, {key: label, **row} if key else row, f"{file}: {name} {label}", told["sources"])
        for label, row in told[name].items()
    }


def build(kind: type[Row], told: object, where: str, sources: Mapping[str, str]) -> Row:
    """Make a dataclass of one row: known keys, right types, sources that `[sources]` explains.

    A key that the row lacks gets the dataclass's default (None: not known). Raises CatalogError.
    """
    if not isinstance(told, dict):
        raise CatalogError(f"{where}: expected a table, found {told!r:.60}")
    shape: Any = kind
    hints = _hints(shape)
    unknown = sorted(set(told) - set(hints))
    if unknown:
        raise CatalogError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(hints)}")
    missing = [name for name in _required(shape) if name not in told]
    if missing:
        raise CatalogError(f"{where}: {missing[0]} is missing")
    for name, value in told.items():
        if not _fits(value, hints[name]):
            raise CatalogError(f"{where}: {name} is {value!r:.60}; expected {_words(hints[name])}")
    unexplained = [name for name in str(told["source"]).split() or [""] if name not in sources]
    if unexplained:
        raise CatalogError(f"{where}: source {unexplained[0]!r} is not explained in [sources]")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in told.items()})


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)


def _fits(value: object, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is tuple:
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint


def _words(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("collections.abc.", "")
