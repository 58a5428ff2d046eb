"""Tests one GPU or core for some time: products of every type, compared to the last bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from clusterproof.plugins.evidence.exact.on_node import locations
from clusterproof.plugins.evidence.exact.on_node.locations import WrongElement
from clusterproof.plugins.evidence.exact.on_node.operands import Kind, Operands, data_sets
from clusterproof.plugins.evidence.exact.on_node.products import (
    AS_INTEGERS,
    Factors,
    Unavailable,
    Unit,
    choose,
    differing,
    disagreeing,
    draw_factors,
    due,
    exact_row,
    missing_of_gpu,
    operands_of,
    unit_of,
    wrong_elements,
)

BATCH = 4  # products between two checks for wrong elements
BURST_S = 0.5  # maximum for a data set of a type, before the next one's turn
AGAIN = 8  # repetitions of a product with wrong elements
REMADE = 2  # repetitions of the float64 reference
MAX_WRONG = 8  # products of a type that are described
MAX_ELEMENTS = 4096  # of a product that are examined
MAX_ROWS = 64  # recomputed with integers alone
COMPARISON = "the comparison of results"  # if no element is wrong, or the wrong ones are not detected
SAMPLED = 4096  # elements sampled to count which bits were set


class Tally:
    """Statistics of one type: how much was multiplied, which operand bits were 0 and 1, what was wrong."""

    def __init__(self, kind: Kind, unit: Unit) -> None:
        self.kind, self.unit = kind, unit
        self.products, self.operations, self.wrong_products = 0, 0.0, 0
        self.result = ""
        self.sets: dict[str, int] = {}
        self.bits: dict[str, list[int]] = {}
        self.wrong: list[dict[str, Any]] = []

    def toggle(self, side: str, matrix: Any) -> None:
        """Record the bits in some elements of an operand."""
        width = 8 * matrix.element_size()
        ones, zeros, _ = self.bits.get(side, [0, 0, 0])
        for value in matrix.view(AS_INTEGERS[matrix.element_size()]).reshape(-1)[:SAMPLED].tolist():
            ones, zeros = ones | value, zeros | ~value
        mask = (1 << width) - 1
        self.bits[side] = [ones & mask, zeros & mask, width]

    def note(self, wrong: dict[str, Any]) -> None:
        """Record a wrong product; the first ones are described."""
        self.wrong_products += 1
        self.wrong += [wrong] if len(self.wrong) < MAX_WRONG else []

    def as_reported(self) -> dict[str, Any]:
        """The statistics as a JSON object."""
        toggled = {side: [bin(ones & zeros).count("1"), width] for side, (ones, zeros, width) in self.bits.items()}
        return {
            "type": self.kind.name,
            "result": self.result,
            "products": self.products,
            "operations": self.operations,
            "sets": self.sets,
            "toggled": toggled,
            "wrong_products": self.wrong_products,
            "wrong": self.wrong,
        }


def examine(
    device: str, kinds: list[Kind], size: int, longest: int, budget_s: float, seed: int,
    change: Callable[[Kind, Unit], Unit] = lambda _, unit: unit,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Multiply for so many seconds, but each data set of each type at least once; `change` lets a test inject faults.

    Matrices have `size` rows and columns, and sums at most `longest` terms. Yields all results whenever something was
    wrong, because the device may fail next, and at the end.
    """
    began = time.monotonic()
    tallies, others = _begun(kinds, device, size, change)
    turns = [(tally, operands) for tally in tallies for operands in data_sets(tally.kind, longest)]
    turns_of_round = [(*turn, complement) for complement in (False, True) for turn in turns]
    burst_s = min(BURST_S, 0.8 * budget_s / max(1, len(turns_of_round)))
    rounds, reported = 0, 0

    def report() -> dict[str, Any]:
        seconds = round(time.monotonic() - began, 1)
        types = [*(tally.as_reported() for tally in tallies), *others]
        return {"seconds": seconds, "rounds": rounds, "size": size, "types": types}

    while turns and (not rounds or time.monotonic() - began < budget_s):
        for tally, operands, complement in turns_of_round:
            if rounds and time.monotonic() - began >= budget_s:
                break
            _turn(tally, operands, device, size, seed + rounds, complement, burst_s)
            wrong = sum(tally.wrong_products for tally in tallies)
            if wrong > reported:
                reported = wrong
                yield report()
        else:
            rounds += 1
    yield report()


def _begun(
    kinds: list[Kind], device: str, size: int, change: Callable[[Kind, Unit], Unit]
) -> tuple[list[Tally], list[dict[str, Any]]]:
    """The types that are multiplied here, and why others are not."""
    tallies: list[Tally] = []
    others: list[dict[str, Any]] = []
    for kind in kinds:
        missing = missing_of_gpu(kind, device)
        try:
            if missing:
                others.append({"type": kind.name, "has_none": missing})
            else:
                tallies.append(Tally(kind, change(kind, unit_of(kind, device, size))))
        except Unavailable as why:
            others.append({"type": kind.name, "why": str(why)})
    return tallies, others


def _turn(
    tally: Tally, operands: Operands, device: str, size: int, seed: int, complement: bool, burst_s: float
) -> None:
    """One data set of one type: computes its reference, and products for the duration of a burst."""
    factors = draw_factors(operands, size, size, seed, complement, device)
    name = f"{operands.name}{', complement' if complement else ''}"
    choose(tally.unit)
    integers = _verified(factors, tally, name, seed)
    left, right = operands_of(factors, operands, tally.kind, tally.unit)
    tally.toggle("left", left)
    tally.toggle("right", right)
    if integers is None:
        return
    first = tally.unit.multiply(left, right)
    tally.result = str(first.dtype).replace("torch.", "")
    expected = due(integers, factors, operands, tally.kind, first.dtype)
    if not _sees_differences(expected):
        tally.note({"set": name, **locations.to_report([], COMPARISON)})
    tally.sets[name] = tally.sets.get(name, 0) + 1
    until = time.monotonic() + burst_s
    pending = [first]
    while True:
        counts = torch.stack([differing(product, expected).sum() for product in pending]).tolist()
        tally.products += len(counts)
        tally.operations += 2.0 * size * size * operands.terms * len(counts)
        for product, count in zip(pending, counts):
            if count:
                changed = any(
                    differing(now, before).any().item()
                    for now, before in zip((left, right), operands_of(factors, operands, tally.kind, tally.unit))
                )
                again = [tally.unit.multiply(left, right) for _ in range(AGAIN)]
                _note(tally, name, int(count), product, expected, again, changed)
        if time.monotonic() >= until:
            return
        pending = [tally.unit.multiply(left, right) for _ in range(BATCH)]


def _sees_differences(expected: Any) -> bool:
    """Whether the device's comparison finds one injected wrong element in each row and column."""
    altered, places = expected.clone(), torch.arange(len(expected), device=expected.device)
    altered.view(AS_INTEGERS[altered.element_size()])[places, places] ^= 1
    return bool(differing(altered, expected).sum().item() == len(expected))


def _note(tally: Tally, name: str, count: int, product: Any, expected: Any, again: list[Any], changed: bool) -> None:
    elements = wrong_elements(product, expected, MAX_ELEMENTS) if len(tally.wrong) < MAX_WRONG else []
    wrong = sum(bool(differing(repeated, expected).any().item()) for repeated in again)
    is_same = all(not differing(repeated, product).any().item() for repeated in again)
    mistake = {"set": name, "elements": count, "again": wrong, "of": len(again), "alike": is_same}
    tally.note({**mistake, "operands_changed": changed, **locations.to_report(elements, COMPARISON)})


def _verified(factors: Factors, tally: Tally, name: str, seed: int) -> Any:
    """The product of the integers in float64, once both checksums hold; None if that fails.

    Doubtful rows are recomputed with integers alone, and their errors recorded.
    """
    left, right = factors.left, factors.right
    product = left.double() @ right.double()
    rows, columns = disagreeing(left, right, product, seed)
    doubtful = rows.nonzero().reshape(-1).tolist()
    if not doubtful and not columns.any().item():
        return product
    first = product.clone()
    elements: list[WrongElement] = []
    for row in doubtful[:MAX_ROWS]:
        expected = exact_row(left, right, row)
        for element in wrong_elements(product[row].unsqueeze(0), expected.unsqueeze(0), MAX_ELEMENTS):
            elements.append(element._replace(row=row))
        product[row] = expected
    report = locations.to_report(elements, "the checksums themselves")
    again = [bool(differing(left.double() @ right.double(), first).any().item()) for _ in range(REMADE)]
    repeated = {"again": sum(not other for other in again), "of": len(again), "alike": not any(again)}
    tally.note({"set": f"float64 for {name}", "elements": len(elements), **repeated, **report})
    rows, columns = disagreeing(left, right, product, seed + 1)
    return None if rows.any().item() or columns.any().item() else product
