"""Why a node was not reached, whether that speaks against it, and what to do: unreached.toml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import table
from clusterproof.plugins.core.record import record


@record
class UnreachedRow:
    """One reason. `remedy` has NODE where the node's name belongs."""

    speaks_against_node: bool
    remedy: str
    source: str


@cache
def unreached_rows() -> Mapping[str, UnreachedRow]:
    """Every row by the word of the reason, as `host_key`. Raises CatalogError."""
    return table(UnreachedRow, "unreached.toml", "unreached")
