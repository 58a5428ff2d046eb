"""What is normal in a population, and the verdicts on its units."""

from __future__ import annotations

from math import log
from random import Random

import pytest

from bench.acceptance import Tally, interval, said_of
from clusterproof.plugins.accept.population import Errors, Unit, reference_of
from clusterproof.plugins.accept.sequential import Decision, Population, as_fast, decision_of, to_measure
from tests.accept.simulated import ERRORS

NODES = [f"n{number:02}" for number in range(40)]
NOISE = 0.01


def runs(slow: dict[str, float], count: int, drift: float = 0.0) -> list[dict[Unit, float]]:
    """Runs of a device of each node; some devices have another share of the speed."""
    random = Random(5)
    measured = []
    for _ in range(count):
        shared = random.gauss(0.0, drift)
        measured.append(
            {(node, "0"): log(400 * slow.get(node, 1.0)) + shared + random.gauss(0, NOISE) for node in NODES}
        )
    return measured


def population(of: list[dict[Unit, float]], floor: float | None = None) -> Population:
    """A population with all of these."""
    made = Population(ERRORS, 10, floor)
    for number, values in enumerate(of):
        made.add(number, values)
        made.learn()
    return made


def decisions(made: Population) -> dict[str, Decision]:
    return {node: judged.decision for (node, _), judged in made.judged.items()}


def test_a_third_of_slow_nodes_moves_neither_centre_nor_noise() -> None:
    slow = dict.fromkeys(NODES[:13], 0.8)
    usual = reference_of(dict(enumerate(runs(slow, 3))))
    assert usual is not None
    assert usual.centre == pytest.approx(log(400), abs=0.02)
    assert usual.sigma == pytest.approx(NOISE, rel=0.5)


def test_what_all_units_of_a_run_have_in_common_is_no_noise() -> None:
    usual = reference_of(dict(enumerate(runs({}, 6, drift=0.05))))
    assert usual is not None
    assert usual.sigma < 2 * NOISE


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_node_that_is_slow_as_a_whole_now_and_then_is_not_what_its_run_has_in_common(at_once: int) -> None:
    random, made = Random(4), Population(ERRORS, 8)
    for run in range(3):
        for first in range(0, 6, at_once):
            slow = log(0.9) if run == 1 else 0.0
            nodes = range(first, first + at_once)
            own = {
                (f"n{node}", str(gpu)): log(700) + random.gauss(0, 0.004) + (slow if node == 4 else 0.0)
                for node in nodes
                for gpu in range(8)
            }
            made.add(len(made.runs), own)
    made.learn()
    assert {node for (node, _), judged in made.judged.items() if judged.decision is not Decision.GOOD} == {"n4"}


def test_of_a_population_all_of_whose_nodes_are_gone_nobody_says_that_it_is_as_fast() -> None:
    made = {key: Population(ERRORS, 10) for key in ("near", "far")}
    for number, values in enumerate(runs({}, 3)):
        for at, key in enumerate(made):
            made[key].add(number, {unit: x for unit, x in values.items() if unit[0] in NODES[at::2]})
    assert as_fast(made) == {"near", "far"}
    for node in NODES[1::2]:
        made["far"].forget(node)
    assert as_fast(made) == set()


def test_slow_units_are_bad_and_all_others_good() -> None:
    slow = {"n03": 0.9, "n07": 0.93}
    by_node = decisions(population(runs(slow, 8, drift=0.03)))
    assert {node for node, of in by_node.items() if of is Decision.BAD} == slow.keys()
    assert {of for node, of in by_node.items() if node not in slow} == {Decision.GOOD}


def test_a_unit_that_is_slow_in_four_of_five_runs_is_not_good() -> None:
    of = runs({}, 10)
    for number in (0, 1, 2, 4, 5, 6, 7, 9):
        of[number]["n03", "0"] += log(0.85)
    assert decisions(population(of))["n03"] is Decision.BAD


def test_before_it_is_known_what_is_usual_nothing_is_said() -> None:
    assert decisions(population(runs({}, 2))) == {}


def test_two_nodes_show_nothing_but_against_a_floor() -> None:
    of = [{unit: x for unit, x in values.items() if unit[0] in NODES[:2]} for values in runs({"n00": 0.8}, 6)]
    assert decisions(population(of)) == {}
    assert decisions(population(of, log(400))) == {"n00": Decision.BAD, "n01": Decision.GOOD}


def test_a_population_below_the_floor_is_bad_as_a_whole() -> None:
    assert set(decisions(population(runs({}, 6), log(450))).values()) == {Decision.BAD}


@pytest.mark.parametrize("faster", [1.03, 1.05, 1.08, 1.2])
def test_a_unit_that_is_faster_than_usual_is_good(faster: float) -> None:
    by_node = decisions(population(runs({"n03": faster}, 6)))
    assert {by_node["n03"], by_node["n05"]} == {Decision.GOOD}


@pytest.mark.parametrize("floor", [395.0, 380.0, 350.0, 200.0])
def test_a_node_that_is_faster_than_what_is_due_is_good(floor: float) -> None:
    of = [{unit: x for unit, x in values.items() if unit[0] in NODES[:2]} for values in runs({}, 6)]
    assert set(decisions(population(of, log(floor))).values()) == {Decision.GOOD}


def test_a_node_is_good_by_all_its_units_alone() -> None:
    good, bad, still = Decision.GOOD, Decision.BAD, Decision.OPEN
    assert [decision_of(of) for of in ([good, good], [good, still], [still, bad], [])] == [good, still, bad, still]


def test_open_nodes_are_measured_again_beside_good_ones_and_bad_ones_never() -> None:
    decided = dict.fromkeys(NODES, Decision.GOOD) | {"n01": Decision.OPEN, "n02": Decision.BAD}
    chosen = to_measure(decided, dict.fromkeys(NODES, 3), 12, ERRORS)
    assert ("n01" in chosen, "n02" in chosen, len(chosen)) == (True, False, 17)
    assert to_measure(decided, dict.fromkeys(NODES, 12), 12, ERRORS) == []


def test_the_runs_of_each_node_follow_from_the_declared_errors() -> None:
    assert [Errors(0.001, 0.01, 0.05, share).least_runs for share in (0.99, 0.9, 0.8, 0.5)] == [1, 2, 3, 7]


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert interval(0, 100) == pytest.approx((0.0, 0.0370), abs=1e-3)
    assert interval(5, 100) == pytest.approx((0.0215, 0.1118), abs=1e-3)


@pytest.mark.parametrize(
    ("rejected", "of", "rate"),
    [(0, 10_000, "yes"), (0, 100, "too few nodes to say"), (9, 10_000, "too few nodes to say"), (30, 10_000, "no")],
)
def test_a_declared_rate_holds_only_where_all_of_its_interval_does(rejected: int, of: int, rate: str) -> None:
    assert said_of(Tally(1, good=of, good_rejected=rejected))["holds"] == {
        "good_rejected": rate,
        "bad_accepted": "too few nodes to say",
    }


def test_nodes_above_a_floor_are_no_faster_than_is_usual_of_them() -> None:
    few = runs({}, ERRORS.least_runs)
    first = [{unit: x for unit, x in values.items() if unit[0] in NODES[:2]} for values in few]
    made = population([*first, *runs({}, 6)], floor=log(300))
    assert made.reference is not None
    assert made.reference.centre == log(300)
    assert made.far_faster == {}
