"""Exact products under PyTorch with injected faults; runs in a Python that has it.

The argument names the fault; the last line printed is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from clusterproof.plugins.evidence.exact.on_node import examine as examination
from clusterproof.plugins.evidence.exact.on_node import products
from clusterproof.plugins.evidence.exact.on_node.examine import examine
from clusterproof.plugins.evidence.exact.on_node.operands import Kind, of_settings
from clusterproof.plugins.evidence.exact.on_node.processes import forked
from clusterproof.plugins.evidence.exact.on_node.products import Unavailable, Unit, unit_of

SIZE, LONGEST, BUDGET_S = 64, 64, 0.2
KINDS = of_settings("float64:53:53,float32:24:24")
MOST = Kind("float32", 24, 40)


def altered(name: str, alter: Callable[[Any], None]) -> Callable[[Kind, Unit], Unit]:
    """Inject a fault into each product of a type."""

    def change(kind: Kind, unit: Unit) -> Unit:
        def multiply(left: Any, right: Any) -> Any:
            product = unit.multiply(left, right)
            alter(product)
            return product

        return unit._replace(multiply=multiply) if kind.name == name else unit

    return change


def stuck(product: Any) -> None:
    """Invert bit 22 of every 32nd column, always."""
    product.view(torch.int32)[:, 9::32] ^= 1 << 22


calls = [0]


def once(product: Any) -> None:
    """Flip one bit of one element of the third product."""
    calls[0] += 1
    if calls[0] == 3:
        product.view(torch.int64)[5, 11] ^= 1 << 40


class Operand:
    """An operand that changes in memory after the first product."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, kind: Kind, unit: Unit) -> Unit:
        """The float32 unit, whose left operand changes."""

        def multiply(left: Any, right: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                left[7, 3] += 1.0
            return unit.multiply(left, right)

        return unit._replace(multiply=multiply) if kind.name == "float32" else unit


def reports_of(
    kinds: list[Kind], change: Callable[[Kind, Unit], Unit] = lambda _, unit: unit, budget_s: float = BUDGET_S
) -> dict[str, Any]:
    """The reports by type, and why the process ended, unless it ended well."""
    (report,) = forked([lambda: examine("cpu", kinds, SIZE, LONGEST, budget_s, 1, change)], 600.0)
    types = {entry["type"]: entry for entry in report.get("types", [])}
    return {**types, "error": report["error"]} if "error" in report else types


class Lost:
    """A device with a stuck bit in float64 that falls off the bus when it multiplies float32."""

    def __call__(self, kind: Kind, unit: Unit) -> Unit:
        """The unit of a type."""

        def lose(_product: Any) -> None:
            raise RuntimeError("CUDA error: unspecified launch failure")

        def flip(product: Any) -> None:
            product.view(torch.int64)[5, 11] ^= 1 << 40

        return altered(kind.name, flip if kind.name == "float64" else lose)(kind, unit)


def comparing(compare: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """A device with this comparison, and correct products."""
    vars(examination)["differing"] = compare
    return reports_of(KINDS[:1])


def reference() -> dict[str, Any]:
    """A device with one wrong element in each float64 product that others are compared with."""
    right = torch.Tensor.__matmul__

    def wrong(first: Any, other: Any) -> Any:
        product = right(first, other)
        product[3, 4] += 1
        return product

    torch.Tensor.__matmul__ = wrong
    return reports_of(KINDS[1:])


def imagined(got: Any, expected: Any) -> Any:
    """Report one element as different that is not."""
    differs = products.differing(got, expected)
    differs[0, 0] = True
    return differs


def probed(multiply: Callable[[Any, Any], Any], kind: Kind = KINDS[1]) -> dict[str, Any]:
    """Whether a device with this multiplication is examined."""
    products._multiplications = lambda *_: [Unit(torch.float32, torch.float32, multiply)]
    return short_accumulator(kind)


def overflowing(left: Any, right: Any) -> Any:
    """Products accumulated in float16, in which the largest are infinite."""
    parts = left.unsqueeze(-1) * right
    most = torch.finfo(torch.float16).max
    up, down = parts.clamp(min=0).sum(-2), parts.clamp(max=0).sum(-2)
    return up.masked_fill(up > most, torch.inf) + down.masked_fill(down < -most, -torch.inf)


def short_accumulator(kind: Kind = MOST) -> dict[str, Any]:
    """A type that claims to accumulate in more bits than it does."""
    try:
        return {"unit": str(unit_of(kind, "cpu", SIZE))}
    except Unavailable as why:
        return {"why": str(why)}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "clean": lambda: reports_of(KINDS),
    "stuck": lambda: reports_of(KINDS, altered("float32", stuck)),
    "once": lambda: reports_of(KINDS, altered("float64", once)),
    "operand": lambda: reports_of(KINDS, Operand()),
    "lacking": lambda: reports_of([*KINDS, Kind("float8_e9m9", 4, 14)]),
    "short": short_accumulator,
    "lost": lambda: reports_of(KINDS, Lost()),
    "reference": reference,
    "blind": lambda: comparing(lambda got, _: torch.zeros_like(got, dtype=torch.bool)),
    "imagining": lambda: comparing(imagined),
    "nothing but zeros": lambda: probed(lambda left, right: torch.zeros(len(left), right.shape[1])),
    "infinite sums": lambda: probed(overflowing, Kind("float16", 11, 24)),
    "float32 as tfloat32": lambda: probed(torch.matmul, Kind("tfloat32", 11, 24)),
    "rounded operands": lambda: probed(lambda left, right: left.bfloat16().float() @ right.bfloat16().float()),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(CASES[sys.argv[1]]()))
