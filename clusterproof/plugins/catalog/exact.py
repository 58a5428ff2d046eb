"""The data types whose products are made of exact integers, and how many bits these may have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import table
from clusterproof.plugins.core.record import record

FILE = "exact.toml"


@record
class ExactKind:
    """A data type: bits of its significand, and of what its products are summed in."""

    name: str
    significand: int
    accumulator: int
    source: str


@cache
def exact_kinds() -> Mapping[str, ExactKind]:
    """Every row of exact.toml by its type. Raises CatalogError."""
    return table(ExactKind, FILE, "kinds", "name")


@cache
def exact_kinds_setting() -> str:
    """The same as a setting of collectors: `float32:24:24,…`."""
    return ",".join(f"{kind.name}:{kind.significand}:{kind.accumulator}" for kind in exact_kinds().values())
