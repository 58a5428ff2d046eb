"""From measurements to findings: each kind of fault is identified, and nothing healthy is flagged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis, analyse
from clusterproof.plugins.benchmarks.pairwise.facts import explains, shared_by
from clusterproof.plugins.benchmarks.pairwise.findings import deduplicated
from clusterproof.plugins.benchmarks.pairwise.in_words import attribution
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings
from clusterproof.plugins.benchmarks.pairwise.planning import FIRST_ROUNDS
from clusterproof.plugins.benchmarks.pairwise.suspects import RETESTS
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.pairs import Failure, Kind, Measurement, PairFault, Reading, estimated, pair
from tests.benchmarks.pairwise.measured import (
    Cluster,
    concluded,
    failed,
    measured,
    names,
    verdicts,
)
from tests.benchmarks.pairwise.simulated import CASES, FLOOR, MIN_EFFECT, SLOW_LINK, Case


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_fault_is_named_for_what_it_is(case: Case, seed: int) -> None:
    assert verdicts(case.concluded(seed).findings) == case.said


@pytest.mark.long
def test_when_most_pairs_are_under_the_floor_the_configuration_is_suspected_and_no_node_is_named_or_well() -> None:
    finding, slower = Case(16, {"whole": 0.3, "nodes": {"n003": 0.8}}).concluded().findings
    assert finding.kind is Kind.CONFIGURATION
    assert finding.nodes == names(16)
    assert "32 of 32 measurements are under the floor of 80 GB/s, their median is 30" in finding.words
    assert (slower.kind, slower.nodes) == (Kind.INCONCLUSIVE, ("n003",))
    assert slower.words.startswith("most pairs are under the floor, and their cause may be its own")


def test_nodes_that_take_most_pairs_under_a_floor_that_others_reach_are_named() -> None:
    findings = Case(16, {"nodes": dict.fromkeys(names(5), 0.6)}).concluded().findings
    assert verdicts(findings) == {(Kind.SLOW_NODE, node) for node in names(5)}


@pytest.mark.parametrize(
    ("count", "weak", "share"), [(4, 2, 0.8), (5, 2, 0.8), (6, 3, 0.8), (8, 4, 0.8), (16, 7, 0.6), (16, 8, 0.8)]
)
def test_weak_nodes_in_most_pairs_are_not_well_for_being_as_fast_as_those(count: int, weak: int, share: float) -> None:
    made, nodes = Case(count, {}).plan, names(count)[:weak]
    findings = concluded(made, Cluster(dict.fromkeys(nodes, share))).findings
    assert verdicts(findings) == {(Kind.INCONCLUSIVE, node) for node in nodes}
    assert all(f"pairs of {fold(names(count)[weak:])} with one another are" in finding.words for finding in findings)
    with_floor = concluded(made, Cluster(dict.fromkeys(nodes, 0.75)), FLOOR).findings
    assert {(Kind.INCONCLUSIVE, node) for node in nodes} < verdicts(with_floor)


def test_without_a_floor_a_cluster_that_is_slow_alike_is_normal() -> None:
    assert not concluded(Case(16, {}).plan, Cluster(whole=0.3)).findings


def test_contention_in_the_whole_cluster_is_not_taken_for_its_configuration() -> None:
    analysis = Case(32, {"most_at_once": 10}).concluded()
    assert verdicts(analysis.findings) == {(Kind.CONTENTION, "")}


@pytest.mark.parametrize("cluster", [{"nodes": {"n004": 0.8}}, {"dead": {"n004"}}])
def test_a_budget_that_ends_with_the_first_round_leaves_both_ends_of_a_slow_pair_open(
    cluster: dict[str, object],
) -> None:
    made = Case(16, cluster).plan
    first = [measurement for measurement in measured(made, Cluster(**cluster)) if measurement.round == 0]  # type: ignore[arg-type]
    ends = next(measurement.pair.nodes for measurement in first if "n004" in measurement.pair.nodes)
    assert verdicts(analyse(first, made.settings).findings) == {(Kind.INCONCLUSIVE, node) for node in ends}


def the_only(analysis: Analysis) -> PairFault:
    (finding,) = analysis.findings
    return finding


@pytest.mark.long
def test_a_slow_node_is_named_with_its_numbers() -> None:
    finding = the_only(Case(32, {"nodes": {"n004": 0.9}}).concluded())
    estimate = finding.estimate
    assert estimate
    assert estimate.slower == pytest.approx(0.1, abs=0.02)
    assert estimate.low < 0.1 < estimate.high
    assert estimate.measurements == len(finding.pairs) == estimate.partners == FIRST_ROUNDS + RETESTS
    assert estimate.confidence > 0.999
    assert all("n004" in link.nodes for link in finding.pairs)


@pytest.mark.long
def test_the_most_slow_node_comes_first() -> None:
    analysis = Case(32, {"nodes": {"n001": 0.9, "n002": 0.7, "n030": 0.5}}).concluded()
    assert [finding.nodes for finding in analysis.findings] == [("n030",), ("n002",), ("n001",)]


@pytest.mark.long
def test_every_node_that_was_measured_has_its_estimate() -> None:
    analysis = Case(16, {"nodes": {"n004": 0.9}}).concluded()
    assert set(analysis.estimates) == set(names(16))
    assert all(abs(analysis.estimates[node].slower) < 0.04 for node in names(16) if node != "n004")


@pytest.mark.long
def test_a_slow_link_is_named_with_its_numbers() -> None:
    finding = the_only(Case(16, {"links": {SLOW_LINK: 0.8}}).concluded())
    assert finding.pairs == (SLOW_LINK,)
    assert finding.estimate
    assert finding.estimate.slower == pytest.approx(0.2, abs=0.03)
    assert finding.estimate.measurements >= 2


@pytest.mark.long
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


def test_neither_of_two_failing_nodes_is_named() -> None:
    analysis = Case(2, {"dead": {"n001"}}).concluded()
    assert {finding.kind for finding in analysis.findings} == {Kind.INCONCLUSIVE}


def test_the_end_that_the_runs_themselves_name_is_the_failing_one() -> None:
    link = pair("n000", "n001")
    measurements = [Measurement(link, number, 1, failed(link, "n001")) for number in range(2)]
    analysis = analyse(measurements, AnalysisSettings(MIN_EFFECT, {}, 4))
    assert (Kind.FAILING_NODE, "n001") in verdicts(analysis.findings)
    assert (Kind.FAILING_NODE, "n000") not in verdicts(analysis.findings)


TAKEN = Reading(problem="n004 did not answer: busy: taken", failure=Failure.NOT_AT_FAULT)


def test_a_node_that_a_job_takes_is_not_failing_though_one_run_with_it_failed() -> None:
    made = Case(16, {}).plan
    measurements = [
        replace(measurement, reading=failed(measurement.pair) if measurement.round == 0 else TAKEN)
        if "n004" in measurement.pair
        else measurement
        for measurement in measured(made, Cluster())
    ]
    finding = next(finding for finding in analyse(measurements, made.settings).findings if "n004" in finding.nodes)
    assert (finding.kind, finding.failures) == (Kind.INCONCLUSIVE, finding.attempts)


def test_a_link_is_not_failing_because_an_end_was_taken_twice() -> None:
    made = Case(16, {}).plan
    measurements = measured(made, Cluster())
    taken = replace(measurements[3], reading=TAKEN)
    measurements[3:4] = [taken, replace(taken, round=taken.round + 1)]
    (finding,) = analyse(measurements, made.settings).findings
    assert (finding.kind, finding.nodes, finding.words) == (Kind.INCONCLUSIVE, taken.pair.nodes, TAKEN.problem)


@pytest.mark.parametrize(("count", "reading"), [(1, TAKEN), (2, TAKEN), (1, Reading(problem="it hung"))])
def test_a_link_that_is_slow_each_time_is_named_with_the_runs_that_failed_besides(count: int, reading: Reading) -> None:
    made = Case(16, {}).plan
    link = made.first[0][0]
    measurements = measured(made, Cluster(links={link: 0.6}))
    first = next(measurement for measurement in measurements if measurement.pair == link)
    measurements += [replace(first, reading=reading)] * count
    tried = sum(measurement.pair == link for measurement in measurements)
    (finding,) = analyse(measurements, made.settings).findings
    assert (finding.kind, finding.nodes, finding.failures) == (Kind.SLOW_LINK, link.nodes, count)
    assert finding.words == f"besides, {count} of {tried} measurements failed: {reading.problem}"
    assert attribution(finding) == "slow link"


def test_a_link_that_is_slow_once_and_then_fails_is_named_once() -> None:
    made = Case(16, {}).plan
    link = made.first[0][0]
    measurements = measured(made, Cluster(links={link: 0.6}))
    of_it = [number for number, measurement in enumerate(measurements) if measurement.pair == link]
    for number in of_it[1:]:
        measurements[number] = replace(measurements[number], reading=failed(link))
    (finding,) = analyse(measurements, made.settings).findings
    assert (finding.kind, finding.failures) == (Kind.FAILING_LINK, len(of_it) - 1)


def test_one_run_that_failed_flags_no_node() -> None:
    measurements = measured(Case(16, {}).plan, Cluster())
    measurements[3] = replace(measurements[3], reading=failed(measurements[3].pair))
    analysis = analyse(measurements, Case(16, {}).plan.settings)
    assert not {finding.kind for finding in analysis.findings} & {Kind.FAILING_NODE, Kind.FAILING_LINK, Kind.SLOW_NODE}


def test_a_slow_node_of_which_some_runs_failed_is_named_once_with_both() -> None:
    made = Case(16, {}).plan
    measurements = measured(made, Cluster(nodes={"n004": 0.5}))
    of_it = [number for number, measurement in enumerate(measurements) if "n004" in measurement.pair.nodes]
    for number in of_it[:2]:
        measurements[number] = replace(measurements[number], reading=failed(measurements[number].pair))
    analysis = analyse(measurements, made.settings)
    (finding,) = [finding for finding in analysis.findings if "n004" in finding.nodes]
    assert (finding.kind, finding.failures, finding.attempts) == (Kind.SLOW_NODE, 2, len(of_it))
    assert finding.words.startswith(f"besides, 2 of {len(of_it)} measurements failed: ")
    assert {measurements[number].pair for number in of_it} == set(finding.pairs)


@pytest.mark.long
def test_a_node_that_is_slow_now_and_then_is_kept_and_not_averaged_away() -> None:
    analysis = Case(64, {"now_and_then": {"n010": 0.6}}).concluded()
    about = [finding for finding in analysis.findings if "n010" in finding.nodes]
    assert [finding.kind for finding in about] == [Kind.INTERMITTENT]
    assert "are slow, by up to 4" in about[0].words
    assert about[0].words.endswith("the others are well")


def test_what_was_not_measured_again_is_not_named_yet() -> None:
    made = Case(16, {}).plan
    measurements = [
        measurement for measurement in measured(made, Cluster(nodes={"n004": 0.8})) if measurement.round < 4
    ]
    finding = the_only(analyse(measurements, made.settings))
    assert (finding.kind, finding.nodes) == (Kind.INCONCLUSIVE, ("n004",))
    assert "measure it with more" in finding.words


def test_nothing_is_concluded_from_nothing() -> None:
    finding = the_only(analyse([], AnalysisSettings(MIN_EFFECT, {}, 4)))
    assert (finding.kind, finding.words) == (Kind.INCONCLUSIVE, "nothing was measured")


def test_contention_everywhere_does_not_explain_away_a_slow_rack() -> None:
    """A slow rack fails its pairs, and contention is only a concern; both are said of its nodes."""
    of_all = PairFault(Kind.CONTENTION, words="pairs are 9 % slower when all run at once")
    rack = PairFault(Kind.SLOW_GROUP, ("a", "c"), "r1", pairs=(pair("a", "b"),))
    analysis = Analysis((of_all, rack))
    assert explains(analysis, pair("a", "b")) is rack
    assert explains(analysis, pair("b", "d")) is of_all
    assert shared_by(analysis, "a") == (of_all, rack)
    assert shared_by(analysis, "b") == (of_all,)


def test_a_failing_node_that_is_slow_where_it_succeeds_is_said_to_be_both() -> None:
    failing = PairFault(Kind.FAILING_NODE, ("a",), failures=5, attempts=8, words="no route", pairs=(pair("a", "b"),))
    slow = PairFault(Kind.SLOW_NODE, ("a",), estimate=estimated(-0.3, 0.01, 3, 3, 0.99), pairs=(pair("a", "c"),))
    (finding,) = deduplicated([slow], [failing])
    assert (finding.kind, finding.pairs) == (Kind.FAILING_NODE, (pair("a", "b"), pair("a", "c")))
    assert finding.words.startswith("no route; besides, it is 25.9 % slower than normal")
