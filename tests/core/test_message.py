"""Numbers compared in a message get more digits if rounding makes them equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.core.message import SIGNIFICANT, WHOLE, format_pair, format_speeds, speed

NUMBERS = st.floats(0, 1e9, allow_subnormal=False)


@pytest.mark.parametrize(
    ("value", "other", "digits", "form", "shown"),
    [
        (23.51, 24, 0, WHOLE, ("23.5", "24")),
        (20.2, 24, 0, WHOLE, ("20", "24")),
        (23.51, 23.52, 0, WHOLE, ("23.51", "23.52")),
        (5.04, 5, 0, WHOLE, ("5.04", "5")),
        (5, 5, 0, WHOLE, ("5", "5")),
        (7.996, 8, 3, SIGNIFICANT, ("7.996", "8")),
        (1200, 1200.4, 3, SIGNIFICANT, ("1200", "1200.4")),
        (32_000, 9, 3, SIGNIFICANT, ("32000", "9")),
    ],
)
def test_two_numbers_have_as_few_digits_as_distinguish_them(
    value: float, other: float, digits: int, form: str, shown: tuple[str, str]
) -> None:
    assert format_pair(value, other, digits, form) == shown


@given(NUMBERS, NUMBERS)
def test_numbers_that_differ_in_what_anybody_measures_never_look_alike(value: float, other: float) -> None:
    one, two = format_pair(value, other)
    if abs(value - other) > 1e-6:
        assert one != two
        assert (float(one) < float(two)) == (value < other)


@pytest.mark.parametrize(
    ("gb_per_s", "text"),
    [(480.0, "480 GB/s"), (0.1, "0.1 GB/s"), (0.007153, "57.2 Mbit/s"), (0.000_004, "0.032 Mbit/s"), (0.0, "0 GB/s")],
)
def test_a_speed_is_shown_in_the_unit_that_people_use_for_it(gb_per_s: float, text: str) -> None:
    assert speed(gb_per_s) == text


@pytest.mark.parametrize(
    ("gb_per_s", "other", "texts"),
    [
        (479.98, 480.0, ("479.98 GB/s", "480 GB/s")),
        (400.0, 480.0, ("400 GB/s", "480 GB/s")),
        (0.05, 480.0, ("400 Mbit/s", "480 GB/s")),
        (0.007153, 0.007154, ("57.22 Mbit/s", "57.23 Mbit/s")),
        (400.0, 0.0, ("400 GB/s", "0 GB/s")),
    ],
)
def test_two_speeds_have_as_few_digits_as_distinguish_them(
    gb_per_s: float, other: float, texts: tuple[str, str]
) -> None:
    assert format_speeds(gb_per_s, other) == texts
