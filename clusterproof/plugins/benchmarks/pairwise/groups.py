"""Groups of nodes, after the pairs: which to measure next, and what a group is compared with. Pure.

Pairs identify nodes and links. Faults that need many nodes (an oversubscribed switch, a rail cabled to another one, a
library that chooses another algorithm) show in groups of 4, 8, … and in all nodes together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from clusterproof.plugins.benchmarks.pairwise import nodes_by_place
from clusterproof.plugins.core.message import number_of, speed
from clusterproof.plugins.evidence.pairs import GroupMeasurement, NodeGroup, Reading

DOUBLING, ALL = "doubling", "all"
MIN_NODES = 3  # of a group: two are a pair
FIRST_SIZE = 4  # with two nodes NCCL's trees and NVLS exceed the network bandwidth
MIN_OTHERS = 2  # groups of the same size, to tell that one is slower
MANY = 10**6
TIMES = 2  # measurements of a size with a low result


@dataclass(frozen=True)
class GroupPlan:
    """The groups to measure: no node is in two of one size. At most `most_nodes` are loaded at once.

    `places` maps nodes to racks as far as known. `left_out` are requested sizes without groups, and why.
    """

    groups: tuple[NodeGroup, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    most_nodes: int = MANY
    left_out: str = ""

    @cached_property
    def by_size(self) -> Mapping[int, tuple[NodeGroup, ...]]:
        """The groups by number of nodes, the smallest first."""
        sizes = sorted({len(group.nodes) for group in self.groups})
        return {size: tuple(group for group in self.groups if len(group.nodes) == size) for size in sizes}


def plan_groups(which: str, nodes: Sequence[str], places: Mapping[str, str], most_nodes: int = MANY) -> GroupPlan:
    """Plan groups of these nodes. `which` is the user's choice: `doubling`, or comma-separated sizes."""
    count, most = len(nodes), min(len(nodes), most_nodes)
    if which == DOUBLING:
        doubled = [FIRST_SIZE << power for power in range(most.bit_length()) if FIRST_SIZE << power <= most]
        wanted = {*doubled, max(count, MIN_NODES)} if count <= most_nodes else {*doubled}
    else:
        wanted = {count if size == ALL else int(size) for size in which.split(",")}
    possible = sorted(size for size in wanted if MIN_NODES <= size <= most)
    groups = [group for size in possible for group in _groups_of(size, nodes, places)]
    left_out = [f"groups of {size}: {_why_not(size, count, most_nodes)}" for size in sorted(wanted - {*possible})]
    return GroupPlan(tuple(groups), places, most_nodes, "; ".join(left_out))


def _why_not(size: int, count: int, most_nodes: int) -> str:
    if size > count or count < MIN_NODES:
        return f"{number_of(count, 'node')} can be measured together"
    return f"{most_nodes} nodes may be loaded at once"


def _groups_of(size: int, nodes: Sequence[str], places: Mapping[str, str]) -> list[NodeGroup]:
    """As many groups of this size as there are nodes for, first within places."""
    by_place = nodes_by_place(sorted(nodes), places)
    inside: list[NodeGroup] = []
    left: list[str] = []
    for place in sorted(by_place):
        cut = len(by_place[place]) // size * size
        inside += _cut(by_place[place][:cut], size)
        left += by_place[place][cut:]
    return [*inside, *_cut(left, size)]


def _cut(nodes: Sequence[str], size: int) -> list[NodeGroup]:
    return [NodeGroup(tuple(nodes[start : start + size])) for start in range(0, len(nodes) - size + 1, size)]


@dataclass(frozen=True)
class GroupLimits:
    """Shares of the usual bandwidth below which a group is slow.

    `slower`: less than the other groups of its size; `least_share`: of the smallest groups' bandwidth;
    `least_of_pairs`: of `pairs_gb_per_s`, the normal for pairs, 0 if unknown.
    """

    slower: float
    least_share: float
    least_of_pairs: float
    pairs_gb_per_s: float = 0.0


@dataclass(frozen=True)
class MeasuredGroups:
    """Measurements of groups, by size and by group."""

    measurements: tuple[GroupMeasurement, ...]
    places: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_size(self) -> Mapping[int, Mapping[NodeGroup, tuple[Reading, ...]]]:
        """The readings of each group of so many nodes, the smallest first."""
        sizes: dict[int, dict[NodeGroup, tuple[Reading, ...]]] = {}
        for measurement in sorted(self.measurements, key=lambda measurement: len(measurement.group.nodes)):
            readings = sizes.setdefault(len(measurement.group.nodes), {})
            readings[measurement.group] = (*readings.get(measurement.group, ()), measurement.reading)
        return sizes

    def median_gb_per_s(self, size: int) -> float | None:
        """The median of the groups of this size; None if none succeeded."""
        return _middle([best_gb_per_s(readings) for readings in self.by_size.get(size, {}).values()])

    def others_gb_per_s(self, group: NodeGroup) -> float | None:
        """The usual bandwidth of other groups of its size over as many places; None if too few of them succeeded."""
        same = self.by_size[len(group.nodes)]
        others = [other for other in same if other != group and self._spans(other) == self._spans(group)]
        best = [busbw for other in others if (busbw := best_gb_per_s(same[other]))]
        return _middle(best) if len(best) >= MIN_OTHERS else None

    def _spans(self, group: NodeGroup) -> int:
        return len({self.places.get(node, "") for node in group})

    @cached_property
    def smallest(self) -> tuple[int, float] | None:
        """The smallest groups that larger ones may be compared with: size and usual bandwidth."""
        known = ((size, self.median_gb_per_s(size)) for size in self.by_size if size >= FIRST_SIZE)
        return next(((size, typical) for size, typical in known if typical), None)

    def is_low(self, group: NodeGroup, reading: Reading, limits: GroupLimits) -> bool:
        """Whether a reading of a group failed, is wrong, or is lower than comparable ones suggest."""
        busbw = reading.busbw_gb_per_s
        if not busbw or reading.is_correct is False:
            return True
        few, typical = self.smallest or (len(group.nodes), 0.0)
        return (
            busbw < (1 - limits.slower) * (self.others_gb_per_s(group) or 0.0)
            or (len(group.nodes) > few and busbw < limits.least_share * typical)
            or busbw < limits.least_of_pairs * limits.pairs_gb_per_s
        )

    def description(self) -> str:
        """`4 nodes 371 GB/s, 8 nodes 365 GB/s (1 of 8 failed), 64 nodes failed`."""
        return ", ".join(self._of_size(size) for size in self.by_size)

    def _of_size(self, size: int) -> str:
        typical, groups = self.median_gb_per_s(size), self.by_size[size].values()
        failed = sum(best_gb_per_s(readings) is None for readings in groups)
        some = f" ({failed} of {len(groups)} failed)" if failed and typical else ""
        return f"{size} nodes {speed(typical) if typical else 'failed'}{some}"


def _middle(bandwidths: Sequence[float | None]) -> float | None:
    succeeded = [busbw for busbw in bandwidths if busbw]
    return median(succeeded) if succeeded else None


def best_gb_per_s(readings: Sequence[Reading]) -> float | None:
    """The best bandwidth of one group's readings, None if all failed."""
    return max((reading.busbw_gb_per_s or 0.0 for reading in readings), default=0.0) or None


def next_groups(
    plan: GroupPlan, limits: GroupLimits, measurements: Sequence[GroupMeasurement]
) -> tuple[NodeGroup, ...]:
    """The groups to measure next, at the same time; none at the end.

    Each size once, and again if a reading was low: then all of its groups, for the same load.
    """
    measured = MeasuredGroups(tuple(measurements), plan.places)
    for size, groups in plan.by_size.items():
        readings = measured.by_size.get(size, {})
        if left := tuple(group for group in groups if group not in readings):
            return _at_once(left, plan)
        again = tuple(group for group in groups if len(readings[group]) < TIMES)
        if again and any(measured.is_low(group, readings[group][0], limits) for group in groups):
            return _at_once(again, plan)
    return ()


def _at_once(groups: tuple[NodeGroup, ...], plan: GroupPlan) -> tuple[NodeGroup, ...]:
    return groups[: max(1, plan.most_nodes // len(groups[0].nodes))]
