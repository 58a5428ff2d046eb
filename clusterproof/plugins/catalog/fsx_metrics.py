"""The metrics of FSx file systems that CloudWatch is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog.rows import table


@dataclass(frozen=True, slots=True, kw_only=True)
class FsxMetric:
    """One metric with its statistics; `words` are empty where it is no percentage of a limit."""

    metric: str
    statistics: tuple[str, ...]
    source: str
    words: str = ""
    must_be_of: tuple[str, ...] = ()


@cache
def fsx_metrics() -> Mapping[str, FsxMetric]:
    """Every row of fsx_metrics.toml by the metric's name. Raises CatalogError."""
    return table(FsxMetric, "fsx_metrics.toml", "metric", key="metric")


@cache
def limits(kind: str) -> tuple[str, ...]:
    """The percentages that a type of file system (`LUSTRE`) must have, by their names in CloudWatch."""
    return tuple(name for name, row in fsx_metrics().items() if kind in row.must_be_of)
