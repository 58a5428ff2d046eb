"""The measurements of nodes of one type, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import exp

from clusterproof.plugins.benchmarks.meters.baseline import BaselineFigure, Expectation, Stack, expectation
from clusterproof.plugins.benchmarks.meters.selection import METERS
from clusterproof.plugins.benchmarks.pairwise import by_node, by_pair, is_inside, named_in, nodes_of
from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis, analyse
from clusterproof.plugins.benchmarks.pairwise.groups import MeasuredGroups
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.benchmarks.pairwise.mesh import Mesh, mesh_of
from clusterproof.plugins.benchmarks.pairwise.normal import succeeded
from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.catalog.busbw import FLOOR, BusbwKey, OfWire, expected_busbw, of_wire
from clusterproof.plugins.evidence.pairs import (
    Kind,
    MeasuredGroup,
    Measurement,
    NodeGroup,
    Pair,
    PairFault,
)


@dataclass(frozen=True)
class Campaign:
    """The measurements of nodes of one type, and their analysis."""

    journal: Journal
    figures: tuple[BaselineFigure, ...] = ()  # from the site's own baseline
    catalog: Catalog = PACKAGED

    @cached_property
    def analysis(self) -> Analysis:
        """The analysis of the measurements; empty if they are no bandwidths."""
        plan = self.journal.plan
        return Analysis() if plan.mesh else analyse(self.journal.measurements, plan.settings, self.floor_gb_per_s)

    @cached_property
    def mesh(self) -> Mesh | None:
        """The analysis of RDMA exchanges; None if bandwidth was measured."""
        plan = self.journal.plan
        return mesh_of(self.journal.measurements, plan.places, plan.mesh) if plan.mesh else None

    @cached_property
    def by_pair(self) -> Mapping[Pair, Sequence[Measurement]]:
        """The measurements of each pair, in the order in which pairs were first measured."""
        return by_pair(self.journal.measurements)

    @cached_property
    def by_node(self) -> Mapping[str, Sequence[Measurement]]:
        """The measurements that each node took part in."""
        return by_node(self.journal.measurements)

    @cached_property
    def named(self) -> tuple[PairFault, ...]:
        """The findings of pairs on single nodes, which are excluded from groups."""
        kinds = (Kind.SLOW_NODE, Kind.FAILING_NODE)
        return tuple(finding for finding in self.analysis.findings if finding.kind in kinds)

    @cached_property
    def nodes_for_groups(self) -> tuple[str, ...]:
        """Available nodes with a successful pair and without a finding."""
        well = nodes_of(succeeded(self.journal.measurements)) - named_in(self.named) - self.journal.plan.absent
        return tuple(node for node in self.journal.plan.nodes if node in well)

    @cached_property
    def groups(self) -> MeasuredGroups:
        """The measurements of groups."""
        return MeasuredGroups(self.journal.groups, self.journal.plan.places)

    @cached_property
    def groups_of(self) -> Mapping[str, tuple[MeasuredGroup, ...]]:
        """The groups of each node, the smallest first, with what they are compared with."""
        by_node: dict[str, list[MeasuredGroup]] = {}
        for size, groups in self.groups.by_size.items():
            for group, readings in groups.items():
                compared = self.groups.others_gb_per_s(group), self.groups.smallest, self.floor_of(size)
                measured = MeasuredGroup(group, readings, *compared, self.pairs_gb_per_s, self._slow_inside(group))
                for node in group:
                    by_node.setdefault(node, []).append(measured)
        return {node: tuple(groups) for node, groups in by_node.items()}

    @property
    def pairs_gb_per_s(self) -> float:
        """The slower of the normals for pairs, within places and across them; 0 if none succeeded."""
        normal = self.analysis.normal
        return exp(min(normal.inside, normal.across)) if normal else 0.0

    def _slow_inside(self, group: NodeGroup) -> PairFault | None:
        """A slow link between two of its nodes, or a slow place of some of them, according to the pairs."""
        kinds = (Kind.SLOW_LINK, Kind.FAILING_LINK, Kind.SLOW_GROUP)
        nodes = set(group)
        for finding in self.analysis.findings:
            inside = nodes & set(finding.nodes)
            if finding.kind in kinds and (inside == set(finding.nodes) or (inside and finding.place)):
                return finding
        return None

    @property
    def is_partial(self) -> bool:
        """Whether the user selected pairs, or interrupted it: then it is not compared with other runs."""
        return bool(self.journal.plan.asked) or self.journal.ended is None

    def includes(self, node: str) -> bool:
        """Whether a node is to be measured at all."""
        named_pairs = self.journal.plan.asked
        return not named_pairs or any(node in pair for pair in named_pairs)

    @cached_property
    def key(self) -> BusbwKey | None:
        """What its figures may be compared with; None if unknown."""
        value = self.journal.about.get("key")
        names = {each.name for each in fields(BusbwKey)}
        return BusbwKey(**value) if isinstance(value, dict) and value.keys() == names else None

    @cached_property
    def stack(self) -> Stack:
        """The software that was measured."""
        recorded = self.journal.about.get("stack")
        names = {each.name for each in fields(Stack)}
        return Stack(**{key: str(value) for key, value in recorded.items() if key in names}) if recorded else Stack()

    @cached_property
    def baseline(self) -> Expectation | None:
        """The site's own figure for the same key."""
        return expectation(self.figures, self.key, self.stack) if self.key else None

    @cached_property
    def floor_gb_per_s(self) -> float | None:
        """What every pair must reach: a share of the site's own figure, else of a published one for the same key."""
        return self.floor_of(self.key.nodes) if self.key else None

    def floor_of(self, nodes: int) -> float | None:
        """What a group of so many nodes must reach; None if no figure is known for that size."""
        if self.key is None:
            return None
        key = replace(self.key, nodes=nodes)
        own = expectation(self.figures, key, self.stack)
        known = own.figure if own else expected_busbw(key)
        return known.busbw_gb_per_s * self.floor_share if known else None

    @property
    def floor_share(self) -> float:
        """The share for the floor."""
        return self.catalog.threshold(FLOOR)

    def by_hand(self, node: str, other: str) -> str:
        """How a person repeats the measurement of two nodes; empty if a recording's meter is unknown."""
        meter = METERS.get(str(self.journal.about.get("meter", "")))
        return meter.by_hand(node, other, self.key.collective if self.key else "") if meter and meter.by_hand else ""

    @property
    def unclear(self) -> str:
        """Why its nodes cannot be distinguished; empty if they can."""
        findings = (
            finding for finding in self.analysis.findings if finding.kind is Kind.INCONCLUSIVE and not finding.pairs
        )
        return next((finding.words for finding in findings if len(finding.nodes) > 1), "")

    def normal_gb_per_s(self, pair: Pair) -> float | None:
        """The normal bandwidth for pairs like this one."""
        reference = self.analysis.normal
        return exp(reference.of(is_inside(pair, self.journal.plan.places))) if reference else None

    def of_wire(self, busbw_gb_per_s: float) -> OfWire | None:
        """A bandwidth as a share of the node's network bandwidth."""
        return of_wire(busbw_gb_per_s, self.key, self.catalog) if self.key else None
