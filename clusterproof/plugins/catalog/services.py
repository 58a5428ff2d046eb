"""The services that a node needs, and the units whose end says nothing of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, table
from clusterproof.plugins.core.record import record

FILE = "services.toml"
VERDICTS = ("fail", "concern")


@record
class NeededService:
    """A service, what does not work without it, and what it means that it does not run."""

    purpose: str
    verdict: str
    source: str
    instead_of: str = ""


@record
class IgnoredUnits:
    """Units that nobody needs, by a pattern of their whole name."""

    pattern: str
    source: str


@cache
def needed_services() -> Mapping[str, NeededService]:
    """Every row of services.toml by the service's name. Raises CatalogError."""
    rows = table(NeededService, FILE, "service")
    for name, row in rows.items():
        if row.verdict not in VERDICTS or row.instead_of not in ("", *rows):
            raise CatalogError(f"{FILE}: service {name}: expected verdict of {VERDICTS} and instead_of of its rows")
    return rows


@cache
def _ignored() -> str:
    return "|".join(f"(?:{row.pattern})" for row in table(IgnoredUnits, FILE, "ignored").values())


def is_ignored(unit: str) -> bool:
    """Whether the end of a unit of that name says nothing of the node. Raises CatalogError."""
    return re.fullmatch(_ignored(), unit) is not None
