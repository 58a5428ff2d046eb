"""The rounds: every pair once, or random ones; no node twice at once; suspects with their own good partners."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clusterproof.plugins.benchmarks.pairwise import RETEST_ROUNDS, Round, circle, full, is_inside, quick
from clusterproof.plugins.benchmarks.pairwise.planning import (
    FIRST_ROUNDS,
    PairPlan,
    disjoint,
    next_round,
    plan,
)
from clusterproof.plugins.benchmarks.pairwise.screen import screen
from clusterproof.plugins.benchmarks.pairwise.suspects import RETESTS, decided
from clusterproof.plugins.evidence.pairs import Measurement, Pair, pair
from tests.benchmarks.pairwise.measured import Cluster, measured, names, racks
from tests.builders.examples import examples

MIN_EFFECT = 0.0513
COUNTS = st.integers(2, 200)
SIZES_OF_PLACES = st.lists(st.integers(1, 20), min_size=2, max_size=8)
SEEDS = st.integers(0, 2**32)


def placed(sizes: list[int]) -> dict[str, str]:
    nodes = iter(names(sum(sizes)))
    return {next(nodes): f"r{number}" for number, size in enumerate(sizes) for _ in range(size)}


def no_node_is_twice_in(pairs: Round) -> bool:
    busy = [node for link in pairs for node in link]
    return len(busy) == len(set(busy))


@pytest.mark.long
def test_every_full_schedule_has_each_pair_once_in_the_fewest_rounds_and_everybody_rests_alike() -> None:
    for count in (*range(2, 101), 199, 200):
        nodes = names(count)
        rounds = circle(nodes)
        assert len(rounds) == (count if count % 2 else count - 1)
        assert all(map(no_node_is_twice_in, rounds))
        pairs = [link for pairs in rounds for link in pairs]
        assert len(pairs) == len(set(pairs)) == count * (count - 1) // 2
        rests = Counter(node for made in rounds for node in set(nodes) - {busy for link in made for busy in link})
        assert rests == (Counter(nodes) if count % 2 else Counter())


@pytest.mark.parametrize("is_full", [False, True])
def test_what_is_analysed_of_tens_of_thousands_of_nodes_lists_no_pairs_that_are_not_measured(is_full: bool) -> None:
    nodes, began = names(20_000), time.process_time()
    made = PairPlan(nodes, {}, MIN_EFFECT, is_full)
    assert made.settings.first_rounds == (len(nodes) - 1 if is_full else FIRST_ROUNDS)
    assert time.process_time() - began < 10  # all pairs of them would take minutes, and more memory than there is


def test_thousands_of_named_pairs_of_one_node_are_arranged_in_as_many_rounds_at_once() -> None:
    began = time.process_time()
    assert len(disjoint(pair("a", f"b{number}") for number in range(10_000))) == 10_000
    assert time.process_time() - began < 10


@examples(40)
@given(SIZES_OF_PLACES)
def test_a_full_schedule_of_places_begins_with_what_has_most_pairs_inside(sizes: list[int]) -> None:
    places = placed(sizes)
    rounds = full(tuple(places), places)
    inside = [sum(is_inside(link, places) for link in pairs) for pairs in rounds]
    assert inside == sorted(inside, reverse=True)
    pairs = [link for pairs in rounds for link in pairs]
    assert len(pairs) == len(set(pairs)) == len(places) * (len(places) - 1) // 2


@examples(40)
@given(COUNTS, st.integers(1, 6), SEEDS)
def test_a_quick_schedule_leaves_out_at_most_one_node_of_a_round(count: int, rounds: int, seed: int) -> None:
    made = quick(names(count), {}, rounds, Random(seed))
    assert len(made) == rounds
    assert all(map(no_node_is_twice_in, made))
    assert all(len(pairs) == count // 2 for pairs in made)


@pytest.mark.long
@examples(40)
@given(COUNTS, st.integers(1, 6), SEEDS)
def test_nobody_meets_a_partner_twice_where_there_are_enough_others(count: int, rounds: int, seed: int) -> None:
    assume(count > rounds)
    pairs = [link for made in quick(names(count), {}, rounds, Random(seed)) for link in made]
    assert len(pairs) == len(set(pairs))


@examples(40)
@given(SIZES_OF_PLACES, SEEDS)
def test_with_places_of_any_sizes_rounds_are_disjoint_and_whole(sizes: list[int], seed: int) -> None:
    places = placed(sizes)
    made = quick(tuple(places), places, FIRST_ROUNDS, Random(seed))
    assert len(made) == FIRST_ROUNDS
    assert all(map(no_node_is_twice_in, made))
    assert all(len(pairs) == len(places) // 2 for pairs in made)


@examples(40)
@given(st.lists(st.integers(3, 12).map(lambda half: 2 * half), min_size=3, max_size=8), SEEDS)
def test_the_first_half_of_the_rounds_is_inside_places_and_the_other_across_them(sizes: list[int], seed: int) -> None:
    assume(2 * max(sizes) <= sum(sizes))
    places = placed(sizes)
    made = quick(tuple(places), places, FIRST_ROUNDS, Random(seed))
    inside, across = made[: FIRST_ROUNDS // 2], made[FIRST_ROUNDS // 2 :]
    assert all(is_inside(link, places) for pairs in inside for link in pairs)
    assert not any(is_inside(link, places) for pairs in across for link in pairs)


@examples(40)
@given(st.lists(st.integers(8, 20), min_size=4, max_size=8), SEEDS)
def test_with_places_too_nobody_meets_a_partner_twice(sizes: list[int], seed: int) -> None:
    assume(2 * max(sizes) <= sum(sizes))
    places = placed(sizes)
    met = Counter(link for pairs in quick(tuple(places), places, FIRST_ROUNDS, Random(seed)) for link in pairs)
    inside = {link for link in met if is_inside(link, places)}
    assert all(met[link] == 1 for link in inside)
    assert sum(met.values()) - len(met) <= 1  # 20 tries leave an occasional repetition across places


@examples(40)
@given(SIZES_OF_PLACES, SEEDS, st.booleans())
def test_the_same_seed_makes_the_same_rounds(sizes: list[int], seed: int, is_full: bool) -> None:
    places = placed(sizes)
    one, other = (plan(order, places, MIN_EFFECT, is_full, seed=seed) for order in (list(places), [*places][::-1]))
    assert one.first == other.first


def test_another_seed_makes_other_rounds() -> None:
    one, other = (plan(names(32), {}, MIN_EFFECT, seed=seed) for seed in (1, 2))
    assert one.first != other.first


def test_one_place_for_all_is_no_place() -> None:
    nodes = names(8)
    assert plan(nodes, dict.fromkeys(nodes, "rack"), MIN_EFFECT).places == {}


def test_one_node_has_nobody_to_be_measured_with() -> None:
    _, pairs = next_round(plan(["alone"], {}, MIN_EFFECT), [])
    assert not pairs


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda two: two[0] != two[1]), max_size=30))
def test_pairs_that_a_person_asks_for_are_put_into_disjoint_rounds(asked: list[tuple[int, int]]) -> None:
    pairs = list(dict.fromkeys(pair(f"n{node}", f"n{other}") for node, other in asked))
    rounds = disjoint(pairs)
    assert all(map(no_node_is_twice_in, rounds))
    assert sorted(link for made in rounds for link in made) == sorted(pairs)


def test_pairs_that_a_person_asks_for_are_all_that_is_measured() -> None:
    pairs = (pair("n000", "n001"), pair("n001", "n002"))
    raw = measured(plan(names(8), {}, MIN_EFFECT, named_pairs=pairs), Cluster(nodes={"n001": 0.5}))
    assert [measurement.pair for measurement in raw] == list(pairs)


def test_a_node_that_cannot_be_measured_is_in_no_round() -> None:
    made = PairPlan(names(9), {}, MIN_EFFECT, absent=frozenset({"n003"}))
    raw = measured(made, Cluster(nodes={"n004": 0.8}))
    assert raw
    assert not any("n003" in measurement.pair.nodes for measurement in raw)


FAULTS: Mapping[str, Cluster] = {
    "slow nodes": Cluster(nodes={"n003": 0.8, "n017": 0.9}),
    "a dead node": Cluster(dead={"n005"}),
    "a slow link": Cluster(links={pair("n000", "n001"): 0.5}),
    "nothing": Cluster(),
    "a slow place": Cluster(ways_out={"r1": 0.7}),
    "contention": Cluster(most_at_once=10),
}


@pytest.fixture(params=[(name, size) for name in FAULTS for size in (0, 8)], ids=str)
def campaign(request: pytest.FixtureRequest) -> tuple[PairPlan, list[Measurement]]:
    """A campaign of 32 nodes in one place or four, with any fault."""
    name, size = request.param
    nodes = names(32)
    made = plan(nodes, racks(nodes, size) if size else {}, MIN_EFFECT, seed=3)
    return made, measured(made, FAULTS[name])


def rounds_of(made: PairPlan, raw: list[Measurement]) -> list[tuple[list[Measurement], list[Pair]]]:
    """The retest rounds: what was known before each, and its pairs."""
    numbers = sorted({measurement.round for measurement in raw if measurement.round >= len(made.first)})
    return [
        (
            [measurement for measurement in raw if measurement.round < number],
            [measurement.pair for measurement in raw if measurement.round == number],
        )
        for number in numbers
    ]


@pytest.mark.long
def test_no_node_is_twice_in_a_retest_round(campaign: tuple[PairPlan, list[Measurement]]) -> None:
    made, raw = campaign
    assert len(rounds_of(made, raw)) <= RETEST_ROUNDS
    assert all(no_node_is_twice_in(tuple(pairs)) for _, pairs in rounds_of(made, raw))


@pytest.mark.long
def test_at_most_half_as_many_pairs_run_at_once_in_the_first_retest_round(
    campaign: tuple[PairPlan, list[Measurement]],
) -> None:
    made, raw = campaign
    first = [measurement for measurement in raw if measurement.round == len(made.first)]
    assert first
    assert 2 * len(first) <= max(measurement.at_once for measurement in raw)


@pytest.mark.long
def test_the_partner_of_a_suspect_is_good_and_is_new_to_it(campaign: tuple[PairPlan, list[Measurement]]) -> None:
    made, raw = campaign
    for before, pairs in rounds_of(made, raw):
        screened = screen(before, made.settings)
        bad = {*screened.slow, *screened.failing}
        met = {measurement.pair for measurement in before}
        for link in pairs:
            if link not in screened.links:
                assert len(bad & set(link)) <= 1
                assert not bad & set(link) or link not in met


@pytest.mark.long
def test_every_suspect_that_is_not_surely_slow_is_measured_again(campaign: tuple[PairPlan, list[Measurement]]) -> None:
    made, raw = campaign
    for before, pairs in rounds_of(made, raw):
        screened = screen(before, made.settings)
        suspects = {*screened.slow, *screened.failing} - decided(screened, len(made.nodes), made.settings)
        assert suspects <= {node for link in pairs for node in link}


@pytest.mark.long
def test_a_node_that_is_surely_slow_is_measured_no_more() -> None:
    made = plan(names(32), {}, MIN_EFFECT)
    raw = measured(made, Cluster(nodes={"n003": 0.8}, links={made.first[0][0]: 0.5}))
    again = Counter(node for _, pairs in rounds_of(made, raw) for link in pairs for node in link)
    assert (again["n003"], len(rounds_of(made, raw))) == (RETESTS, RETEST_ROUNDS)


def test_a_suspect_pair_is_measured_again_as_it_is() -> None:
    made = plan(names(16), {}, MIN_EFFECT)
    link = made.first[1][0]
    raw = measured(made, Cluster(links={link: 0.6}))
    assert sum(measurement.pair == link and measurement.round >= len(made.first) for measurement in raw) >= 2


def test_a_healthy_cluster_is_asked_once_more_with_room_and_then_no_more() -> None:
    made = plan(names(64), {}, MIN_EFFECT)
    raw = measured(made, Cluster())
    assert max(measurement.round for measurement in raw) <= len(made.first)


def test_with_more_suspects_than_good_nodes_each_good_node_serves_one() -> None:
    made = plan(names(12), {}, MIN_EFFECT)
    raw = measured(made, Cluster(dead=names(12)[:7]))
    assert all(no_node_is_twice_in(tuple(pairs)) for _, pairs in rounds_of(made, raw))


@pytest.mark.long
@examples(40)
@given(st.integers(2, 24), SEEDS, st.data())
def test_a_round_that_was_broken_off_goes_on_with_the_pairs_that_are_left(
    count: int, seed: int, data: st.DataObject
) -> None:
    made = plan(names(count), {}, MIN_EFFECT, seed=seed)
    raw = measured(made, Cluster(nodes={"n001": 0.8}, seed=seed))
    cut = data.draw(st.integers(0, len(raw) - 1))
    number, left = next_round(made, raw[:cut])
    assert number == raw[cut].round
    assert list(left) == [measurement.pair for measurement in raw[cut:] if measurement.round == number]


@examples(40)
@given(st.integers(3, 12), st.integers(1, 9), SEEDS)
def test_the_nodes_that_are_left_are_measured_however_many_are_absent(count: int, gone: int, seed: int) -> None:
    assume(count - gone >= 2)
    absent = frozenset(Random(seed).sample(names(count), gone))
    made = PairPlan(names(count), {}, MIN_EFFECT, is_full=True, absent=absent)
    raw = measured(made, Cluster())
    left = set(names(count)) - absent
    assert {measurement.pair for measurement in raw} == {
        pair(node, other) for node in left for other in left if node != other
    }
