"""The texts of an answer: found by their keys, and changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any


def named(told: Any, keys: Collection[str], key: str = "") -> Iterator[tuple[str, str]]:
    """Every text under one of these keys, with its key; also those of a list there."""
    if isinstance(told, str):
        if told and key in keys:
            yield key, told
    elif isinstance(told, dict):
        for name, entry in told.items():
            yield from named(entry, keys, name)
    elif isinstance(told, list):
        for entry in told:
            yield from named(entry, keys, key)


def in_all_texts(told: Any, change: Callable[[str], str]) -> Any:
    """The same answer with every text changed."""
    if isinstance(told, str):
        return change(told)
    if isinstance(told, list):
        return [in_all_texts(entry, change) for entry in told]
    if isinstance(told, dict):
        return {key: in_all_texts(entry, change) for key, entry in told.items()}
    return told
