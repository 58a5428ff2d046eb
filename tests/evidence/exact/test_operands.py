"""Operands of exact products: no partial sum exceeds its accumulator's bits, and every bit is used."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from clusterproof.plugins.catalog import exact_kinds_setting
from clusterproof.plugins.evidence.exact.on_node.operands import (
    NARROW_BITS,
    STEP,
    Kind,
    Operands,
    data_sets,
    magnitudes,
    most_terms,
    of_settings,
)

KINDS = of_settings(exact_kinds_setting())
SETS = [(kind, operands) for kind in KINDS for operands in data_sets(kind, 8192)]
NAMES = [f"{kind.name}: {operands.name}" for kind, operands in SETS]


def terms_of(operands: Operands, random: Random) -> list[int]:
    """The products in one sum, with random signs."""
    (low, high), (least, most) = magnitudes(operands.left_bits), magnitudes(operands.right_bits)
    count = 1 if operands.is_selecting else operands.terms
    return [random.choice((-1, 1)) * random.randint(low, high) * random.randint(least, most) for _ in range(count)]


def rounded(value: int, bits: int) -> int:
    """A number in an accumulator of this many bits, truncated to fit."""
    beyond = max(0, abs(value).bit_length() - bits)
    return (abs(value) >> beyond << beyond) * (1 if value >= 0 else -1)


@pytest.mark.parametrize(("kind", "operands"), SETS, ids=NAMES)
def test_the_largest_sum_that_a_data_set_can_have_fits_the_accumulator(kind: Kind, operands: Operands) -> None:
    largest = (
        magnitudes(operands.left_bits)[1]
        * magnitudes(operands.right_bits)[1]
        * (1 if operands.is_selecting else operands.terms)
    )
    assert largest <= 2**kind.accumulator
    assert largest < 2**53  # exact in float64, with which all are compared
    assert max(operands.left_bits, operands.right_bits) <= kind.significand


@pytest.mark.parametrize(("kind", "operands"), SETS, ids=NAMES)
def test_in_whatever_order_it_is_made_a_sum_is_the_same(kind: Kind, operands: Operands) -> None:
    random = Random(1)
    terms = terms_of(operands, random)[:512]
    for _ in range(8):
        random.shuffle(terms)
        sum_so_far = 0
        for term in terms:
            sum_so_far = rounded(sum_so_far + term, kind.accumulator)
        assert sum_so_far == sum(terms)


def test_one_more_term_than_an_accumulator_holds_is_no_longer_exact() -> None:
    most = most_terms(8, 8, 24)
    below, above = (2**24 // 255**2 + more for more in (0, 1))
    assert most == below
    assert rounded(above * 255**2, 24) != above * 255**2


@pytest.mark.parametrize("name", ["tfloat32", "float16", "bfloat16", "float8_e4m3fn", "int8"])
def test_a_flip_of_the_lowest_bit_of_either_operand_changes_the_sum_by_one_at_least(name: str) -> None:
    kind = next(kind for kind in KINDS if kind.name == name)
    wide = next(data_sets(kind, 8192))
    assert (wide.left_bits, wide.right_bits) == (kind.significand, NARROW_BITS)
    (least_wide, _), (least_narrow, _) = magnitudes(wide.left_bits), magnitudes(wide.right_bits)
    lowest_of_wide, lowest_of_narrow = Fraction(1), Fraction(least_narrow, 2 ** (kind.significand - 1))
    assert lowest_of_wide * least_narrow >= 1
    assert lowest_of_narrow * least_wide >= 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_bit_of_a_significand_is_put_to_use(kind: Kind) -> None:
    assert max(operands.left_bits for operands in data_sets(kind, 8192)) == kind.significand
    assert len({operands.name for operands in data_sets(kind, 8192)}) == len(list(data_sets(kind, 8192)))


@pytest.mark.parametrize(("_kind", "operands"), SETS, ids=NAMES)
def test_sums_are_of_as_many_terms_as_the_products_of_fp8_take(_kind: Kind, operands: Operands) -> None:
    assert operands.terms >= STEP
    assert operands.terms % STEP == 0


def test_the_complement_of_an_integer_has_each_bit_the_other_way_that_varies() -> None:
    low, high = magnitudes(8)
    assert (low, high) == (128, 255)
    for value in range(low, high + 1):
        assert (low + high - value) ^ value == 0b01111111
