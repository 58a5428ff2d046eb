"""The findings do not depend on the nodes' names or on the order of measurements."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.benchmarks.pairwise.analysis import analyse
from clusterproof.plugins.benchmarks.pairwise.normal import AnalysisSettings
from clusterproof.plugins.benchmarks.pairwise.planning import PairPlan, plan
from clusterproof.plugins.evidence.pairs import Kind, Measurement, Pair, PairFault, Reading, pair
from tests.benchmarks.pairwise.measured import (
    Cluster,
    concluded,
    measured,
    names,
    racks,
)
from tests.benchmarks.pairwise.simulated import CASES, MIN_EFFECT
from tests.builders.examples import examples

READINGS = st.one_of(
    st.floats(1e-6, 1e5).map(Reading),
    st.just(Reading(problem="did not end in its time")),
    st.sampled_from(names(5)).map(lambda node: Reading(problem="lost", culprit=node)),
)


@st.composite
def any_measurements(draw: st.DrawFn) -> list[Measurement]:
    nodes = names(draw(st.integers(2, 7)))
    pairs = st.lists(st.sampled_from(nodes), min_size=2, max_size=2, unique=True).map(lambda two: pair(*two))
    measurement = st.builds(Measurement, pairs, st.integers(0, 8), st.integers(1, 3), READINGS)
    return draw(st.lists(measurement, max_size=30))


@pytest.mark.long
@examples(200)
@given(any_measurements(), st.booleans(), st.sampled_from([None, 1.0, 1e4]))
def test_it_comes_to_something_whatever_was_measured(
    data: list[Measurement], in_places: bool, floor: float | None
) -> None:
    analysis = analyse(data, AnalysisSettings(MIN_EFFECT, racks(names(7), 3) if in_places else {}, 4), floor)
    assert {node for finding in analysis.findings for node in finding.nodes} <= {
        node for measurement in data for node in measurement.pair
    }


@functools.cache
def campaign(name: str) -> tuple[PairPlan, list[Measurement]]:
    """The measurements of a case."""
    case = CASES[name]
    return case.plan, measured(case.plan, Cluster(**case.cluster))  # type: ignore[arg-type]


def renamed(measurement: Measurement, names: Mapping[str, str]) -> Measurement:
    culprit = names.get(measurement.reading.culprit, "")
    return replace(
        measurement,
        pair=pair(*(names[node] for node in measurement.pair)),
        reading=replace(measurement.reading, culprit=culprit),
    )


def kinds_by_name(findings: Sequence[PairFault], names: Mapping[str, str]) -> set[tuple[Kind, frozenset[str], str]]:
    return {
        (finding.kind, frozenset(names.get(node, node) for node in finding.nodes), finding.place)
        for finding in findings
    }


SHUFFLES = st.integers(0, 2**32)
CAMPAIGNS = st.sampled_from(sorted(CASES)).map(campaign)


@pytest.mark.long
@examples(40)
@given(CAMPAIGNS, SHUFFLES)
def test_other_names_change_no_verdict(campaign: tuple[PairPlan, list[Measurement]], seed: int) -> None:
    made, measurements = campaign
    other = dict(zip(made.nodes, Random(seed).sample(made.nodes, len(made.nodes)), strict=True))
    places = {other[node]: place for node, place in made.settings.places.items()}
    analysis = analyse(
        [renamed(measurement, other) for measurement in measurements], replace(made.settings, places=places)
    )
    assert kinds_by_name(analysis.findings, {}) == kinds_by_name(analyse(measurements, made.settings).findings, other)


@pytest.mark.long
@examples(40)
@given(CAMPAIGNS, SHUFFLES)
def test_another_order_of_the_measurements_changes_no_verdict(
    campaign: tuple[PairPlan, list[Measurement]], seed: int
) -> None:
    made, measurements = campaign
    analysis = analyse(Random(seed).sample(measurements, len(measurements)), made.settings)
    assert kinds_by_name(analysis.findings, {}) == kinds_by_name(analyse(measurements, made.settings).findings, {})


@pytest.mark.long
@examples(40)
@given(CAMPAIGNS, st.floats(1e-4, 1e3))
def test_bandwidths_that_are_all_so_many_times_as_high_change_no_verdict(
    campaign: tuple[PairPlan, list[Measurement]], factor: float
) -> None:
    made, measurements = campaign
    scaled = [replace(measurement, reading=_times(measurement.reading, factor)) for measurement in measurements]
    analysis = analyse(scaled, made.settings)
    assert kinds_by_name(analysis.findings, {}) == kinds_by_name(analyse(measurements, made.settings).findings, {})


def _times(reading: Reading, factor: float) -> Reading:
    busbw = reading.busbw_gb_per_s
    return replace(reading, busbw_gb_per_s=busbw and busbw * factor)


@examples(30)
@given(SHUFFLES, st.integers(3, 40), st.sampled_from([0, 4, 8]))
def test_in_a_healthy_cluster_of_any_size_nothing_is_flagged(seed: int, count: int, place: int) -> None:
    nodes = names(count)
    made = plan(nodes, racks(nodes, place) if place else {}, MIN_EFFECT, seed=seed)
    assert not concluded(made, Cluster(seed=seed)).findings


def test_a_pair_is_the_same_whichever_end_is_named_first() -> None:
    assert pair("b", "a") == pair("a", "b") == Pair("a", "b")
    assert str(pair("b", "a")) == "a~b"
