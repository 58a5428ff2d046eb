"""The texts of an answer: found by their keys, and changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any


def named(data: Any, keys: Collection[str], key: str = "") -> Iterator[tuple[str, str]]:
    """Every text under one of these keys, with its key; also those of a list there."""
    if isinstance(data, str):
        if data and key in keys:
            yield key, data
    elif isinstance(data, dict):
        for name, entry in data.items():
            yield from named(entry, keys, name)
    elif isinstance(data, list):
        for entry in data:
            yield from named(entry, keys, key)


def in_all_texts(data: Any, change: Callable[[str], str]) -> Any:
    """The same answer with every text changed."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, list):
        return [in_all_texts(entry, change) for entry in data]
    if isinstance(data, dict):
        return {key: in_all_texts(entry, change) for key, entry in data.items()}
    return data
