"""Faults injected into one exact product of a batch under PyTorch.

Into an operand, a partial sum, the result, or the float64 product that results are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from clusterproof.plugins.evidence.exact.on_node.operands import STEP, Kind, Operands
from clusterproof.plugins.evidence.exact.on_node.products import (
    AS_INTEGERS,
    Factors,
    Unit,
    draw_factors,
    operands_of,
)

SIZE = 32  # rows and columns: a lane is one of 32
ONE_BY_ONE = ("int8", "float8_e4m3fn", "float8_e5m2")  # PyTorch has no batched product for these
WIDE = ("float16", "bfloat16")  # … nor for these if results are wider than operands, which only GPUs produce
LANES = 32


class Work(NamedTuple):
    """A batch of products of one data set, with its operands and reference."""

    kind: Kind
    unit: Unit
    data: Operands
    given: Factors
    left: Any
    right: Any
    product: Any
    integers: Any  # the same in float64, with integer values


Inject = Callable[[Work, torch.Generator], Any]


def is_batched(kind: Kind, device: str) -> bool:
    """Whether PyTorch multiplies batches of this type on that device."""
    return kind.name not in (ONE_BY_ONE if device == "cpu" else ONE_BY_ONE + WIDE)


def multiply(unit: Unit, kind: Kind, left: Any, right: Any) -> Any:
    """Multiply a batch."""
    if is_batched(kind, left.device.type):
        return unit.multiply(left, right)
    return torch.stack([unit.multiply(own, other) for own, other in zip(left, right, strict=True)])


def work(
    kind: Kind, unit: Unit, operands: Operands, seed: int, complement: bool, size: int, batch: int, device: str
) -> Work:
    """Make this many products."""
    given = draw_factors(operands, size, size, seed, complement, device, (batch,))
    left, right = operands_of(given, operands, kind, unit)
    return Work(
        kind,
        unit,
        operands,
        given,
        left,
        right,
        multiply(unit, kind, left, right),
        given.left.double() @ given.right.double(),
    )


def draw(most: int, done: Work, random: torch.Generator) -> Any:
    """A random number below `most` for each product."""
    return torch.randint(most, (done.product.shape[0],), generator=random, device=random.device)


def bits_of(matrix: Any) -> Any:
    """A copy of a matrix, viewed as integers of the same width."""
    return matrix.contiguous().view(AS_INTEGERS[matrix.element_size()]).clone()


def mask(bit: Any, like: Any) -> Any:
    """Integers with only this bit set."""
    return (torch.ones_like(bit) << bit).to(like.dtype)


def flipped(matrix: Any, done: Work, random: torch.Generator, bits: int = 1) -> Any:
    """Flip this many bits of one element in each product."""
    integers = bits_of(matrix)
    every = torch.arange(integers.shape[0], device=integers.device)
    row, column = draw(integers.shape[1], done, random), draw(integers.shape[2], done, random)
    first = draw(8 * matrix.element_size(), done, random)
    for number in range(bits):
        integers[every, row, column] ^= mask((first + 3 * number) % (8 * matrix.element_size()), integers)
    return integers.view(matrix.dtype)


def bit_of_left(done: Work, random: torch.Generator) -> Any:
    """A bit of the left operand."""
    return multiply(done.unit, done.kind, flipped(done.left, done, random), done.right)


def bit_of_right(done: Work, random: torch.Generator) -> Any:
    """A bit of the right operand."""
    right = flipped(done.right, done, random)
    if done.kind.name.startswith("float8"):
        right = right.transpose(-1, -2).contiguous().transpose(-1, -2)
    return multiply(done.unit, done.kind, done.left, right)


def bit_of_partial_sum(done: Work, random: torch.Generator) -> Any:
    """A bit of an accumulator, half way through a sum."""
    wide = torch.float64 if done.kind.name == "float64" else torch.float32
    middle = done.data.terms // 2 // STEP * STEP or STEP
    left, right = done.left.to(wide), done.right.to(wide)
    begun = flipped(left[..., :middle] @ right[:, :middle], done, random)
    return (begun + left[..., middle:] @ right[:, middle:]).to(done.product.dtype)


def bits_of_result(done: Work, random: torch.Generator, bits: int = 1) -> Any:
    """A bit of the result, or several."""
    return flipped(done.product, done, random, bits)


def stuck(done: Work, random: torch.Generator, period: int) -> Any:
    """Set a bit of every n-th column to 1 in half of the products, to 0 in the others."""
    integers = bits_of(done.product)
    lane, bit = draw(min(period, SIZE), done, random), draw(8 * done.product.element_size(), done, random)
    columns = (torch.arange(SIZE, device=lane.device) % period == lane.unsqueeze(-1)).unsqueeze(1)
    held = mask(bit, integers).reshape(-1, 1, 1)
    at_one = (torch.arange(len(lane), device=lane.device) % 2 == 0).reshape(-1, 1, 1)
    broken = torch.where(at_one, integers | held, integers & ~held)
    return torch.where(columns, broken, integers).view(done.product.dtype)


def exchanged(done: Work, random: torch.Generator, both: bool) -> Any:
    """A row appears in place of another: duplicated, or swapped."""
    integers = bits_of(done.product)
    every = torch.arange(integers.shape[0], device=integers.device)
    row = draw(SIZE, done, random)
    other = (row + 1 + draw(SIZE - 1, done, random)) % SIZE
    before = integers.clone()
    integers[every, row] = before[every, other]
    if both:
        integers[every, other] = before[every, row]
    return integers.view(done.product.dtype)


def dropped(done: Work, random: torch.Generator, size: int) -> Any:
    """A tile of the result is never written."""
    result = done.product.clone()
    for number, (row, column) in enumerate(
        zip(draw(SIZE // size, done, random), draw(SIZE // size, done, random), strict=True)
    ):
        result[number, row * size : (row + 1) * size, column * size : (column + 1) * size] = 0
    return result


IN_RESULTS: dict[str, Inject] = {
    "a bit of the left operand": bit_of_left,
    "a bit of the right operand": bit_of_right,
    "a bit of an accumulator": bit_of_partial_sum,
    "a bit of the result": bits_of_result,
    "two bits of the result": lambda done, random: bits_of_result(done, random, 2),
    "five bits of the result": lambda done, random: bits_of_result(done, random, 5),
    "a lane stuck": lambda done, random: stuck(done, random, LANES),
    "every fourth column stuck": lambda done, random: stuck(done, random, 4),
    "every column stuck": lambda done, random: stuck(done, random, 1),
    "an element dropped": lambda done, random: dropped(done, random, 1),
    "a tile dropped": lambda done, random: dropped(done, random, 16),
    "a row duplicated": lambda done, random: exchanged(done, random, both=False),
    "two rows reordered": lambda done, random: exchanged(done, random, both=True),
}


def reference_bit(done: Work, random: torch.Generator) -> Any:
    """A bit of the product that results are compared with."""
    return flipped(done.integers, done, random)


def cancelling(done: Work, random: torch.Generator, in_columns: bool) -> Any:
    """Two elements of a row are off by the same amount, one up, one down; or four, so that column sums agree too."""
    broken = done.integers.clone()
    every = torch.arange(broken.shape[0], device=broken.device)
    row, column = draw(SIZE, done, random), draw(SIZE - 1, done, random)
    by = 1.0 + draw(1000, done, random)
    broken[every, row, column] += by
    broken[every, row, column + 1] -= by
    if in_columns:
        other = (row + 1) % SIZE
        broken[every, other, column] -= by
        broken[every, other, column + 1] += by
    return broken


IN_REFERENCES: dict[str, Inject] = {
    "a bit of the reference": reference_bit,
    "two of the reference that cancel": lambda done, random: cancelling(done, random, in_columns=False),
    "four of the reference that cancel": lambda done, random: cancelling(done, random, in_columns=True),
}
