"""What each rank sends and must receive: integers that every rank can compute for every other, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from clusterproof.plugins.evidence.exact.on_node.locations import MAX_BITS
from clusterproof.plugins.evidence.exact.on_node.products import AS_INTEGERS, differing

KEYS = 1 << 62
FACTORS = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB)  # odd, at most 62 bits
SHIFTS = (30, 27, 31)
BITS = 64
UNWRITTEN = -1  # in a buffer before anything arrives
FEWEST = 2  # wrong elements needed to determine their source
MISSING, TWICE = "without that of rank", "counting twice that of rank"


class BlockError(NamedTuple):
    """How a block differs: first position, bits, and whose data it is, if known."""

    elements: int
    first: int
    how: str
    other: int | None
    bits: list[int]


def key_of(seed: int, number: int, sender: int, receiver: int = 0) -> int:
    """The key for drawing one block's integers."""
    key = seed
    for part in (number, sender, receiver):
        key = (key * 1_000_003 + part + 1) % KEYS
    return key


def drawn(key: int, count: int, device: str) -> Any:
    """So many random 64-bit integers, the same wherever they are drawn."""
    mixed = torch.arange(1, count + 1, dtype=torch.int64, device=device) * FACTORS[0] + key
    for shift, factor in zip(SHIFTS, FACTORS):
        mixed = (mixed ^ (mixed >> shift & ((1 << BITS - shift) - 1))) * factor
    return mixed ^ (mixed >> SHIFTS[0] & ((1 << BITS - SHIFTS[0]) - 1))


def block(key: int, count: int, device: str) -> Any:
    """A block to copy: random 32-bit integers; `count` is even."""
    return drawn(key, count // 2, device).view(torch.int32)


def summand(key: int, count: int, most: int, device: str) -> Any:
    """A summand: integers from 1 to `most`, of either sign, without 0, so that a missing one shows."""
    bits = drawn(key, count, device)
    return ((bits >> 8 & 0xFFFFFFFF) % most + 1) * (2 * (bits & 1) - 1)


def most_of(significand: int, ranks: int) -> int:
    """The largest integer for which a type can hold the sum of so many, in any order; or 0."""
    return ((1 << significand) - (significand == 7)) // ranks  # 7 bits and a sign: int8, with maximum 127


def copied(got: Any, due: Any, instead: list[tuple[str, int, Any]]) -> BlockError | None:
    """How a copied block differs from what was sent; `instead` are other blocks that may have arrived."""
    places = differing(got, due).nonzero().reshape(-1)
    if not len(places):
        return None
    came = got[places]
    if bool((came == UNWRITTEN).all()):
        return _block_error(got, due, places, "never written", None)
    matching = [(how, rank) for how, rank, other in instead if bool((came == other[places]).all())]
    return _block_error(got, due, places, *_only(matching, len(places)))


def summed(got: Any, due: Any, of: Callable[[int], Any], ranks: int) -> BlockError | None:
    """How a sum differs from the correct one, and whose summand is missing or counted twice, if known."""
    due = due.to(got.dtype)
    places = differing(got, due).nonzero().reshape(-1)
    if not len(places):
        return None
    off = got[places].double() - due[places].double()
    causes = []
    for rank in range(ranks):
        own = of(rank)[places].double()
        causes += [(how, rank) for how, due_off in ((MISSING, -own), (TWICE, own)) if bool((off == due_off).all())]
    return _block_error(got, due, places, *_only(causes, len(places)))


def _only(causes: list[tuple[str, int]], elements: int) -> tuple[str, int | None]:
    """The only explanation, if enough elements support it."""
    return causes[0] if len(causes) == 1 and elements >= FEWEST else ("", None)


def _block_error(got: Any, due: Any, places: Any, how: str, other: int | None) -> BlockError:
    first = int(places[0])
    kind = AS_INTEGERS[got.element_size()]
    off = int(got.view(kind)[first]) ^ int(due.view(kind)[first])
    bits = [bit for bit in range(8 * got.element_size()) if off >> bit & 1]
    return BlockError(len(places), first, how, other, bits[:MAX_BITS])
