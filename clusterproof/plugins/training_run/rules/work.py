"""The size of steps' work, such as `512x4096`: which sizes are judged together, and whether it grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from statistics import fmean

WITHIN = 1.2  # maximum ratio
GROWTH = 1.1  # ratio of the later half of steps: it may make them longer by as much as run.step_drift allows


def size(work: str) -> int:
    """The product of its numbers: tokens, for a batch of sequences."""
    return prod(int(number) for number in work.split("x") if number.isdecimal())


def nearest(works: Iterable[str]) -> Mapping[str, str]:
    """For each size the smallest one that it is judged with."""
    references: dict[str, str] = {}
    smallest = ""
    for work in sorted(set(works), key=size):
        if not references or size(work) > WITHIN * size(smallest):
            smallest = work
        references[work] = smallest
    return references


def grows(works: Sequence[str]) -> bool:
    """Whether the later half of steps is larger."""
    sizes = [size(work) for work in works]
    middle = len(sizes) // 2
    return middle > 0 and fmean(sizes[middle:]) > GROWTH * fmean(sizes[:middle])
