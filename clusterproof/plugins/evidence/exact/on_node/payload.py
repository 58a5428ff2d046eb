"""What each rank sends: integers that every rank can compute for every other rank, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from clusterproof.plugins.evidence.exact.on_node.products import AS_INTEGERS, differing

KEYS = 1 << 62
FACTORS = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB)  # odd, of 62 bits at most
SHIFTS = (30, 27, 31)
BITS = 64
UNWRITTEN = -1  # in a buffer before anything arrives
MAX_BITS = 8  # that are named
FEWEST = 2  # wrong elements that can say whose they are
MISSING, TWICE = "without that of rank", "counting twice that of rank"


class BlockError(NamedTuple):
    """How a block differs: where first, in which bits, and whose block it is instead, if that shows."""

    elements: int
    first: int
    how: str
    other: int | None
    bits: list[int]


def key_of(seed: int, number: int, sender: int, receiver: int = 0) -> int:
    """What the integers of one block are drawn with."""
    key = seed
    for part in (number, sender, receiver):
        key = (key * 1_000_003 + part + 1) % KEYS
    return key


def drawn(key: int, count: int, device: str) -> Any:
    """So many integers in which each of 64 bits is random, the same wherever they are drawn."""
    mixed = torch.arange(1, count + 1, dtype=torch.int64, device=device) * FACTORS[0] + key
    for shift, factor in zip(SHIFTS, FACTORS):
        mixed = (mixed ^ (mixed >> shift & ((1 << BITS - shift) - 1))) * factor
    return mixed ^ (mixed >> SHIFTS[0] & ((1 << BITS - SHIFTS[0]) - 1))


def block(key: int, count: int, device: str) -> Any:
    """What is copied: integers of 32 bits, each of them random; `count` is even."""
    return drawn(key, count // 2, device).view(torch.int32)


def summand(key: int, count: int, most: int, device: str) -> Any:
    """What is added up: integers of 1 to `most`, of either sign. None is 0, so that a missing one shows."""
    bits = drawn(key, count, device)
    return ((bits >> 8 & 0xFFFFFFFF) % most + 1) * (2 * (bits & 1) - 1)


def most_of(significand: int, ranks: int) -> int:
    """The largest integer of which so many have a sum that a type holds, in whatever order they are added; or 0."""
    return ((1 << significand) - (significand == 7)) // ranks  # 7 bits and a sign: int8, which ends at 127


def copied(got: Any, due: Any, instead: list[tuple[str, int, Any]]) -> BlockError | None:
    """How a block that was copied differs from what its sender sent; `instead` are others that may have come."""
    places = differing(got, due).nonzero().reshape(-1)
    if not len(places):
        return None
    came = got[places]
    if bool((came == UNWRITTEN).all()):
        return _block_error(got, due, places, "never written", None)
    alike = [(how, rank) for how, rank, other in instead if bool((came == other[places]).all())]
    return _block_error(got, due, places, *_only(alike, len(places)))


def summed(got: Any, due: Any, of: Callable[[int], Any], ranks: int) -> BlockError | None:
    """How a sum differs from that of all summands, and whose is missing or counted twice, if that shows."""
    due = due.to(got.dtype)
    places = differing(got, due).nonzero().reshape(-1)
    if not len(places):
        return None
    off = got[places].double() - due[places].double()
    found = []
    for rank in range(ranks):
        own = of(rank)[places].double()
        found += [(how, rank) for how, due_off in ((MISSING, -own), (TWICE, own)) if bool((off == due_off).all())]
    return _block_error(got, due, places, *_only(found, len(places)))


def _only(found: list[tuple[str, int]], elements: int) -> tuple[str, int | None]:
    """The one explanation that there is, where enough elements bear it out."""
    return found[0] if len(found) == 1 and elements >= FEWEST else ("", None)


def _block_error(got: Any, due: Any, places: Any, how: str, other: int | None) -> BlockError:
    first = int(places[0])
    kind = AS_INTEGERS[got.element_size()]
    off = int(got.view(kind)[first]) ^ int(due.view(kind)[first])
    bits = [bit for bit in range(8 * got.element_size()) if off >> bit & 1]
    return BlockError(len(places), first, how, other, bits[:MAX_BITS])
