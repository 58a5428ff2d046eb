"""How far a measurement stays behind what it is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterproof.plugins.core.message import apart, listed
from clusterproof.plugins.core.verdict import concern_if, fail_if

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.group import Median
    from clusterproof.plugins.evidence.node import Node

GROUP, NODE = "median of {} nodes", "best GPU of the node"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One value below its reference."""

    name: str  # "GPU 3, host to GPU"
    value: float
    reference: float
    words: str  # what the reference is: "best GPU of the node"

    @property
    def percent(self) -> float:
        """How much is missing, in % of the reference."""
        return 100 * (1 - self.value / self.reference)

    def observed(self, unit: str, limit_percent: float) -> str:
        """`GPU 3, host to GPU: 41.2 GB/s, 25 % below the best GPU of the node (55.1)`; never as if at the limit."""
        behind = f"{apart(self.percent, limit_percent)[0]} % below the {self.words} ({self.reference:.4g})"
        return f"{self.name}: {self.value:.4g} {unit}, {behind}"


def below_best(values: Mapping[str, float], name: str) -> Iterable[Shortfall]:
    """What the GPUs of one node lack to the best of them; `name` says what was measured."""
    best = max(values.values(), default=0.0)
    if len(values) > 1 and best > 0:
        yield from (Shortfall(f"GPU {gpu}, {name}", value, best, NODE) for gpu, value in values.items() if value < best)


def below_median(name: str, value: float, median: Median | None) -> Iterable[Shortfall]:
    """How far a value is below the median of the group, if enough nodes have one."""
    if median and median.is_comparable and 0 <= value < median.value:
        yield Shortfall(name, value, median.value, GROUP.format(median.nodes))


def worst_first(found: Iterable[Shortfall], least_percent: float) -> list[Shortfall]:
    """Those that lack more than so much; of one value only the one that lacks most."""
    worst: dict[str, Shortfall] = {}
    for one in sorted(found, key=lambda one: -one.percent):
        if one.percent > least_percent:
            worst.setdefault(one.name, one)
    return list(worst.values())


def say_slower(node: Node, found: Iterable[Shortfall], unit: str) -> None:
    """Say what is so far behind what it is compared with that it fails, and what else is worth a look."""
    fail, worry = node.threshold("load.slower_fail_percent"), node.threshold("load.slower_concern_percent")
    behind = worst_first(found, worry)
    slow = listed(one.observed(unit, fail) for one in behind if one.percent > fail)
    fail_if(slow, f"{slow}; expected at most {fail:g} % below")
    slow = listed(one.observed(unit, worry) for one in behind if one.percent <= fail)
    concern_if(slow, f"{slow}; expected at most {worry:g} % below")
