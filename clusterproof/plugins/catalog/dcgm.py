"""What DCGM's numbers mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog.rows import table


@dataclass(frozen=True, slots=True)
class Severity:
    """How bad DCGM calls an error of its diagnostic."""

    value: int
    words: str
    remedy: str
    source: str


@cache
def severities() -> Mapping[int, Severity]:
    """Every row of dcgm_severities.toml by DCGM's number. Raises CatalogError."""
    return {row.value: row for row in table(Severity, "dcgm_severities.toml", "severity").values()}


def severity_in_words(value: int | None) -> str:
    """`isolate: take the GPU out of use, and replace the node`; empty where none was reported."""
    if value is None:
        return ""
    known = severities().get(value)
    return f"{known.words}: {known.remedy}" if known else f"severity {value}"
