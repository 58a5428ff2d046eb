"""Acceptance: its stages in order, the measures that are compared, and the defaults of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import build, document, table
from clusterproof.plugins.core.record import record

FILE = "acceptance.toml"


@record
class Measure:
    """A value that is compared within a population: the check that evaluates it alone, and its unit."""

    name: str  # of the collector that measures it
    check: str
    title: str
    unit: str
    source: str


@record
class Stage:
    """One stage: what it proves, its subjects (each node, all together, each place), and its checks."""

    name: str
    title: str
    proves: str
    scope: str  # nodes, all or places
    marks: str
    keyword: str
    minutes: float  # of one run of one batch, about
    source: str
    options: tuple[str, ...] = ()
    is_repeated: bool = False
    is_load: bool = False


@record
class Defaults:
    """The default plan for one kind of node."""

    name: str  # gpu, neuron or cpu
    stages: tuple[str, ...]
    hours: float
    source: str


@record
class DefaultErrors:
    """The default error rates and effect size (shares), and the most measurements of a node."""

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
    """By the collector's name. Raises CatalogError."""
    return table(Measure, FILE, "measures", "name")


@cache
def stages() -> Mapping[str, Stage]:
    """In their order. Raises CatalogError."""
    return table(Stage, FILE, "stages", "name")


@cache
def default_errors() -> DefaultErrors:
    """What a plan declares that says nothing of it. Raises CatalogError."""
    parsed = document(FILE)
    return build(DefaultErrors, parsed["defaults"]["errors"], f"{FILE}: defaults errors", parsed["sources"])


def defaults(kind: str) -> Defaults:
    """What a plan has for `gpu`, `neuron` or `cpu` nodes. Raises CatalogError."""
    parsed = document(FILE)
    return build(Defaults, {"name": kind, **parsed["defaults"][kind]}, f"{FILE}: defaults {kind}", parsed["sources"])


@cache
def not_covered() -> tuple[str, ...]:
    """What buyers ask for and no stage proves, in words."""
    return tuple(row["words"] for row in document(FILE)["not_covered"].values())
