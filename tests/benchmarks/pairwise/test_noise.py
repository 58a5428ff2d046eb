"""Noise that is nobody's fault hides no slow node and flags no healthy one; if it is too large, that is reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from bench.clusters import NOMINAL_GB_PER_S, Simulated, campaign, names
from bench.faults import slow_nodes
from bench.noises import NOISES, Noise
from bench.noisy import concluded, disturbed
from clusterproof.plugins.benchmarks.pairwise import RETEST_ROUNDS, circle
from clusterproof.plugins.benchmarks.pairwise.analysis import Analysis, analyse
from clusterproof.plugins.benchmarks.pairwise.likelihood import SURE, at_least, confidence, normal_part, own_noise
from clusterproof.plugins.benchmarks.pairwise.normal import OUTLIERS, AnalysisSettings, Normal, tails
from clusterproof.plugins.benchmarks.pairwise.planning import FIRST_ROUNDS, FURTHER_ROUNDS, PairPlan, plan
from clusterproof.plugins.benchmarks.pairwise.round_effects import difference, in_common
from clusterproof.plugins.benchmarks.pairwise.screen import screen
from clusterproof.plugins.benchmarks.pairwise.suspects import undecided
from clusterproof.plugins.evidence.pairs import Kind, Measurement, Pair, PairFault, Reading

SIGMA = 0.02
USUAL = Normal(0.0, 0.0, SIGMA)
NODES = 256
MIN_EFFECT = 0.0513
BORNE = [noise for noise in NOISES if noise.name != "three times the noise"]
JITTERY = next(noise for noise in NOISES if noise.name == "jittery nodes")
ALIKE = (-0.03, -0.02, -0.01, 0.0, 0.01, 0.02, 0.03)
TIGHT = (-0.12, -0.11, -0.105, -0.1, -0.1, -0.095, -0.09, -0.08)
WIDE = (0.09, -0.1, -0.03, -0.11, 0.07, 0.02, -0.06, 0.12)
SPREAD = (-0.21, -0.17, -0.14, -0.11, -0.09, -0.06, -0.02, 0.01)


def flagged(analysis: Analysis) -> set[tuple[str, ...]]:
    kinds = {Kind.SLOW_NODE, Kind.FAILING_NODE, Kind.SLOW_LINK, Kind.FAILING_LINK}
    return {finding.nodes for finding in analysis.findings if finding.kind in kinds}


@pytest.mark.long
@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_no_noise_flags_a_node_or_a_link_of_a_healthy_cluster(noise: Noise) -> None:
    assert not any(flagged(concluded(disturbed(noise, 32, Random(seed)), seed)) for seed in range(3))


@pytest.mark.long
@pytest.mark.parametrize("noise", BORNE, ids=lambda noise: noise.name)
def test_a_slow_node_is_named_under_each_noise_that_can_be_borne(noise: Noise) -> None:
    cluster = disturbed(noise, 32, Random(3))
    cluster.slow_nodes = {"n0021": 0.85}
    assert flagged(concluded(cluster, 3)) == {("n0021",)}


@pytest.mark.long
def test_what_all_pairs_of_a_round_share_is_taken_out() -> None:
    factors = (0.93, 1.0, 1.05, 0.97, 1.04, 0.9, 1.0, 1.06)

    def shares(pairs: Sequence[Pair], number: int) -> Mapping[Pair, float]:
        return dict.fromkeys(pairs, factors[number])

    cluster = Simulated(names(64), Random(5), slow_nodes={"n0007": 0.93}, disturbed=shares)
    assert flagged(concluded(cluster, 5)) == {("n0007",)}


@pytest.mark.long
@pytest.mark.parametrize("share", [0.5, 0.8])
@pytest.mark.parametrize("noise", [0.01, 0.02])
def test_slow_nodes_that_are_most_of_a_round_that_asks_again_are_not_what_it_shares(share: float, noise: float) -> None:
    slow = dict.fromkeys(Random(8).sample(names(64), 13), share)
    named = flagged(concluded(Simulated(names(64), Random(1), noise, slow_nodes=slow), 1))
    assert named == {(node,) for node in slow}


def test_rounds_differ_where_their_centres_are_further_apart_than_noise_brings_them() -> None:
    shifted = {number: [x + shift for x in ALIKE] for number, shift in enumerate((0.05, -0.05, 0.04, -0.04))}
    assert difference(dict.fromkeys(range(4), ALIKE), SIGMA) == 0.0
    differ = difference(shifted, SIGMA)
    assert differ == pytest.approx(0.05, abs=0.01)
    assert in_common(shifted, SIGMA, differ)[0] == pytest.approx(0.05, abs=0.01)


def test_what_some_of_a_rounds_pairs_share_is_not_what_it_has_in_common() -> None:
    assert in_common({4: [-0.52, -0.5, -0.49, -0.48, 0.0, 0.01, 0.02, 0.03]}, SIGMA, 0.05) == {4: 0.0}


def test_outliers_that_are_seen_weigh_less_for_slowness() -> None:
    seen = tails([*ALIKE * 6, *(-0.1, -0.11, -0.12, -0.13) * 4], SIGMA)
    assert seen.share > 3 * OUTLIERS
    assert seen.density(-0.11) > 10 * tails(ALIKE * 6, SIGMA).density(-0.11)
    of_link = TIGHT[:3]
    assert confidence(of_link, USUAL, NODES) > confidence(of_link, Normal(0.0, 0.0, SIGMA, tails=seen), NODES)


def test_values_that_are_all_slow_alike_are_a_slow_node() -> None:
    assert confidence(TIGHT, USUAL, NODES) >= SURE


def test_values_that_spread_far_more_than_those_of_others_are_none() -> None:
    assert confidence(SPREAD, USUAL, NODES) < SURE


def test_slow_values_of_a_pair_are_no_slow_link_where_its_node_varies_as_much_with_others() -> None:
    of_link = (-0.12, -0.11, -0.09)
    assert confidence(of_link, USUAL, NODES, own_noise(ALIKE, USUAL)) >= SURE
    assert confidence(of_link, USUAL, NODES, own_noise(WIDE, USUAL)) < SURE


@pytest.mark.parametrize(
    ("values", "may_be_slow"),
    [(ALIKE, False), ((*ALIKE[:4], -0.28, -0.3), False), (TIGHT, True), (SPREAD, True), (WIDE[:4], True)],
    ids=["healthy", "with two outliers", "slow", "slow, and varies", "varies, and seldom asked"],
)
def test_a_node_may_be_slower_by_a_tenth_for_all_that_its_values_show(
    values: Sequence[float], may_be_slow: bool
) -> None:
    assert (at_least(0.105, values, USUAL) > 0.05) == may_be_slow


@pytest.mark.long
@pytest.mark.parametrize("seed", [800040, 2600094, 3100109, 5200172, 14300445])
def test_no_link_of_a_node_that_is_now_faster_and_now_slower_is_flagged(seed: int) -> None:
    assert not flagged(concluded(disturbed(JITTERY, 16, Random(f"jittery nodes None {seed}")), seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", [14500451, 18400568])
def test_a_slow_node_that_its_own_noise_hides_is_left_open(seed: int) -> None:
    cluster = disturbed(JITTERY, 16, Random(f"jittery nodes 0.1 {seed}"))
    slow_nodes(cluster, 0.10)
    findings = concluded(cluster, seed).findings
    for node in cluster.slow_nodes:
        (finding,) = [finding for finding in findings if finding.nodes == (node,)]
        assert finding.kind in {Kind.SLOW_NODE, Kind.INCONCLUSIVE}


def test_a_quarter_of_values_far_below_does_not_widen_the_noise() -> None:
    random = Random(1)
    values = [random.gauss(0.0, SIGMA) - (random.uniform(0.1, 0.5) if number % 4 == 0 else 0.0) for number in range(48)]
    centre, sigma = normal_part(values)
    assert abs(centre) < SIGMA / 2
    assert sigma < 1.5 * SIGMA


def link_of(measurements: Sequence[Measurement], pair: Pair) -> PairFault:
    (finding,) = [
        each for each in analyse(measurements, AnalysisSettings(MIN_EFFECT, {}, 4)).findings if each.nodes == pair.nodes
    ]
    return finding


def rounds_with(slow: Mapping[int, Sequence[Pair]], repeated: Mapping[int, Sequence[Pair]]) -> list[Measurement]:
    """Four first rounds of 16 nodes and the retested pairs, with those slow that are slow in a round."""
    random = Random(2)
    rounds = {number: list(pairs) for number, pairs in enumerate(circle(names(16))[:4])}
    rounds |= {number: list(pairs) for number, pairs in repeated.items()}
    return [
        Measurement(pair, number, len(pairs), Reading(NOMINAL_GB_PER_S * share * random.lognormvariate(0.0, 0.01)))
        for number, pairs in rounds.items()
        for pair in pairs
        for share in (0.7 if pair in slow.get(number, ()) else 1.0,)
    ]


FIRST, SECOND, THIRD = circle(names(16))[0][:3]


def test_a_link_that_is_slow_again_twice_beside_other_pairs_is_flagged() -> None:
    again = {4: [FIRST, SECOND], 5: [FIRST, THIRD]}
    measurements = rounds_with({0: [FIRST], 4: [FIRST], 5: [FIRST]}, again)
    assert link_of(measurements, FIRST).kind is Kind.SLOW_LINK


def test_two_links_that_are_slow_together_each_time_may_share_a_way() -> None:
    both = [FIRST, SECOND]
    finding = link_of(rounds_with({0: both, 4: both, 5: both}, {4: both, 5: both}), FIRST)
    assert finding.kind is Kind.INCONCLUSIVE
    assert finding.words == f"slow each time, and so is {SECOND} beside it: measure each without the other"


def test_a_link_that_was_slow_again_once_is_not_flagged_yet() -> None:
    finding = link_of(rounds_with({0: [FIRST], 4: [FIRST]}, {4: [FIRST, SECOND]}), FIRST)
    assert finding.kind is Kind.INCONCLUSIVE
    assert finding.words == "slow again 1 time; expected 2 times beside other pairs: measure it again"


def test_pairs_that_share_a_way_are_measured_again_by_turns_and_cleared() -> None:
    made = plan(names(16), {}, MIN_EFFECT, seed=1)
    shared = made.first[0][:2]

    def shares(pairs: Sequence[Pair], _number: int) -> Mapping[Pair, float]:
        return dict.fromkeys(shared, 0.6) if set(shared) <= set(pairs) else {}

    cluster = Simulated(made.nodes, Random(4), noise=0.01, outliers=0.0, disturbed=shares)
    assert not concluded(cluster, 1).findings


@pytest.mark.long
def test_where_the_noise_is_too_large_to_name_anybody_nobody_is_said_to_be_well() -> None:
    noise = next(noise for noise in NOISES if noise.name == "three times the noise")
    findings = concluded(disturbed(noise, 64, Random(1)), 1).findings
    (finding,) = [finding for finding in findings if finding.kind is Kind.INCONCLUSIVE and len(finding.nodes) == 64]
    assert "a node 10 % slower might not be named: measure with a larger size, or all pairs" in finding.words


def test_nobody_who_has_measured_all_pairs_is_told_to_do_that() -> None:
    random = Random(1)
    rounds = circle(names(16))
    measurements = [
        Measurement(pair, number, len(pairs), Reading(NOMINAL_GB_PER_S * random.lognormvariate(0.0, 0.1)))
        for number, pairs in enumerate(rounds)
        for pair in pairs
    ]
    messages = [
        finding.words for finding in analyse(measurements, AnalysisSettings(MIN_EFFECT, {}, len(rounds))).findings
    ]
    assert any("measure with a larger size" in message for message in messages)
    assert not any("--pairs full" in message for message in messages)


def test_noise_that_can_be_borne_leaves_nothing_open() -> None:
    findings = concluded(disturbed(NOISES[0], 64, Random(1)), 1).findings
    assert not [finding for finding in findings if finding.kind is Kind.INCONCLUSIVE and len(finding.nodes) == 64]


def measured(seed: int, noise: float) -> tuple[PairPlan, list[Measurement]]:
    """A whole campaign of 16 nodes, one of which is 7 % slower."""
    made = plan(names(16), {}, MIN_EFFECT, seed=seed)
    cluster = Simulated(made.nodes, Random(seed), noise, slow_nodes={"n0004": 0.93})
    return made, campaign(made, cluster.measure)


@pytest.mark.long
@pytest.mark.parametrize("seed", [16, 31])
def test_a_node_that_is_undecided_meets_further_partners_until_it_is_decided(seed: int) -> None:
    made, raw = measured(seed, 0.03)
    further = range(FIRST_ROUNDS + RETEST_ROUNDS, raw[-1].round + 1)
    assert 1 < len(further) <= FURTHER_ROUNDS
    for number in further:
        before = [measurement for measurement in raw if measurement.round < number]
        assert undecided(screen(before, made.settings), 16, made.settings) == {"n0004"}
        (new,) = [
            measurement.pair for measurement in raw if measurement.round == number and "n0004" in measurement.pair
        ]
        assert new not in {measurement.pair for measurement in before}
    (finding,) = analyse(raw, made.settings).findings
    assert (finding.kind, finding.nodes) == (Kind.SLOW_NODE, ("n0004",))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_where_noise_would_hide_any_node_nobody_is_measured_further(seed: int) -> None:
    assert measured(seed, 0.06)[1][-1].round < FIRST_ROUNDS + RETEST_ROUNDS
