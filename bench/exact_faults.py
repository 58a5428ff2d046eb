"""Faults in exact products, and clean ones, under PyTorch on a processor: runs in a Python that has it.

Each fault is put into one product of a batch: into an operand, a partial sum, the result, or the product in float64
that results are held against. What changes no result is absorbed, and counted apart: nobody can see it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from clusterproof.plugins.benchmarks.exact.operands import STEP, Kind, Operands, data_sets, of_settings
from clusterproof.plugins.benchmarks.exact.products import (
    AS_INTEGERS,
    Pair,
    Unavailable,
    Unit,
    choose,
    differing,
    disagreeing,
    due,
    operands_of,
    pair,
    unit_of,
)

SIZE, CLEAN_SIZE = 32, 16  # rows and columns: a lane is one of 32
LONGEST = 64  # terms of a sum
BATCH, CLEAN_BATCH = 64, 4096
ONE_BY_ONE = ("int8", "float8_e4m3fn", "float8_e5m2")  # PyTorch takes no batch of them
LESS = 100  # times fewer clean products of these
TOLERANCE = 1e-2  # of a test by tolerance, for comparison
LANES = 32


class Work(NamedTuple):
    """A batch of products of one data set, and all that they were made of."""

    kind: Kind
    unit: Unit
    data: Operands
    given: Pair
    left: Any
    right: Any
    product: Any
    integers: Any  # the same in float64, of integers


Inject = Callable[[Work, torch.Generator], Any]


def multiply(unit: Unit, kind: Kind, left: Any, right: Any) -> Any:
    """A batch of products."""
    if kind.name not in ONE_BY_ONE:
        return unit.multiply(left, right)
    return torch.stack([unit.multiply(one, other) for one, other in zip(left, right, strict=True)])


def work(kind: Kind, unit: Unit, data: Operands, seed: int, complement: bool, size: int, batch: int) -> Work:
    """So many products."""
    given = pair(data, size, size, seed, complement, "cpu", (batch,))
    left, right = operands_of(given, data, kind, unit)
    return Work(
        kind,
        unit,
        data,
        given,
        left,
        right,
        multiply(unit, kind, left, right),
        given.left.double() @ given.right.double(),
    )


def draw(most: int, done: Work, random: torch.Generator) -> Any:
    """A number below `most` for each product."""
    return torch.randint(most, (done.product.shape[0],), generator=random)


def bits_of(matrix: Any) -> Any:
    """A copy of a matrix as integers of its width."""
    return matrix.contiguous().view(AS_INTEGERS[matrix.element_size()]).clone()


def mask(bit: Any, like: Any) -> Any:
    """Integers with this bit set."""
    return (torch.ones_like(bit) << bit).to(like.dtype)


def flipped(matrix: Any, done: Work, random: torch.Generator, bits: int = 1) -> Any:
    """A matrix in each of whose products so many bits of one element are the other way."""
    integers = bits_of(matrix)
    every = torch.arange(integers.shape[0])
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
    """A bit of every so many columns is stuck at 1 in half of the products, at 0 in the others."""
    integers = bits_of(done.product)
    lane, bit = draw(min(period, SIZE), done, random), draw(8 * done.product.element_size(), done, random)
    columns = (torch.arange(SIZE) % period == lane.unsqueeze(-1)).unsqueeze(1)
    held = mask(bit, integers).reshape(-1, 1, 1)
    at_one = (torch.arange(len(lane)) % 2 == 0).reshape(-1, 1, 1)
    broken = torch.where(at_one, integers | held, integers & ~held)
    return torch.where(columns, broken, integers).view(done.product.dtype)


def exchanged(done: Work, random: torch.Generator, both: bool) -> Any:
    """A row comes in place of another: twice, or the two exchanged."""
    integers = bits_of(done.product)
    every = torch.arange(integers.shape[0])
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
    """A bit of the product that results are held against."""
    return flipped(done.integers, done, random)


def cancelling(done: Work, random: torch.Generator, in_columns: bool) -> Any:
    """Two elements of a row are wrong by as much, one up and one down; or four, so that columns agree as well."""
    broken = done.integers.clone()
    every = torch.arange(broken.shape[0])
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


def wrong_products(results: Any) -> Any:
    """In which products of a batch any element differs."""
    return results.flatten(1).any(1)


def expected(done: Work) -> Any:
    """What the products must be."""
    return due(done.integers, done.given, done.data, done.kind, done.product.dtype)


def inject(done: Work, name: str, random: torch.Generator) -> Counter[str]:
    """One fault in each product: how many reached a result, were found, and would be found by a tolerance."""
    if name in IN_REFERENCES:
        broken = IN_REFERENCES[name](done, random)
        rows, _ = disagreeing(done.given.left, done.given.right, broken, int(draw(1 << 30, done, random)[0]))
        reached, found = wrong_products(differing(broken, done.integers)), wrong_products(rows)
        close = wrong_products(~torch.isclose(broken, done.integers, rtol=TOLERANCE, atol=TOLERANCE))
    else:
        broken = IN_RESULTS[name](done, random)
        reached = wrong_products(differing(broken, done.product))
        found = wrong_products(differing(broken, expected(done)))
        both = broken.double(), done.product.double()
        close = wrong_products(~torch.isclose(*both, rtol=TOLERANCE, atol=TOLERANCE))
    return Counter(
        absorbed=int((~reached).sum()),
        faults=int(reached.sum()),
        found=int((found & reached).sum()),
        tolerance=int((close & reached).sum()),
    )


def kinds_here(text: str) -> tuple[list[tuple[Kind, Unit]], list[str]]:
    """The types that are multiplied here, and why others are not."""
    found, missing = [], []
    for kind in of_settings(text):
        try:
            found.append((kind, unit_of(kind, "cpu", SIZE)))
        except Unavailable as why:
            missing.append(f"{kind.name} was not multiplied: {why}")
    return found, missing


def clean(kinds: list[tuple[Kind, Unit]], products: int, seed: int) -> Counter[str]:
    """Products without a fault, and how many of them, or of what they are held against, are called wrong."""
    counts: Counter[str] = Counter()
    many = [(kind, unit) for kind, unit in kinds if kind.name not in ONE_BY_ONE]
    few = [(kind, unit) for kind, unit in kinds if kind.name in ONE_BY_ONE]
    rounds = 0
    while counts["clean"] < products:
        for kind, unit in many + (few if rounds % LESS == 0 else []):
            batch = CLEAN_BATCH if kind.name not in ONE_BY_ONE else CLEAN_BATCH // LESS
            sets = list(data_sets(kind, LONGEST))
            choose(unit)
            done = work(
                kind, unit, sets[rounds % len(sets)], seed + rounds, rounds // len(sets) % 2 == 1, CLEAN_SIZE, batch
            )
            rows, columns = disagreeing(done.given.left, done.given.right, done.integers, seed + rounds)
            wrong = wrong_products(differing(done.product, expected(done))) | rows.any(1) | columns.any(1)
            counts.update({"clean": len(wrong), "false": int(wrong.sum()), kind.name: len(wrong)})
        rounds += 1
    return counts


def main(text: str, faults: int, products: int, seed: int) -> None:
    """Print the tables, and the figures as one JSON object."""
    torch.set_num_threads(1)
    kinds, missing = kinds_here(text)
    print(*missing, sep="\n")
    names = (*IN_RESULTS, *IN_REFERENCES)
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    random = torch.Generator().manual_seed(seed)
    rounds = 0
    while sum(count["faults"] for count in found.values()) < faults:
        for kind, unit in kinds:
            choose(unit)
            for data in data_sets(kind, LONGEST):
                done = work(kind, unit, data, seed + rounds, rounds % 2 == 1, SIZE, BATCH)
                for name in names:
                    found[name] += inject(done, name, random)
        rounds += 1
    print("| fault | that changed a result | found | found by a tolerance of 1e-2 | absorbed |\n|---|---|---|---|---|")
    for name, count in found.items():
        shares = [f"{count[word] / max(1, count['faults']):.2%}" for word in ("found", "tolerance")]
        print(f"| {name} | {count['faults']:,} | {' | '.join(shares)} | {count['absorbed']:,} |")
    whole: Counter[str] = sum(found.values(), Counter())
    counted = clean(kinds, products, seed)
    print(", ".join(f"{count:,} clean of {name}" for name, count in counted.items() if name not in ("clean", "false")))
    figures = {"faults": whole["faults"], "found": whole["found"], "clean": counted["clean"], "false": counted["false"]}
    print(json.dumps({**figures, "absorbed": whole["absorbed"], "found_by_tolerance": whole["tolerance"]}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
