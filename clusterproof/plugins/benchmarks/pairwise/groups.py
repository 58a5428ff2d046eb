"""Groups of nodes, after the pairs: which to measure next, and what a group's bandwidth is compared with. Pure.

Pairs name nodes and links. What only shows where many nodes meet (an oversubscribed switch, a rail that is cabled to
another, a library that chooses another algorithm) shows in groups of 4, 8, … and in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from clusterproof.plugins.core.message import speed
from clusterproof.plugins.evidence.pairs import Group, GroupMeasurement, Reading

DOUBLING, ALL = "doubling", "all"
FEWEST_NODES = 3  # of a group: two are a pair
FIRST_SIZE = 4  # with two nodes NCCL's trees and NVLS bring more than the wire has
FEWEST_OTHERS = 2  # groups of the same size, to say that one is slower
TIMES = 2  # that a size is measured where anything of it was low


@dataclass(frozen=True)
class GroupPlan:
    """The nodes that are measured in groups, and in groups of which size: `which` is what a person asked for.

    `places` names each node's rack as far as it is known: groups are of one place where they fit into it. `slower` is
    the share of the usual bandwidth from which on a group is low, `least_share` what of the smallest groups' bandwidth
    larger ones are to have.
    """

    which: str
    nodes: tuple[str, ...]
    places: Mapping[str, str]
    slower: float
    least_share: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes the groups have, the smallest first."""
        count = len(self.nodes)
        if self.which == DOUBLING:
            wanted = [FIRST_SIZE << power for power in range(count.bit_length()) if FIRST_SIZE << power < count]
            wanted.append(count)
        else:
            wanted = [count if size == ALL else int(size) for size in self.which.split(",")]
        return tuple(sorted({size for size in wanted if FEWEST_NODES <= size <= count}))

    def groups_of(self, size: int) -> tuple[Group, ...]:
        """As many groups of this size as there are nodes for, each node in one at most."""
        ordered = sorted(self.nodes, key=lambda node: (self.places.get(node, ""), node))
        return tuple(Group(tuple(ordered[start : start + size])) for start in range(0, len(ordered) - size + 1, size))


@dataclass(frozen=True)
class MeasuredGroups:
    """What was measured of groups, by their size and by group."""

    measurements: tuple[GroupMeasurement, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes, the smallest first."""
        return tuple(sorted({len(one.group.nodes) for one in self.measurements}))

    def of_size(self, size: int) -> dict[Group, tuple[Reading, ...]]:
        """The readings of each group of so many nodes."""
        readings: dict[Group, tuple[Reading, ...]] = {}
        for measurement in self.measurements:
            if len(measurement.group.nodes) == size:
                readings[measurement.group] = (*readings.get(measurement.group, ()), measurement.reading)
        return readings

    def usual_gb_per_s(self, size: int, but: Group | None = None) -> float | None:
        """The median of the groups of this size, but for one; None where none succeeded."""
        best = [best_gb_per_s(readings) for group, readings in self.of_size(size).items() if group != but]
        succeeded = [busbw for busbw in best if busbw]
        return median(succeeded) if succeeded else None

    def others_gb_per_s(self, group: Group) -> float | None:
        """What is usual for the other groups of its size; None where too few of them succeeded."""
        size = len(group.nodes)
        others = [readings for other, readings in self.of_size(size).items() if other != group]
        succeeded = sum(best_gb_per_s(readings) is not None for readings in others)
        return self.usual_gb_per_s(size, group) if succeeded >= FEWEST_OTHERS else None

    def smallest(self) -> tuple[int, float] | None:
        """The smallest groups that may be compared with larger ones: their size and what is usual for them."""
        for size in self.sizes:
            usual = self.usual_gb_per_s(size) if size >= FIRST_SIZE else None
            if usual:
                return size, usual
        return None

    def is_low(self, group: Group, reading: Reading, plan: GroupPlan) -> bool:
        """Whether one reading of a group failed, is wrong, or is less than its like suggest."""
        busbw = reading.busbw_gb_per_s
        if not busbw or reading.is_correct is False:
            return True
        others, smallest = self.others_gb_per_s(group), self.smallest()
        return bool(
            (others and busbw < (1 - plan.slower) * others)
            or (smallest and len(group.nodes) > smallest[0] and busbw < plan.least_share * smallest[1])
        )

    def in_words(self) -> str:
        """`4 nodes 371 GB/s, 8 nodes 365 GB/s, 64 nodes 350 GB/s`; what failed says so."""
        usual = {size: self.usual_gb_per_s(size) for size in self.sizes}
        return ", ".join(f"{size} nodes {speed(busbw) if busbw else 'failed'}" for size, busbw in usual.items())


def best_gb_per_s(readings: Sequence[Reading]) -> float | None:
    """The best bandwidth of one group's readings, None where all failed."""
    return max((reading.busbw_gb_per_s or 0.0 for reading in readings), default=0.0) or None


def next_groups(plan: GroupPlan, measurements: Sequence[GroupMeasurement]) -> tuple[Group, ...]:
    """The groups to measure next, at the same time; none at the end.

    Each size once, and once more where a reading of it was low: all of its groups, so that as many meet as before.
    """
    measured = MeasuredGroups(tuple(measurements))
    for size in plan.sizes:
        readings = measured.of_size(size)
        groups = plan.groups_of(size)
        if left := tuple(group for group in groups if group not in readings):
            return left
        again = tuple(group for group in groups if len(readings[group]) < TIMES)
        if again and any(measured.is_low(group, readings[group][0], plan) for group in groups):
            return again
    return ()


def at_most(groups: tuple[Group, ...], pairs_at_once: int) -> tuple[Group, ...]:
    """The first of these groups that have together no more nodes than so many pairs; one at least."""
    return groups[: max(1, 2 * pairs_at_once // len(groups[0].nodes))]
