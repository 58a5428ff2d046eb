"""Accessors for JSON values from the API server: bounded, and malformed values are treated as missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from sys import intern
from typing import Any

from clusterproof.plugins.core.message import printable

MOST = 1_000  # entries of one list or table of an object
LONGEST = 1_000  # characters of one text
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(m|k|[KMGTPE]i?|)")
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")}


def parts(resource: object) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """The metadata, spec and status of an object."""
    whole = table(resource)
    return table(whole.get("metadata")), table(whole.get("spec")), table(whole.get("status"))


def table(resource: object) -> Mapping[str, Any]:
    """A JSON object; empty for any other value."""
    return resource if isinstance(resource, dict) else {}


def entries(resource: object) -> list[Any]:
    """A list, at most MOST of it."""
    return resource[:MOST] if isinstance(resource, list) else []


def tables(resource: object) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    return [entry for entry in entries(resource) if isinstance(entry, dict)]


def text(resource: object) -> str:
    """A text, escaped and bounded; empty for any other value."""
    return printable(resource, LONGEST) if isinstance(resource, str) else ""


def texts(resource: object) -> Mapping[str, str]:
    """A table of texts; thousands of objects have the same labels, which are stored once."""
    return {intern(text(key)): intern(text(str(value))) for key, value in list(table(resource).items())[:MOST]}


def number(resource: object) -> int:
    """A whole number; 0 for any other value."""
    return resource if isinstance(resource, int) and not isinstance(resource, bool) else 0


def quantity(text_value: str) -> int | str:
    """A quantity (`8`, `10Gi`, `500m`) as a whole number of bytes or devices; unchanged if it is none."""
    match = _QUANTITY.fullmatch(text_value)
    if not match:
        return text_value
    if text_value.isdecimal():
        return int(text_value)
    return int(float(match[1]) * (_BINARY.get(match[2]) or _UNITS[match[2]]))
