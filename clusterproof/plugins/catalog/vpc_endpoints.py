"""The VPC endpoints that a cluster needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog.rows import build, document

FILE = "vpc_endpoints.toml"
ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRow:
    """One service's endpoint: when it is needed (`always`, `without internet`), and for what."""

    service: str
    needed: str
    needed_for: str
    source: str


@cache
def vpc_endpoint_rows() -> tuple[EndpointRow, ...]:
    """Every row of vpc_endpoints.toml. Raises CatalogError."""
    data = document(FILE)
    rows = []
    for service, row in data["endpoint"].items():
        words = {"service": service, **{key: value for key, value in row.items() if key != "for"}}
        rows.append(build(EndpointRow, {**words, "needed_for": row.get("for")}, f"{FILE}: {service}", data["sources"]))
    return tuple(rows)
