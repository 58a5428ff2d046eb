"""Simulated clusters with one fault each, and the finding that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan, plan
from clusterproof.plugins.evidence.pairs import Kind
from tests.benchmarks.pairwise.measured import NORMAL_GB_PER_S, Cluster, concluded, names, racks

MIN_EFFECT = 0.0513
FLOOR = 0.8 * NORMAL_GB_PER_S


@dataclass(frozen=True)
class Case:
    """A cluster of `count` nodes in places of `place` nodes, and the expected finding."""

    count: int
    cluster: Mapping[str, object]
    said: set[tuple[Kind, str]] = field(default_factory=set)
    place: int = 0
    is_full: bool = False

    @property
    def plan(self) -> PairPlan:
        """Plan as a run does."""
        nodes = names(self.count)
        return plan(nodes, racks(nodes, self.place) if self.place else {}, MIN_EFFECT, self.is_full, seed=5)

    def concluded(self, seed: int = 1) -> Analysis:
        """The conclusion."""
        return concluded(self.plan, Cluster(**self.cluster, seed=seed), FLOOR)  # type: ignore[arg-type]


SLOW_LINK = plan(names(16), {}, MIN_EFFECT, seed=5).first[1][2]
RACKED_LINK = plan(names(32), racks(names(32), 8), MIN_EFFECT, seed=5).first[2][3]
CASES = {
    "in a healthy cluster nothing is flagged": Case(32, {}),
    "nor in one with an odd number of nodes": Case(15, {}),
    "nor one in racks": Case(64, {}, place=16),
    "nor one whose pairs are all measured": Case(10, {}, is_full=True),
    "one slow node is named": Case(16, {"nodes": {"n004": 0.93}}, {(Kind.SLOW_NODE, "n004")}),
    "so is one of an odd number": Case(9, {"nodes": {"n004": 0.9}}, {(Kind.SLOW_NODE, "n004")}),
    "so is one of four": Case(4, {"nodes": {"n001": 0.8}}, {(Kind.SLOW_NODE, "n001")}),
    "so is one of four under the floor": Case(4, {"nodes": {"n001": 0.5}}, {(Kind.SLOW_NODE, "n001")}),
    "of three that differ it is unclear which is slow": Case(
        3, {"nodes": {"n001": 0.8}}, {(Kind.INCONCLUSIVE, "n000~n001~n002")}
    ),
    "three that are alike are well": Case(3, {}),
    "so is one in a rack": Case(32, {"nodes": {"n009": 0.85}}, {(Kind.SLOW_NODE, "n009")}, place=8),
    "so is one whose pairs are all measured": Case(8, {"nodes": {"n001": 0.9}}, {(Kind.SLOW_NODE, "n001")}, 0, True),
    "several slow nodes are named": Case(
        32,
        {"nodes": {"n001": 0.9, "n002": 0.7, "n030": 0.5}},
        {(Kind.SLOW_NODE, "n001"), (Kind.SLOW_NODE, "n002"), (Kind.SLOW_NODE, "n030")},
    ),
    "2 % slower is below what matters": Case(32, {"nodes": {"n004": 0.98}}),
    "a slow link is named and neither end": Case(16, {"links": {SLOW_LINK: 0.8}}, {(Kind.SLOW_LINK, str(SLOW_LINK))}),
    "so is one between racks": Case(32, {"links": {RACKED_LINK: 0.7}}, {(Kind.SLOW_LINK, str(RACKED_LINK))}, place=8),
    "a rack that is joined to the others by a slow way is named and none of its nodes": Case(
        32, {"ways_out": {"r2": 0.8}}, {(Kind.SLOW_GROUP, "r2")}, place=8
    ),
    "pairs that slow each other are no fault of a node's": Case(32, {"most_at_once": 12}, {(Kind.CONTENTION, "")}),
    "a node with which every run fails is named": Case(16, {"dead": {"n007"}}, {(Kind.FAILING_NODE, "n007")}),
    "so are two": Case(
        16, {"dead": {"n007", "n008"}}, {(Kind.FAILING_NODE, "n007"), (Kind.FAILING_NODE, "n008")}
    ),
    "a link on which every run fails is named and neither end": Case(
        16, {"dead_links": {SLOW_LINK}}, {(Kind.FAILING_LINK, str(SLOW_LINK))}
    ),
    "a slow node and a failing one are distinguished": Case(
        16, {"dead": {"n007"}, "nodes": {"n002": 0.8}}, {(Kind.FAILING_NODE, "n007"), (Kind.SLOW_NODE, "n002")}
    ),
}  # fmt: skip
