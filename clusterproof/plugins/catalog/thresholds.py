"""The numbers that checks compare with, and what one node of a type should reach at least."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, document, table
from clusterproof.plugins.core.record import record

FILE = "thresholds.toml"
SITE = "site."  # begins the names of numbers that only a site's own checks compare with, and only its policy sets
FLOORS = "floors.toml"


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


@cache  # asked for by each check of each device
def threshold_row(name: str) -> Threshold:
    """The row called `table.key`. Raises CatalogError."""
    section, _, key = name.rpartition(".")
    if section not in document(FILE) or key not in _of(section):
        from clusterproof.plugins.core.strict import nearest  # few names are wrong

        own = f"a number of a site's own is {SITE}NAME, and stands under [thresholds.site] of its policy"
        raise CatalogError(f"{FILE} has no {name!r:.80}{nearest(name, thresholds())}; {own}")
    return _of(section)[key]


@cache
def _of(section: str) -> Mapping[str, Threshold]:
    return table(Threshold, FILE, section)


@cache
def floors() -> Mapping[str, Mapping[str, Threshold]]:
    """Every row of floors.toml by instance type and measurement. Raises CatalogError."""
    return {name: table(Threshold, FLOORS, name) for name in document(FLOORS) if name != "sources"}


def floor(instance_type: str, measurement: str) -> float | None:
    """The least of `all_reduce`, `host_to_gpu`, … on one node of a type; None where nobody has published one."""
    row = floors().get(instance_type, {}).get(measurement)
    return row.value if row else None
