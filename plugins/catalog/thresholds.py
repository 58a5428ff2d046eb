"""The numbers that checks compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, document, table
from clusterproof.plugins.catalog.site import own_thresholds

FILE = "thresholds.toml"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number with its unit and where it is from."""

    value: float
    unit: str
    source: str


@cache
def thresholds() -> Mapping[str, Threshold]:
    """Every row of thresholds.toml by `table.key`. Raises CatalogError."""
    return {
        f"{name}.{key}": row
        for name in document(FILE)
        if name != "sources"
        for key, row in table(Threshold, FILE, name).items()
    }


def threshold(name: str) -> float:
    """The number called `table.key` (`shm.minimum_gib`), in the unit of its row; a site's own first.

    Raises CatalogError.
    """
    if name in own_thresholds:
        return own_thresholds[name]
    row = thresholds().get(name)
    if row is None:
        raise CatalogError(f"{FILE} has no {name!r}; it has {', '.join(sorted(thresholds()))}")
    return row.value
