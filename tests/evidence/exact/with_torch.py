"""Exact products under PyTorch, with the faults that a test puts into them: runs in a Python that has it.

The word says which; the last line that it prints is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from clusterproof.plugins.evidence.exact.on_node.examine import examine
from clusterproof.plugins.evidence.exact.on_node.operands import Kind, of_settings
from clusterproof.plugins.evidence.exact.on_node.products import Unavailable, Unit, unit_of

SIZE, LONGEST, BUDGET_S = 64, 64, 0.2
KINDS = of_settings("float64:53:53,float32:24:24")


def altered(name: str, alter: Callable[[Any], None]) -> Callable[[Kind, Unit], Unit]:
    """What puts a fault into each product of a type."""

    def change(kind: Kind, unit: Unit) -> Unit:
        def multiply(left: Any, right: Any) -> Any:
            product = unit.multiply(left, right)
            alter(product)
            return product

        return unit._replace(multiply=multiply) if kind.name == name else unit

    return change


def stuck(product: Any) -> None:
    """Bit 22 of every 32nd column is always the other way."""
    product.view(torch.int32)[:, 9::32] ^= 1 << 22


calls = [0]


def once(product: Any) -> None:
    """One bit of one element of the third product flips."""
    calls[0] += 1
    if calls[0] == 3:
        product.view(torch.int64)[5, 11] ^= 1 << 40


class Operand:
    """An operand that changes in memory after the first product."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, kind: Kind, unit: Unit) -> Unit:
        """The unit of float32, whose left operand changes."""

        def multiply(left: Any, right: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                left[7, 3] += 1.0
            return unit.multiply(left, right)

        return unit._replace(multiply=multiply) if kind.name == "float32" else unit


def told(kinds: list[Kind], change: Callable[[Kind, Unit], Unit] = lambda _, unit: unit) -> dict[str, Any]:
    """What the types say, by type."""
    found = examine("cpu", kinds, SIZE, LONGEST, BUDGET_S, 1, change)
    return {one["type"]: one for one in found["types"]}


def short_accumulator() -> dict[str, Any]:
    """A type that is said to add up in more bits than it does."""
    try:
        return {"unit": str(unit_of(Kind("float32", 24, 40), "cpu", SIZE))}
    except Unavailable as why:
        return {"why": str(why)}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "clean": lambda: told(KINDS),
    "stuck": lambda: told(KINDS, altered("float32", stuck)),
    "once": lambda: told(KINDS, altered("float64", once)),
    "operand": lambda: told(KINDS, Operand()),
    "lacking": lambda: told([*KINDS, Kind("float8_e9m9", 4, 14)]),
    "short": short_accumulator,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(CASES[sys.argv[1]]()))
