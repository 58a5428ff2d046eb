"""Facts on measurements between nodes: of the whole run, of a pair, and of a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.groups import MIN_NODES, GroupPlan, best_gb_per_s
from clusterproof.plugins.benchmarks.pairwise.in_words import as_observed, attribution
from clusterproof.plugins.core.message import format_speeds
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.evidence.pairs import (
    Kind,
    Measurement,
    Pair,
    PairFault,
    PairsOfNode,
)

SLOW = 0.95  # share of normal below which a single measurement is worth mentioning
OF_PLACES = (Kind.CONFIGURATION, Kind.SLOW_GROUP, Kind.CONTENTION)
OF_NODES = (Kind.SLOW_NODE, Kind.FAILING_NODE, Kind.INTERMITTENT, Kind.INCONCLUSIVE)


@dataclass(frozen=True)
class MeasuredPair:
    """One pair: the subject of a check of pairs."""

    pair: Pair
    campaign: Campaign

    @property
    def name(self) -> str:
        """`gpu1~gpu7`."""
        return str(self.pair)

    @property
    def type_name(self) -> str:
        """The instance type of both."""
        return self.campaign.key.instance_type if self.campaign.key else ""

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """Empty: a pair has no GPUs of its own."""
        return ()

    @property
    def subjects(self) -> tuple[MeasuredPair, ...]:
        """The pair itself, as the subject of checks."""
        return (self,)

    @property
    def measurements(self) -> Sequence[Measurement]:
        """Its measurements."""
        return self.campaign.by_pair[self.pair]

    @property
    def shares(self) -> tuple[float, ...]:
        """Its bandwidths relative to normal for such a pair, without failed measurements."""
        normal = self.campaign.normal_gb_per_s(self.pair)
        bandwidths = (measurement.reading.busbw_gb_per_s for measurement in self.measurements)
        return tuple(busbw / normal for busbw in bandwidths if busbw and normal)

    @property
    def is_slow(self) -> bool:
        """Whether a measurement of it failed, or was slower than usual."""
        return len(self.shares) < len(self.measurements) or min(self.shares, default=0.0) < SLOW

    @property
    def best_gb_per_s(self) -> float | None:
        """Its best bandwidth, None if all measurements failed."""
        return best_gb_per_s([measurement.reading for measurement in self.measurements])

    @property
    def finding(self) -> PairFault | None:
        """The analysis's finding on this pair itself."""
        kinds = (Kind.SLOW_LINK, Kind.FAILING_LINK, Kind.INCONCLUSIVE)
        findings = (finding for finding in self.campaign.analysis.findings if finding.kind in kinds)
        return next((finding for finding in findings if finding.nodes == self.pair.nodes), None)

    @property
    def explained(self) -> PairFault | None:
        """The finding on a node, a place or everything that explains this pair, else one on all nodes that might."""
        return explains(self.campaign.analysis, self.pair)


def explains(analysis: Analysis, pair: Pair) -> PairFault | None:
    """The finding that explains a pair: rather one on its nodes or place than one on all pairs."""
    known = [finding for finding in analysis.findings if pair in finding.pairs or _holds_for_all(finding)]
    findings = sorted((finding for finding in known if finding.nodes != pair.nodes), key=_holds_for_all)
    return next((finding for finding in findings if finding.kind is not Kind.INCONCLUSIVE), _of_either(findings))


def shared_by(analysis: Analysis, node: str) -> tuple[PairFault, ...]:
    """The findings on places of a node, and on all nodes."""
    of_places = (finding for finding in analysis.findings if finding.kind in OF_PLACES)
    return tuple(finding for finding in of_places if not finding.nodes or node in finding.nodes)


def _of_either(findings: Sequence[PairFault]) -> PairFault | None:
    """Of uncertain findings, one that names all their nodes: no measurement distinguishes them."""
    nodes = tuple(dict.fromkeys(node for finding in findings for node in finding.nodes))
    return replace(findings[0], nodes=nodes) if findings else None


def _holds_for_all(finding: PairFault) -> bool:
    return finding.kind is Kind.CONTENTION and not finding.nodes


@dataclass(frozen=True)
class NoPairs:
    """Placeholder for the pairs of a run that measured none."""

    name: str
    why_not: str
    type_name: str = ""
    gpu_uuids: tuple[str, ...] = ()

    @property
    def subjects(self) -> tuple[MeasuredPair, ...]:
        """Raises Incomplete."""
        raise Incomplete(self.why_not, cause=self.why_not)


@dataclass(frozen=True)
class PairwiseRun:
    """All measurements between nodes of a run; `why_not` says why there are none."""

    campaigns: tuple[Campaign, ...] = ()
    why_not: str = ""

    @property
    def is_partial(self) -> bool:
        """Whether it covers less of the cluster than other runs."""
        return any(campaign.is_partial for campaign in self.campaigns)

    @cached_property
    def pairs(self) -> tuple[MeasuredPair, ...]:
        """Every measured pair."""
        return tuple(MeasuredPair(pair, campaign) for campaign in self.campaigns for pair in campaign.by_pair)

    def pairs_of_node(self, node: str) -> PairsOfNode:
        """The measurements of a node. Raises Incomplete, and NotApplicable for a node that belongs to no job."""
        for campaign in self.campaigns:
            if node in campaign.journal.plan.nodes:
                return _pairs_of(node, campaign)
        if self.why_not or not self.campaigns:
            why = self.why_not or "nothing was measured between nodes"
            raise Incomplete(why, cause=why)
        raise NotApplicable(
            "it is not among the nodes that were measured: its type has no accelerators, it is alone, "
            "or --pairs names none of its type"
        )


def _pairs_of(node: str, campaign: Campaign) -> PairsOfNode:
    return PairsOfNode(
        measured=tuple(campaign.by_node.get(node, ())),
        if_none=_why_unmeasured(node, campaign),
        estimate=campaign.analysis.estimates.get(node),
        finding=next(
            (
                finding
                for finding in campaign.analysis.findings
                if finding.nodes == (node,) and finding.kind in OF_NODES
            ),
            None,
        ),
        shared=shared_by(campaign.analysis, node),
        failing=frozenset(
            name for finding in campaign.named if finding.kind is Kind.FAILING_NODE for name in finding.nodes
        ),
        unclear=campaign.unclear,
        is_one_of_two=len(campaign.by_node) <= 2,
        meter=str(campaign.journal.about.get("meter", "")),
        by_hand=campaign.by_hand("NODE", "GOOD_NODE"),
        in_groups=campaign.groups_of.get(node, ()),
        groups_left_out=_groups_left_out(node, campaign),
        if_no_group=None if node in campaign.groups_of else _why_in_no_group(node, campaign),
        mesh=campaign.mesh.node_finding(node) if campaign.mesh else None,
    )


def _groups_left_out(node: str, campaign: Campaign) -> str:
    """The requested groups of a node that were not measured, and why."""
    planned = campaign.journal.group_plan or GroupPlan(())
    measured = {measurement.group for measurement in campaign.groups_of.get(node, ())}
    left = [len(group.nodes) for group in planned.groups if node in group.nodes and group not in measured]
    why = campaign.journal.ended or "the run ended before their turn"
    unmeasured = f"groups of {', '.join(map(str, left))}: {why}" if left else ""
    return "; ".join(filter(None, (planned.left_out, unmeasured)))


def _why_in_no_group(node: str, campaign: Campaign) -> Incomplete | NotApplicable:
    about, journal, planned = campaign.journal.about, campaign.journal, campaign.journal.group_plan
    if not (about.get("groups") or planned):
        return NotApplicable("not asked: --groups measures groups of nodes too")
    if not campaign.includes(node):
        return NotApplicable("not asked: --pairs names pairs of other nodes")
    if len(journal.plan.nodes) < MIN_NODES:
        return NotApplicable(f"fewer than {MIN_NODES} nodes of its type are measured")
    named = next((finding for finding in campaign.named if node in finding.nodes), None)
    if named:
        return NotApplicable(f"left out of the groups: {attribution(named)}")
    why = journal.absent.get(node) or _groups_left_out(node, campaign)
    if not why and planned and node not in campaign.nodes_for_groups:
        why = "no pair of it succeeded"
    elif not why and planned:
        return NotApplicable("left over: no further group of a size that was asked for could be made of such nodes")
    why = why or journal.ended or "the run ended before its turn"
    return Incomplete(f"no group of it was measured: {why}", cause=f"no group was measured: {why}")


def _why_unmeasured(node: str, campaign: Campaign) -> Incomplete | NotApplicable:
    if not campaign.includes(node):
        return NotApplicable("not asked: --pairs names pairs of other nodes")
    why = campaign.journal.absent.get(node) or campaign.journal.ended or "the run ended before its turn"
    return Incomplete(f"no pair of it was measured: {why}", cause=f"no pair was measured: {why}")


def measurement_text(pair: MeasuredPair, floor_gb_per_s: float = 0.0) -> str:
    """`284 GB/s, 71 % of normal; again 99 %, 98 %`; failures give their reason. Never as if at the floor."""
    first, *again = (_reading_text(pair, number, floor_gb_per_s) for number in range(len(pair.measurements)))
    return as_observed(f"{first}; again {', '.join(again)}" if again else first)


def _reading_text(pair: MeasuredPair, number: int, floor_gb_per_s: float) -> str:
    reading = pair.measurements[number].reading
    normal = pair.campaign.normal_gb_per_s(pair.pair)
    if not reading.busbw_gb_per_s:
        return f"failed ({reading.problem or 'nothing says why'})"
    share = f"{reading.busbw_gb_per_s / normal:.0%}".replace("%", " %") if normal else ""
    return f"{format_speeds(reading.busbw_gb_per_s, floor_gb_per_s)[0]}, {share} of normal" if not number else share
