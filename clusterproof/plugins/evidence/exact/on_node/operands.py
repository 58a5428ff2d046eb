"""Chooses integers whose partial sums are all exact in the accumulator, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

NARROW_BITS = 3  # ±1 to ±7
SHORTEST, STEP = 16, 16  # terms of a sum: FP8 products require multiples of 16
SHORT = 64  # minimum terms for data with all bits of an operand in use; else operands get fewer bits


class Kind(NamedTuple):
    """A data type: the bits of its significand and of the accumulator, including the hidden bit."""

    name: str
    significand: int
    accumulator: int


class Operands(NamedTuple):
    """One data set: the operands' bits, and the number of terms in a sum.

    `is_selecting`: each column of the right side has a single 1 and zeros, so that the sum is one product.
    """

    name: str
    left_bits: int
    right_bits: int
    terms: int
    is_selecting: bool = False


def most_terms(left_bits: int, right_bits: int, accumulator: int) -> int:
    """How many products of such integers always have a sum below 2^accumulator."""
    return (1 << accumulator) // (((1 << left_bits) - 1) * ((1 << right_bits) - 1))


def data_sets(kind: Kind, longest: int) -> Iterator[Operands]:
    """The data sets of a type, with sums of at most `longest` terms.

    Wide by narrow: a bit that flips in either operand, down to the last of its significand, changes the sum by 1 at
    least. Wide by wide: the multiplier's upper half. Narrow by narrow: sums as long as can be. Where an operand cannot
    have all its bits in use and a sum still be exact, another set selects single products, which can.
    """
    wide = kind.significand
    while most_terms(wide, NARROW_BITS, kind.accumulator) < SHORT:
        wide -= 1
    terms = _rounded(most_terms(wide, NARROW_BITS, kind.accumulator), longest)
    yield Operands("wide by narrow", wide, NARROW_BITS, terms)
    yield Operands("narrow by wide", NARROW_BITS, wide, terms)
    both = kind.significand
    while most_terms(both, both, kind.accumulator) < SHORTEST:
        both -= 1
    if both > NARROW_BITS:
        yield Operands("wide by wide", both, both, _rounded(most_terms(both, both, kind.accumulator), longest))
    if terms < longest:
        terms_of_narrow = most_terms(NARROW_BITS, NARROW_BITS, kind.accumulator)
        yield Operands("narrow by narrow", NARROW_BITS, NARROW_BITS, _rounded(terms_of_narrow, longest))
    if wide < kind.significand:
        yield Operands("selected", kind.significand, 1, terms, is_selecting=True)


def _rounded(terms: int, longest: int) -> int:
    return min(terms, longest) // STEP * STEP


def magnitudes(bits: int) -> tuple[int, int]:
    """The range of such an integer: all values of 3 bits; with more bits the first one is set, and the others vary."""
    return (1 << (bits - 1) if bits > NARROW_BITS else 1, (1 << bits) - 1)


def of_settings(text: str) -> list[Kind]:
    """Parse a setting: `float32:24:24,…`."""
    return [
        Kind(name, int(bits), int(sum_bits))
        for name, bits, sum_bits in (setting.split(":") for setting in text.split(","))
    ]
