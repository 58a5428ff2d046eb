"""What happened beside the longest steps: which of their parts took longer than usual, and on which rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from statistics import median

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.run_data import RunData, Seconds
from clusterproof.plugins.training_run.steps import Timed

MAX_VALUES = 101  # of a part, that say what is usual
LEAST = 0.1  # of what a step is longer than usual, from which on a part is the cause


@record
class Part:
    """A part of a step that took so many seconds longer than usual, on the rank on which that was most."""

    name: str
    seconds: float
    rank: int


def beside(data: RunData, steps: Sequence[Timed], usual: float) -> list[tuple[Part, ...]]:
    """For each step the parts that explain a tenth or more of what it is too long, the most first."""
    found: list[list[Part]] = [[] for _ in steps]
    for (rank, name), cells in (*data.parts.items(), *data.compute.items()):
        if rank not in data.steps or not cells:
            continue
        middle = _middle(cells)
        for number, step in enumerate(steps):
            more = cells.get(step.step, (middle, 1))[0] - middle
            if more > LEAST * (step.seconds - usual) > 0:
                found[number].append(Part(name, more, rank))
    return [_worst_of_each(parts) for parts in found]


def _middle(cells: Seconds) -> float:
    """The median of some of them, evenly taken."""
    return median(mean for mean, _ in islice(cells.values(), 0, None, -(-len(cells) // MAX_VALUES)))


def _worst_of_each(parts: Sequence[Part]) -> tuple[Part, ...]:
    worst: dict[str, Part] = {}
    for part in parts:
        if part.name not in worst or part.seconds > worst[part.name].seconds:
            worst[part.name] = part
    return tuple(sorted(worst.values(), key=lambda part: -part.seconds))
