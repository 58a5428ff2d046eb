"""Redacts a run's measurements: names of nodes and places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.groups import GroupPlan
from clusterproof.plugins.benchmarks.pairwise.journal import Journal
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan
from clusterproof.plugins.evidence.exchanges import shown as shown_exchanges
from clusterproof.plugins.evidence.pairs import GroupMeasurement, Measurement, NodeGroup, Reading, pair


def without_names(run: PairwiseRun, shown: Mapping[str, str], text: Callable[[str], str]) -> PairwiseRun:
    """The same measurements. `shown` maps node names to placeholders, `text` redacts a text."""
    campaigns = tuple(
        replace(campaign, journal=_Pseudonyms(campaign.journal.plan, shown, text).journal(campaign.journal))
        for campaign in run.campaigns
    )
    return PairwiseRun(campaigns, why_not=text(run.why_not))


def shown_reading(reading: Reading, shown: Mapping[str, str], text: Callable[[str], str]) -> Reading:
    """One reading; a culprit that `shown` does not have is left out."""
    return replace(
        reading,
        network=text(reading.network),
        problem=text(reading.problem),
        culprit=shown.get(reading.culprit, ""),
        hosts=tuple(map(text, reading.hosts)),
        exchanges=shown_exchanges(reading.exchanges, text),
        command=text(reading.command),
    )


class _Pseudonyms:
    """The placeholders for one campaign."""

    def __init__(self, plan: PairPlan, shown: Mapping[str, str], text: Callable[[str], str]) -> None:
        self._nodes = {node: shown.get(node, f"unknown-{number}") for number, node in enumerate(plan.nodes, start=1)}
        known = sorted({place for place in plan.places.values() if place})
        pseudonyms = {place: f"place-{number}" for number, place in enumerate(known, start=1)}
        self._places = {self._nodes[node]: pseudonyms.get(plan.places[node], "") for node in self._known(plan.places)}
        self._text = text

    def journal(self, journal: Journal) -> Journal:
        """The whole journal of the campaign."""
        return replace(
            journal,
            plan=self._plan(journal.plan),
            absent={self._nodes[node]: self._text(journal.absent[node]) for node in self._known(journal.absent)},
            measurements=tuple(map(self._measurement, journal.measurements)),
            group_plan=journal.group_plan and self._group_plan(journal.group_plan),
            groups=tuple(map(self._group_measurement, journal.groups)),
            ended=None if journal.ended is None else self._text(journal.ended),
        )

    def _known(self, nodes: Iterable[str]) -> Iterable[str]:
        return (node for node in nodes if node in self._nodes)

    def _plan(self, plan: PairPlan) -> PairPlan:
        pairs = [nodes for nodes in plan.asked if set(nodes) <= self._nodes.keys()]
        return replace(
            plan,
            nodes=tuple(self._nodes.values()),
            places=self._places,
            asked=tuple(pair(*(self._nodes[node] for node in nodes)) for nodes in pairs),
            absent=frozenset(self._nodes[node] for node in self._known(plan.absent)),
        )

    def _group_plan(self, plan: GroupPlan) -> GroupPlan:
        groups = tuple(map(self._group, plan.groups))
        return replace(plan, groups=groups, places=self._places, left_out=self._text(plan.left_out))

    def _measurement(self, measurement: Measurement) -> Measurement:
        nodes = pair(*(self._nodes[node] for node in measurement.pair))
        return replace(measurement, pair=nodes, reading=self._reading(measurement.reading))

    def _group_measurement(self, measurement: GroupMeasurement) -> GroupMeasurement:
        return replace(measurement, group=self._group(measurement.group), reading=self._reading(measurement.reading))

    def _group(self, group: NodeGroup) -> NodeGroup:
        return NodeGroup(tuple(self._nodes[node] for node in group))

    def _reading(self, reading: Reading) -> Reading:
        return shown_reading(reading, self._nodes, self._text)
