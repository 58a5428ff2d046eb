"""Analyses measurements of pairs; the only module that names a node as slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import exp
from statistics import median

from clusterproof.plugins.benchmarks.meters.baseline import METERS, BaselineFigure, Expectation, Stack, expectation
from clusterproof.plugins.benchmarks.pairwise import is_inside
from clusterproof.plugins.benchmarks.pairwise.findings import (
    deduplicated,
    failing_or_suspect,
    left_open,
    link_findings,
    slow_now_and_then,
    too_noisy,
)
from clusterproof.plugins.benchmarks.pairwise.groups import MeasuredGroups
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.benchmarks.pairwise.mesh import Mesh, mesh_of
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings, Normal, succeeded
from clusterproof.plugins.benchmarks.pairwise.screen import SlowPlace, Suspicion, screen
from clusterproof.plugins.benchmarks.pairwise.suspects import RETESTS, estimates_of, suspected
from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.catalog.busbw import FLOOR, BusbwKey, OfWire, expected_busbw, of_wire
from clusterproof.plugins.core.message import speed
from clusterproof.plugins.core.robust import location_error
from clusterproof.plugins.evidence.pairs import (
    Estimate,
    Kind,
    MeasuredGroup,
    Measurement,
    NodeGroup,
    Pair,
    PairFault,
    estimated,
)

SHARE_UNDER_FLOOR = 0.5  # of all pairs: from this share on no node is named
TOO_FEW = 3  # nodes: with two, nobody can say which is slow


@dataclass(frozen=True, slots=True)
class Analysis:
    """The findings and estimates that the measurements lead to."""

    findings: tuple[PairFault, ...] = ()
    normal: Normal | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)  # for every measured node


def analyse(
    measurements: Sequence[Measurement], settings: AnalysisSettings, floor_gb_per_s: float | None = None
) -> Analysis:
    """The findings from these measurements. The floor is in busbw; None if unknown."""
    screened = screen(measurements, settings)
    nodes = {node for measurement in measurements for node in measurement.pair.nodes}
    failing = failing_or_suspect(measurements)
    if screened.reference is None:
        named = tuple(finding for finding in failing if finding.kind is Kind.FAILING_NODE)
        return Analysis(named or (_nothing(measurements),))
    estimates = estimates_of(screened, len(nodes))
    contention = _contention(screened.reference, settings)
    configuration = None if contention else _configuration(measurements, floor_gb_per_s)
    if configuration:
        return Analysis((configuration, *failing), screened.reference, estimates)
    places = [_place(place, screened, settings) for place in screened.places]
    by_speed = sorted(screened.slow, key=lambda node: screened.slow[node])
    slow = filter(None, (suspected(node, screened, estimates[node], settings) for node in by_speed))
    of_nodes = deduplicated([*slow], failing)
    named_nodes = {node for finding in of_nodes for node in finding.nodes}
    links = link_findings(screened, measurements, named_nodes, settings, len(nodes))
    blamed = named_nodes | {node for link in links if link.kind is not Kind.INCONCLUSIVE for node in link.nodes}
    intermittent = slow_now_and_then(screened, nodes - blamed, estimates, settings)
    reported = blamed | {node for finding in intermittent for node in finding.nodes}
    unclear = _too_few(screened, floor_gb_per_s, settings) or too_noisy(screened, settings)
    jittery = [] if unclear else left_open(screened, nodes - reported, estimates, settings)
    return Analysis(
        (*contention, *places, *of_nodes, *links, *intermittent, *jittery, *unclear), screened.reference, estimates
    )


def _nothing(measurements: Sequence[Measurement]) -> PairFault:
    nodes = tuple(sorted({node for measurement in measurements for node in measurement.pair.nodes}))
    return PairFault(Kind.INCONCLUSIVE, nodes, attempts=len(measurements), words="nothing was measured")


def _too_few(screened: Suspicion, floor_gb_per_s: float | None, settings: AnalysisSettings) -> tuple[PairFault, ...]:
    """A finding that so few nodes cannot be distinguished: two have no third to compare with; of three, each is in
    most pairs.
    """
    nodes = tuple(sorted(screened.of_node))
    if len(nodes) < TOO_FEW and floor_gb_per_s is None:
        message = "two nodes have nobody to be compared with: measure them with a third, or give --baseline"
        return (PairFault(Kind.INCONCLUSIVE, nodes, attempts=len(screened.values), words=message),)
    xs = [value.x for value in screened.values]
    if len(nodes) == TOO_FEW and max(xs) - min(xs) > 2 * settings.min_effect:
        spread_percent = (1 - exp(min(xs) - max(xs))) * 100
        message = f"pairs of three nodes differ by up to {spread_percent:.0f} %: measure them with a fourth"
        return (PairFault(Kind.INCONCLUSIVE, nodes, attempts=len(xs), words=message),)
    return ()


def _configuration(measurements: Sequence[Measurement], floor_gb_per_s: float | None) -> PairFault | None:
    """A finding that most pairs are under the floor: no single node causes that. Contended pairs are not used."""
    succeeding = succeeded(measurements)
    busbw = [measurement.reading.busbw_gb_per_s or 0.0 for measurement in succeeding]
    floor = floor_gb_per_s or 0.0
    under = [measurement for measurement, value in zip(succeeding, busbw, strict=True) if value < floor]
    if not floor_gb_per_s or len(under) <= SHARE_UNDER_FLOOR * len(succeeding):
        return None
    most = f"{len(under)} of {len(succeeding)} measurements are under the floor of {speed(floor_gb_per_s)}"
    message = f"{most}, their median is {speed(median(busbw))}"
    nodes = tuple(sorted({node for measurement in under for node in measurement.pair.nodes}))
    pairs = tuple({measurement.pair: None for measurement in under})
    return PairFault(Kind.CONFIGURATION, nodes, words=message, pairs=pairs)


def _contention(reference: Normal, settings: AnalysisSettings) -> list[PairFault]:
    """A finding that pairs are faster when fewer run at once."""
    findings = []
    for relief, what in ((reference.relief_inside, "inside places"), (reference.relief_across, "across places")):
        if relief >= settings.min_effect:
            which_pairs = f"pairs {what} are" if settings.places else "pairs are"
            gained = f"{which_pairs} {1 - exp(-relief):.0%} slower when all run at once than when at most half do"
            findings.append(PairFault(Kind.CONTENTION, estimate=estimated(-relief, 0.0, 0), words=gained))
        if not settings.places and findings:
            break
    return findings


def _place(place: SlowPlace, screened: Suspicion, settings: AnalysisSettings) -> PairFault:
    """A slow place; contention there, where its pairs are well when at most half run at once."""
    assert screened.reference is not None
    of_it = set(place.nodes)
    touching = [value for value in screened.values if not value.is_inside and of_it & set(value.pair.nodes)]
    again = [value.x + place.across for value in touching if value.is_retest and value.is_relaxed]
    pairs = tuple({value.pair: None for value in touching})
    estimate = estimated(place.across, location_error(len(touching), screened.reference.sigma), len(touching))
    recovered = len(again) >= RETESTS and median(again) > -settings.min_effect / 2
    kind = Kind.CONTENTION if recovered else Kind.SLOW_GROUP
    where = "inside too" if place.inside else "and well inside: what joins it to the others is slow"
    message = "well with at most half the pairs at once" if recovered else where
    return PairFault(kind, place.nodes, place.name, estimate, words=message, pairs=pairs)


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
    def by_pair(self) -> Mapping[Pair, tuple[Measurement, ...]]:
        """The measurements of each pair, in the order in which pairs were first measured."""
        by_pair: dict[Pair, list[Measurement]] = {}
        for measurement in self.journal.measurements:
            by_pair.setdefault(measurement.pair, []).append(measurement)
        return {pair: tuple(measurements) for pair, measurements in by_pair.items()}

    @cached_property
    def by_node(self) -> Mapping[str, tuple[Measurement, ...]]:
        """The measurements that each node took part in."""
        by_node: dict[str, list[Measurement]] = {}
        for measurement in self.journal.measurements:
            for node in measurement.pair:
                by_node.setdefault(node, []).append(measurement)
        return {node: tuple(measurements) for node, measurements in by_node.items()}

    @cached_property
    def named(self) -> tuple[PairFault, ...]:
        """The findings of pairs on single nodes, which are excluded from groups."""
        kinds = (Kind.SLOW_NODE, Kind.FAILING_NODE)
        return tuple(finding for finding in self.analysis.findings if finding.kind in kinds)

    @property
    def nodes_for_groups(self) -> tuple[str, ...]:
        """Available nodes with a successful pair and without a finding."""
        named = {*self.journal.plan.absent, *(node for finding in self.named for node in finding.nodes)}
        well = {node for measurement in succeeded(self.journal.measurements) for node in measurement.pair}
        return tuple(node for node in self.journal.plan.nodes if node in well - named)

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
