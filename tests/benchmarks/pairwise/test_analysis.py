"""From measurements to findings: each kind of trouble is called by its name, and the innocent are left alone."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterproof.plugins.benchmarks.meters.reading import Reading
from clusterproof.plugins.benchmarks.pairwise.analysis import analyse
from clusterproof.plugins.benchmarks.pairwise.campaign import Plan, plan
from clusterproof.plugins.benchmarks.pairwise.findings import Analysis, Finding, Kind
from clusterproof.plugins.benchmarks.pairwise.model import Measurement, Pair, pair
from clusterproof.plugins.benchmarks.pairwise.view import Settings
from tests.benchmarks.pairwise.measured import (
    NORMAL_GB_PER_S,
    Cluster,
    concluded,
    failed,
    measured,
    names,
    racks,
    verdicts,
)

MIN_EFFECT = 0.0513
FLOOR = 0.8 * NORMAL_GB_PER_S


@dataclass(frozen=True)
class Case:
    """A cluster of `count` nodes in places of `place` nodes, and what is to be said of it."""

    count: int
    cluster: Mapping[str, object]
    said: set[tuple[Kind, str]] = field(default_factory=set)
    place: int = 0
    is_full: bool = False

    @property
    def plan(self) -> Plan:
        """As a run makes it."""
        nodes = names(self.count)
        return plan(nodes, racks(nodes, self.place) if self.place else {}, MIN_EFFECT, self.is_full, seed=5)

    def concluded(self, seed: int = 1) -> Analysis:
        """What is said."""
        return concluded(self.plan, Cluster(**self.cluster, seed=seed), FLOOR)  # type: ignore[arg-type]


SLOW_LINK = plan(names(16), {}, MIN_EFFECT, seed=5).first[1][2]
RACKED_LINK = plan(names(32), racks(names(32), 8), MIN_EFFECT, seed=5).first[2][3]
CASES = {
    "a healthy cluster accuses nobody": Case(32, {}),
    "nor does one with an odd number of nodes": Case(15, {}),
    "nor one in racks": Case(64, {}, place=16),
    "nor one whose pairs are all measured": Case(10, {}, is_full=True),
    "one slow node is named": Case(16, {"nodes": {"n004": 0.93}}, {(Kind.SLOW_NODE, "n004")}),
    "so is one of an odd number": Case(9, {"nodes": {"n004": 0.9}}, {(Kind.SLOW_NODE, "n004")}),
    "so is one of four": Case(4, {"nodes": {"n001": 0.8}}, {(Kind.SLOW_NODE, "n001")}),
    "of three that differ nobody can tell which is slow": Case(
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
    "a slow node and a failing one are told apart": Case(
        16, {"dead": {"n007"}, "nodes": {"n002": 0.8}}, {(Kind.FAILING_NODE, "n007"), (Kind.SLOW_NODE, "n002")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_trouble_is_called_by_its_name(case: Case, seed: int) -> None:
    assert verdicts(case.concluded(seed).findings) == case.said


def test_when_most_pairs_are_under_the_floor_the_configuration_is_suspected_and_no_node() -> None:
    (finding,) = Case(16, {"whole": 0.3, "nodes": {"n003": 0.8}}).concluded().findings
    assert finding.kind is Kind.CONFIGURATION
    assert finding.nodes == names(16)
    assert "are under the floor of 80 GB/s, their median is 29.97" in finding.words


def test_without_a_floor_a_cluster_that_is_slow_alike_is_normal() -> None:
    assert not concluded(Case(16, {}).plan, Cluster(whole=0.3)).findings


def test_contention_in_the_whole_cluster_is_not_taken_for_its_configuration() -> None:
    found = Case(32, {"most_at_once": 10}).concluded()
    assert verdicts(found.findings) == {(Kind.CONTENTION, "")}


def the_only(analysis: Analysis) -> Finding:
    (finding,) = analysis.findings
    return finding


def test_a_slow_node_is_named_with_its_numbers() -> None:
    finding = the_only(Case(32, {"nodes": {"n004": 0.9}}).concluded())
    estimate = finding.estimate
    assert estimate
    assert estimate.slower == pytest.approx(0.1, abs=0.02)
    assert estimate.low < 0.1 < estimate.high
    assert estimate.measurements == len(finding.pairs) == estimate.partners == 8
    assert estimate.surely > 0.999
    assert all("n004" in one.nodes for one in finding.pairs)


def test_the_most_slow_node_comes_first() -> None:
    found = Case(32, {"nodes": {"n001": 0.9, "n002": 0.7, "n030": 0.5}}).concluded()
    assert [one.nodes for one in found.findings] == [("n030",), ("n002",), ("n001",)]


def test_every_node_that_was_measured_has_its_estimate() -> None:
    found = Case(16, {"nodes": {"n004": 0.9}}).concluded()
    assert set(found.estimates) == set(names(16))
    assert all(abs(found.estimates[node].slower) < 0.04 for node in names(16) if node != "n004")


def test_a_slow_link_is_named_with_its_numbers() -> None:
    finding = the_only(Case(16, {"links": {SLOW_LINK: 0.8}}).concluded())
    assert finding.pairs == (SLOW_LINK,)
    assert finding.estimate
    assert finding.estimate.slower == pytest.approx(0.2, abs=0.03)
    assert finding.estimate.measurements >= 2


def test_a_slow_place_says_whether_it_is_well_inside() -> None:
    finding = the_only(Case(32, {"ways_out": {"r2": 0.8}}, place=8).concluded())
    assert finding.words == "and well inside: what joins it to the others is slow"
    assert finding.nodes == names(32)[16:24]
    slow = dict.fromkeys(names(32)[16:24], 0.8)
    finding = the_only(Case(32, {"nodes": slow}, place=8).concluded())
    assert (finding.kind, finding.words) == (Kind.SLOW_GROUP, "inside too")


def test_contention_says_how_much_slower_it_makes_the_pairs() -> None:
    finding = the_only(Case(32, {"most_at_once": 12}).concluded())
    assert finding.words == "pairs are 25% slower when all run at once than when at most half do"


def test_a_failing_node_says_how_many_runs_failed_and_what_they_said() -> None:
    finding = the_only(Case(16, {"dead": {"n007"}}).concluded())
    assert finding.failures == finding.attempts >= 3
    assert finding.words.endswith("did not end in its time")


def test_two_nodes_have_nobody_to_be_compared_with_but_a_floor() -> None:
    of_two = Case(2, {}).plan
    finding = the_only(concluded(of_two, Cluster(nodes={"n001": 0.5})))
    assert (finding.kind, finding.nodes) == (Kind.INCONCLUSIVE, ("n000", "n001"))
    assert finding.words.endswith("measure them with a third, or give --baseline")
    assert the_only(concluded(of_two, Cluster(nodes={"n001": 0.5}), FLOOR)).kind is Kind.CONFIGURATION
    assert not concluded(of_two, Cluster(), FLOOR).findings


def test_of_two_nodes_that_fail_neither_is_accused() -> None:
    found = Case(2, {"dead": {"n001"}}).concluded()
    assert {one.kind for one in found.findings} == {Kind.INCONCLUSIVE}


def test_the_end_that_the_runs_themselves_blame_is_the_failing_one() -> None:
    one = pair("n000", "n001")
    data = [Measurement(one, number, 1, failed(one, "n001")) for number in range(2)]
    found = analyse(data, Settings(MIN_EFFECT, {}, 4))
    assert (Kind.FAILING_NODE, "n001") in verdicts(found.findings)
    assert (Kind.FAILING_NODE, "n000") not in verdicts(found.findings)


def test_one_run_that_failed_accuses_nobody() -> None:
    data = measured(Case(16, {}).plan, Cluster())
    data[3] = replace(data[3], reading=failed(data[3].pair))
    found = analyse(data, Case(16, {}).plan.settings)
    assert not {one.kind for one in found.findings} & {Kind.FAILING_NODE, Kind.FAILING_LINK, Kind.SLOW_NODE}


def test_a_slow_node_of_which_some_runs_failed_is_named_once_with_both() -> None:
    made = Case(16, {}).plan
    data = measured(made, Cluster(nodes={"n004": 0.5}))
    of_it = [number for number, one in enumerate(data) if "n004" in one.pair.nodes]
    for number in (of_it[1], of_it[-1]):
        data[number] = replace(data[number], reading=failed(data[number].pair))
    found = analyse(data, made.settings)
    (finding,) = [one for one in found.findings if "n004" in one.nodes]
    assert (finding.kind, finding.failures, finding.attempts) == (Kind.SLOW_NODE, 2, len(of_it))
    assert finding.words.startswith(f"besides, 2 of {len(of_it)} measurements failed: ")
    assert {data[number].pair for number in of_it} == set(finding.pairs)


def test_a_node_that_is_slow_now_and_then_is_kept_and_not_averaged_away() -> None:
    found = Case(64, {"now_and_then": {"n010": 0.6}}).concluded()
    about = [one for one in found.findings if "n010" in one.nodes]
    assert [one.kind for one in about] == [Kind.INTERMITTENT]
    assert "are slow, by up to 4" in about[0].words
    assert about[0].words.endswith("the others are well")


def test_what_was_not_measured_again_is_not_accused_yet() -> None:
    made = Case(16, {}).plan
    data = [one for one in measured(made, Cluster(nodes={"n004": 0.8})) if one.round < 4]
    finding = the_only(analyse(data, made.settings))
    assert (finding.kind, finding.nodes) == (Kind.INCONCLUSIVE, ("n004",))
    assert "measure it with more" in finding.words


def test_of_nothing_nothing_is_concluded() -> None:
    finding = the_only(analyse([], Settings(MIN_EFFECT, {}, 4)))
    assert (finding.kind, finding.words) == (Kind.INCONCLUSIVE, "nothing was measured")


READINGS = st.one_of(
    st.floats(1e-6, 1e5).map(Reading),
    st.just(Reading(problem="did not end in its time")),
    st.sampled_from(names(5)).map(lambda node: Reading(problem="lost", culprit=node)),
)


@st.composite
def any_measurements(draw: st.DrawFn) -> list[Measurement]:
    nodes = names(draw(st.integers(2, 7)))
    pairs = st.lists(st.sampled_from(nodes), min_size=2, max_size=2, unique=True).map(lambda two: pair(*two))
    one = st.builds(Measurement, pairs, st.integers(0, 8), st.integers(1, 3), READINGS)
    return draw(st.lists(one, max_size=30))


@settings(max_examples=200)
@given(any_measurements(), st.booleans(), st.sampled_from([None, 1.0, 1e4]))
def test_it_comes_to_something_whatever_was_measured(
    data: list[Measurement], in_places: bool, floor: float | None
) -> None:
    found = analyse(data, Settings(MIN_EFFECT, racks(names(7), 3) if in_places else {}, 4), floor)
    assert {node for one in found.findings for node in one.nodes} <= {node for one in data for node in one.pair}


@functools.cache
def campaign(name: str) -> tuple[Plan, list[Measurement]]:
    """The measurements of a case."""
    case = CASES[name]
    return case.plan, measured(case.plan, Cluster(**case.cluster))  # type: ignore[arg-type]


def renamed(one: Measurement, names: Mapping[str, str]) -> Measurement:
    culprit = names.get(one.reading.culprit, "")
    return replace(one, pair=pair(*(names[node] for node in one.pair)), reading=replace(one.reading, culprit=culprit))


def kinds_by_name(findings: Sequence[Finding], names: Mapping[str, str]) -> set[tuple[Kind, frozenset[str], str]]:
    return {(one.kind, frozenset(names.get(node, node) for node in one.nodes), one.place) for one in findings}


SHUFFLES = st.integers(0, 2**32)
CAMPAIGNS = st.sampled_from(sorted(CASES)).map(campaign)


@settings(max_examples=40)
@given(CAMPAIGNS, SHUFFLES)
def test_other_names_change_no_verdict(campaign: tuple[Plan, list[Measurement]], seed: int) -> None:
    made, data = campaign
    other = dict(zip(made.nodes, Random(seed).sample(made.nodes, len(made.nodes)), strict=True))
    places = {other[node]: place for node, place in made.settings.places.items()}
    found = analyse([renamed(one, other) for one in data], replace(made.settings, places=places))
    assert kinds_by_name(found.findings, {}) == kinds_by_name(analyse(data, made.settings).findings, other)


@settings(max_examples=40)
@given(CAMPAIGNS, SHUFFLES)
def test_another_order_of_the_measurements_changes_no_verdict(
    campaign: tuple[Plan, list[Measurement]], seed: int
) -> None:
    made, data = campaign
    found = analyse(Random(seed).sample(data, len(data)), made.settings)
    assert kinds_by_name(found.findings, {}) == kinds_by_name(analyse(data, made.settings).findings, {})


@settings(max_examples=40)
@given(CAMPAIGNS, st.floats(1e-4, 1e3))
def test_bandwidths_that_are_all_so_many_times_as_high_change_no_verdict(
    campaign: tuple[Plan, list[Measurement]], factor: float
) -> None:
    made, data = campaign
    scaled = [replace(one, reading=_times(one.reading, factor)) for one in data]
    found = analyse(scaled, made.settings)
    assert kinds_by_name(found.findings, {}) == kinds_by_name(analyse(data, made.settings).findings, {})


def _times(reading: Reading, factor: float) -> Reading:
    busbw = reading.busbw_gb_per_s
    return replace(reading, busbw_gb_per_s=busbw and busbw * factor)


@settings(max_examples=30)
@given(SHUFFLES, st.integers(3, 40), st.sampled_from([0, 4, 8]))
def test_a_healthy_cluster_of_any_size_accuses_nobody(seed: int, count: int, place: int) -> None:
    nodes = names(count)
    made = plan(nodes, racks(nodes, place) if place else {}, MIN_EFFECT, seed=seed)
    assert not concluded(made, Cluster(seed=seed)).findings


def test_a_pair_is_the_same_whichever_end_is_named_first() -> None:
    assert pair("b", "a") == pair("a", "b") == Pair("a", "b")
    assert str(pair("b", "a")) == "a~b"
