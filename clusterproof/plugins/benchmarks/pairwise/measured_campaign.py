"""The measurements between nodes of one type: what they come to, and what is expected of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from math import exp

from clusterproof.plugins.benchmarks.meters.baseline import METERS, Expectation, Figure, Stack, expectation
from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis, analyse
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.benchmarks.pairwise.schedule import is_inside
from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.catalog.busbw import FLOOR, BusbwKey, OfWire, expected_busbw, of_wire
from clusterproof.plugins.evidence.pairs import Kind, Measurement, Pair


@dataclass(frozen=True)
class Campaign:
    """The measurements of nodes of one type, and what they come to."""

    journal: Journal
    figures: tuple[Figure, ...] = ()  # of the site's own baseline
    catalog: Catalog = PACKAGED

    @cached_property
    def analysis(self) -> Analysis:
        """What the measurements come to."""
        return analyse(self.journal.measurements, self.journal.plan.settings, self.floor_gb_per_s)

    @cached_property
    def of_pair(self) -> Mapping[Pair, tuple[Measurement, ...]]:
        """The measurements of each pair, in the order of the pairs' first."""
        found: dict[Pair, list[Measurement]] = {}
        for one in self.journal.measurements:
            found.setdefault(one.pair, []).append(one)
        return {pair: tuple(data) for pair, data in found.items()}

    @cached_property
    def of_node(self) -> Mapping[str, tuple[Measurement, ...]]:
        """The measurements that each node took part in."""
        found: dict[str, list[Measurement]] = {}
        for one in self.journal.measurements:
            for node in one.pair:
                found.setdefault(node, []).append(one)
        return {node: tuple(data) for node, data in found.items()}

    @property
    def is_partial(self) -> bool:
        """Whether a person asked for some pairs only, or broke it off: it is not to be compared with other runs."""
        return bool(self.journal.plan.asked) or self.journal.ended is None

    def asks(self, node: str) -> bool:
        """Whether a node is to be measured at all."""
        asked = self.journal.plan.asked
        return not asked or any(node in one for one in asked)

    @cached_property
    def key(self) -> BusbwKey | None:
        """What its figures may be compared with; None where that is not known."""
        data = self.journal.about.get("key")
        names = {each.name for each in fields(BusbwKey)}
        return BusbwKey(**data) if isinstance(data, dict) and data.keys() == names else None

    @cached_property
    def stack(self) -> Stack:
        """The software that was measured."""
        data = self.journal.about.get("stack")
        names = {each.name for each in fields(Stack)}
        return Stack(**{key: str(value) for key, value in data.items() if key in names}) if data else Stack()

    @cached_property
    def baseline(self) -> Expectation | None:
        """The site's own figure for the same key."""
        return expectation(self.figures, self.key, self.stack) if self.key else None

    @cached_property
    def floor_gb_per_s(self) -> float | None:
        """What every pair must reach: a share of the site's own figure, else of a published one for the same key."""
        known = self.baseline.figure if self.baseline else expected_busbw(self.key) if self.key else None
        return known.busbw_gb_per_s * self.floor_share if known else None

    @property
    def floor_share(self) -> float:
        """That share."""
        return self.catalog.threshold(FLOOR)

    def by_hand(self, one: str, other: str) -> str:
        """How a person measures two nodes as they were measured here; empty where a recording names no such meter."""
        meter = METERS.get(str(self.journal.about.get("meter", "")))
        return meter.by_hand(one, other, self.key.collective if self.key else "") if meter and meter.by_hand else ""

    @property
    def unclear(self) -> str:
        """Why its nodes cannot be distinguished; empty where they can."""
        data = (one for one in self.analysis.findings if one.kind is Kind.INCONCLUSIVE and not one.pairs)
        return next((one.words for one in data if len(one.nodes) > 1), "")

    def usual_gb_per_s(self, pair: Pair) -> float | None:
        """What is normal for pairs like this one."""
        usual = self.analysis.usual
        return exp(usual.of(is_inside(pair, self.journal.plan.places))) if usual else None

    def of_wire(self, busbw_gb_per_s: float) -> OfWire | None:
        """A bandwidth as a share of the node's network."""
        return of_wire(busbw_gb_per_s, self.key, self.catalog) if self.key else None
