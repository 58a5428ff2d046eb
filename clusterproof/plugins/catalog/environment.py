"""What variables of a job's environment do to NCCL and libfabric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from clusterproof.plugins.catalog.rows import CatalogError, table

FILE = "environment.toml"
WHERE = ("always", "efa", "no-efa", "no-rdma-read", "rdma")
VERDICTS = ("fail", "concern")


@dataclass(frozen=True, slots=True)
class EnvironmentRule:
    """A variable that should not have such a value, where it should not, and what comes of it."""

    variable: str
    pattern: str
    where: str
    verdict: str
    words: str
    expected: str
    source: str

    def matches(self, name: str, value: str) -> bool:
        """Whether the rule speaks of this variable with this value."""
        return name == self.variable and re.fullmatch(self.pattern, value, re.IGNORECASE | re.DOTALL) is not None


@cache
def environment_rules() -> Mapping[str, EnvironmentRule]:
    """Every row of environment.toml by its name. Raises CatalogError."""
    rules = table(EnvironmentRule, FILE, "rule")
    for name, rule in rules.items():
        if rule.where not in WHERE or rule.verdict not in VERDICTS:
            raise CatalogError(f"{FILE}: rule {name}: expected where of {WHERE} and verdict of {VERDICTS}")
    return rules
