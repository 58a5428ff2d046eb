"""Known services, kernel wait functions, environment variables of jobs, and reasons for unreachable nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, table
from clusterproof.plugins.core.record import record

FILE = "services.toml"
VERDICTS = ("fail", "concern")
USER = "user"
HUNG = ("driver", "file_system")
ENVIRONMENT = "environment.toml"
WHERE = ("always", "efa", "no-efa", "no-rdma-read", "rdma", "infiniband", "roce", "fabric", "nvlink", "no-nvlink")


@record
class NeededService:
    """A service, what depends on it, and what it means if it does not run."""

    purpose: str
    verdict: str
    source: str
    instead_of: str = ""
    on_demand: bool = False


@record
class IgnoredUnits:
    """Irrelevant units, by a pattern of their whole name."""

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
    """Whether the end of a unit with that name is irrelevant. Raises CatalogError."""
    return re.fullmatch(_ignored(), unit) is not None


@record
class Wait:
    """Kernel functions that wait for the same thing, by a pattern of their whole names."""

    pattern: str
    source: str


def waits_for(functions: Iterable[str]) -> str:
    """The row of waits.toml for kernel functions, innermost first; empty if there is none."""
    kinds = (kind for name in functions for kind, pattern in _patterns().items() if pattern.fullmatch(name))
    return next(kinds, "")


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    rows = table(Wait, "waits.toml", "wait")
    return {kind: re.compile("".join(row.pattern.split())) for kind, row in rows.items()}


@record
class UnreachedRow:
    """One reason. `remedy` has NODE in place of the node's name."""

    speaks_against_node: bool
    remedy: str
    source: str


@cache
def unreached_rows() -> Mapping[str, UnreachedRow]:
    """Every row by reason, such as `host_key`. Raises CatalogError."""
    return table(UnreachedRow, "unreached.toml", "unreached")


@record
class EnvironmentRule:
    """A value that a variable should not have, where it applies, and its consequences."""

    variable: str
    pattern: str
    where: str
    verdict: str
    words: str
    expected: str
    source: str

    def matches(self, name: str, value: str) -> bool:
        """Whether the rule applies to this variable with this value."""
        return name == self.variable and re.fullmatch(self.pattern, value, re.IGNORECASE | re.DOTALL) is not None


@cache
def environment_rules() -> Mapping[str, EnvironmentRule]:
    """Every row of environment.toml by its name. Raises CatalogError."""
    rules = table(EnvironmentRule, ENVIRONMENT, "rule")
    for name, rule in rules.items():
        if rule.where not in WHERE or rule.verdict not in VERDICTS:
            raise CatalogError(f"{ENVIRONMENT}: rule {name}: expected where of {WHERE} and verdict of {VERDICTS}")
    return rules
