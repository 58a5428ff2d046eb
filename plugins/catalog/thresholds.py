"""The numbers that checks compare with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, document, table
from clusterproof.plugins.catalog.site import own_thresholds
from clusterproof.plugins.core.record import record

FILE = "thresholds.toml"


@record
class Threshold:
    """One number with its unit and where it is from."""

    value: float
    unit: str
    source: str


@cache
def thresholds() -> Mapping[str, Threshold]:
    """Every row of thresholds.toml by `table.key`. Raises CatalogError."""
    return {f"{name}.{key}": row for name in document(FILE) if name != "sources" for key, row in _of(name).items()}


def threshold(name: str) -> float:
    """The number called `table.key` (`shm.minimum_gib`), in the unit of its row; a site's own first.

    Raises CatalogError.
    """
    if name in own_thresholds:
        return own_thresholds[name]
    section, _, key = name.rpartition(".")
    if section not in document(FILE) or key not in _of(section):
        raise CatalogError(f"{FILE} has no {name!r}; it has {', '.join(sorted(thresholds()))}")
    return _of(section)[key].value


@cache
def _of(section: str) -> Mapping[str, Threshold]:
    return table(Threshold, FILE, section)
