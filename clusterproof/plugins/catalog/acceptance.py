"""Acceptance of a cluster: stages in order, measurements that are compared, and a plan's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import build, document, table
from clusterproof.plugins.core.record import record

FILE = "acceptance.toml"


@record
class Measure:
    """A measurement that is compared within a population: the check that judges it alone, and its unit."""

    name: str  # the collector that measures it
    check: str
    title: str
    unit: str
    source: str


@record
class Stage:
    """One stage: what it proves, its scope (each node, all together, each place), and the selected checks."""

    name: str
    title: str
    proves: str
    scope: str  # nodes, all or places
    marks: str
    keyword: str
    minutes: float  # approximate duration of one run of one batch
    source: str
    options: tuple[str, ...] = ()
    is_repeated: bool = False
    is_load: bool = False


@record
class Defaults:
    """A plan's defaults for nodes of that kind."""

    name: str  # gpu, neuron or cpu
    stages: tuple[str, ...]
    hours: float
    source: str


@record
class DefaultErrors:
    """The error rates and effect that a plan declares by default, as shares; and the maximum measurements per node."""

    good_rejected: float
    bad_accepted: float
    slower: float
    shows_in: float
    most_runs: int
    source: str


@record
class Common:
    """What racks, batches and all nodes have in common is said from `least` on: a share of the speed."""

    least: float
    source: str


@cache
def common() -> Common:
    """From how much on it is said. Raises CatalogError."""
    parsed = document(FILE)
    return build(Common, parsed["common"], f"{FILE}: common", parsed["sources"])


@cache
def measures() -> Mapping[str, Measure]:
    """Every measurement by its collector's name. Raises CatalogError."""
    return table(Measure, FILE, "measures", "name")


@cache
def stages() -> Mapping[str, Stage]:
    """The stages in order. Raises CatalogError."""
    return table(Stage, FILE, "stages", "name")


@cache
def default_errors() -> DefaultErrors:
    """The errors of a plan that does not declare any. Raises CatalogError."""
    parsed = document(FILE)
    return build(DefaultErrors, parsed["defaults"]["errors"], f"{FILE}: defaults errors", parsed["sources"])


def defaults(kind: str) -> Defaults:
    """The defaults for `gpu`, `neuron` or `cpu` nodes. Raises CatalogError."""
    parsed = document(FILE)
    return build(Defaults, {"name": kind, **parsed["defaults"][kind]}, f"{FILE}: defaults {kind}", parsed["sources"])


@cache
def not_covered() -> tuple[str, ...]:
    """What buyers ask for but no stage proves, in words."""
    return tuple(row["words"] for row in document(FILE)["not_covered"].values())
