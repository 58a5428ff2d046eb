"""When a load counts as sustained, whatever is missing and in whatever units."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.evidence.aws import facts_fsx as load
from clusterproof.plugins.evidence.aws.facts_fsx import Period, clock

SPAN, HOT = int(PACKAGED.threshold("fsx.span_minutes")), int(PACKAGED.threshold("fsx.hot_minutes"))
LIMIT = 80.0
sustained = partial(load.sustained, catalog=PACKAGED)
may_be_sustained = partial(load.may_be_sustained, catalog=PACKAGED)

points = st.lists(st.one_of(st.none(), st.integers(0, 120).map(float)), max_size=60)
raw = st.lists(st.integers(0, 120).map(float), min_size=SPAN, max_size=60)


def by_hand(values: Sequence[float | None], limit: float) -> bool:
    """The same rule, computed span by span."""
    spans = [values[first : first + SPAN] for first in range(len(values) - SPAN + 1)]
    return any(sum(value is not None and value >= limit for value in span) >= HOT for span in spans)


@given(points)
def test_a_load_is_sustained_where_enough_minutes_of_some_span_are_hot(values: list[float | None]) -> None:
    assert (sustained(values, LIMIT) is not None) == by_hand(values, LIMIT)


@given(points, st.data())
def test_a_missing_minute_never_makes_a_load(values: list[float | None], data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.integers(0, max(0, len(values) - 1))))
    fewer = [None if number in lost else value for number, value in enumerate(values)]
    assert not (sustained(fewer, LIMIT) and not sustained(values, LIMIT))


@given(points, st.floats(0, 120))
def test_what_cannot_be_ruled_out_is_what_some_load_of_the_missing_minutes_would_make(
    values: list[float | None], other: float
) -> None:
    worst = [LIMIT if value is None else value for value in values]
    filled = [other if value is None else value for value in values]
    if len(values) >= SPAN:
        assert may_be_sustained(values, LIMIT) == by_hand(worst, LIMIT)
        assert may_be_sustained(values, LIMIT) or not by_hand(filled, LIMIT)


@given(raw)
def test_where_no_minute_is_missing_a_load_is_sustained_or_ruled_out(values: list[float]) -> None:
    assert may_be_sustained(values, LIMIT) == (sustained(values, LIMIT) is not None)


@given(points, st.integers(-3, 3))
def test_units_make_no_difference(values: list[float | None], power: int) -> None:
    scale = 2.0**power
    scaled = sustained([None if value is None else value * scale for value in values], LIMIT * scale)
    plain = sustained(values, LIMIT)
    assert (scaled and (scaled.first, scaled.last, scaled.hot)) == (plain and (plain.first, plain.last, plain.hot))
    if scaled and plain:
        assert scaled.mean == pytest.approx(plain.mean * scale)


@given(points)
def test_backwards_in_time_the_rule_is_the_same(values: list[float | None]) -> None:
    there, back = sustained(values, LIMIT), sustained(values[::-1], LIMIT)
    assert (there and there.minutes) == (back and back.minutes)


@given(points, st.integers(0, 20))
def test_when_it_was_makes_no_difference(values: list[float | None], later: int) -> None:
    there, then = sustained(values, LIMIT), sustained([*[None] * later, *values], LIMIT)
    if there:
        assert then == Period(there.first + later, there.last + later, there.hot, there.mean)


@given(points)
def test_a_period_begins_and_ends_hot_and_its_mean_is_above_the_limit(values: list[float | None]) -> None:
    period = sustained(values, LIMIT)
    if period:
        ends = (values[period.first], values[period.last])
        assert all(end is not None and end >= LIMIT for end in ends)
        assert period.mean >= LIMIT
        assert HOT <= period.hot <= period.minutes


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([90.0] * 10 + [0.0] * 5, Period(0, 9, 10, 90.0)),
        ([90.0] * 9 + [0.0] * 30 + [90.0] * 9, None),  # never enough at a time
        ([90.0, 0.0] * 30, None),  # 8 of 15
        ([90.0, 90.0, 0.0] * 10, Period(0, 28, 20, 90.0)),  # 10 of 15, again and again
        ([90.0] * 12 + [0.0] * 40 + [99.0] * 14, Period(52, 65, 14, 99.0)),  # the longer one
        ([90.0] * 10, None),  # too short a time for any span
        ([99.0] + [0.0] * 59, None),
        ([90.0] * 10 + [None] * 20, Period(0, 9, 10, 90.0)),
        ([], None),
    ],
)
def test_the_period_that_is_reported(values: list[float | None], expected: Period | None) -> None:
    assert sustained(values, LIMIT) == expected


@pytest.mark.parametrize(
    ("values", "may_be"),
    [
        ([0.0] * 15, False),
        ([0.0] * 30 + [None] * 9, False),
        ([0.0] * 30 + [None] * 10, True),
        ([90.0] * 5 + [None] * 5 + [0.0] * 5, True),
        ([90.0] * 5 + [None] * 4 + [0.0] * 6, False),
        ([0.0] * 14, True),
        ([], True),
        ([None] * 180, True),
    ],
)
def test_too_few_points_rule_nothing_out(values: list[float | None], may_be: bool) -> None:
    assert may_be_sustained(values, LIMIT) is may_be


def test_the_mean_of_other_points_is_that_of_the_same_minutes() -> None:
    period = Period(1, 3, 3, 90.0)
    assert period.mean_of([100.0, 10.0, None, 20.0, 100.0]) == 15.0
    assert period.mean_of([100.0, None, None, None]) is None


def test_times_are_in_utc() -> None:
    assert clock(1763712600.0) == "2025-11-21 08:10"
