"""What one node should reach at least."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import document, table
from clusterproof.plugins.catalog.thresholds import Threshold

FILE = "floors.toml"


@cache
def floors() -> Mapping[str, Mapping[str, Threshold]]:
    """Every row of floors.toml by instance type and measurement. Raises CatalogError."""
    return {name: table(Threshold, FILE, name) for name in document(FILE) if name != "sources"}


def floor(instance_type: str, measurement: str) -> float | None:
    """The least of `all_reduce`, `host_to_gpu`, … on one node of a type; None where nobody has published one."""
    row = floors().get(instance_type, {}).get(measurement)
    return row.value if row else None
