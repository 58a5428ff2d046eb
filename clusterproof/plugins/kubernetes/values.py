"""Values of the API's JSON: bounded; what is malformed is treated as missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from sys import intern
from typing import Any

from clusterproof.plugins.core.message import printable

_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(m|k|[KMGTPE]i?|)")
_UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")}
MOST = 1_000  # entries of one list or table of an object
LONGEST = 1_000  # characters of one text


def parts(data: object) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """The metadata, spec and status of an object."""
    whole = table(data)
    return table(whole.get("metadata")), table(whole.get("spec")), table(whole.get("status"))


def table(data: object) -> Mapping[str, Any]:
    """An object of JSON; an empty one where it is something else."""
    return data if isinstance(data, dict) else {}


def entries(data: object) -> list[Any]:
    """A list, at most MOST of it."""
    return data[:MOST] if isinstance(data, list) else []


def tables(data: object) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    return [one for one in entries(data) if isinstance(one, dict)]


def text(data: object) -> str:
    """A text, made safe and bounded; empty where it is something else."""
    return printable(data, LONGEST) if isinstance(data, str) else ""


def texts(data: object) -> Mapping[str, str]:
    """A table of texts; thousands of objects have the same labels, which are kept once."""
    return {intern(text(key)): intern(text(str(value))) for key, value in list(table(data).items())[:MOST]}


def number(data: object) -> int:
    """A whole number; 0 where it is something else."""
    return data if isinstance(data, int) and not isinstance(data, bool) else 0


def quantity(data: str) -> int | str:
    """A quantity (`8`, `10Gi`, `500m`) as a whole number of bytes or devices; as it is where it is none."""
    found = _QUANTITY.fullmatch(data)
    if not found:
        return data
    if data.isdecimal():
        return int(data)
    return int(float(found[1]) * (_BINARY.get(found[2]) or _UNITS[found[2]]))
