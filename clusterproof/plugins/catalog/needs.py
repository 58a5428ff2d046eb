"""Facts that a rule needs besides its subject: needs.toml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, document, table
from clusterproof.plugins.core.record import record

FILE = "needs.toml"


@record
class Need:
    """Facts that these checks need for a finding, and why; `finding` restricts it to findings with these words."""

    checks: tuple[str, ...]
    facts: tuple[str, ...]
    kind: str
    reason: str
    source: str
    finding: str = ""


@cache
def kinds() -> Mapping[str, str]:
    """The kinds of reasons, with their meaning."""
    names: Mapping[str, str] = document(FILE)["kind"]
    return names


@cache
def needs() -> Mapping[str, Need]:
    """Every row by name. Raises CatalogError."""
    rows = dict(table(Need, FILE, "need"))
    for name, row in rows.items():
        if row.kind not in kinds():
            raise CatalogError(f"{FILE}: need {name}: kind is {row.kind!r:.60}; expected one of {', '.join(kinds())}")
    return rows


def needs_of(check: str) -> list[Need]:
    """The rows of one check."""
    return [row for row in needs().values() if check in row.checks]
