"""The work of steps, as `512x4096`: which steps are comparable, whether it grows, and whether it is uneven by rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log, prod, sqrt
from statistics import fmean, median

from clusterproof.plugins.training_run import Position
from clusterproof.plugins.training_run.rules.stragglers import MIN_PEERS, MIN_STEPS, Computed, steady
from clusterproof.plugins.training_run.samples import CPU_PRESSURE, Samples

Effects = Mapping[int, Mapping[int, float]]  # by data-parallel rank and step: the logarithm of the ratio to others
WITHIN = 1.2  # largest ratio of comparable sizes
GROWTH = 1.1  # ratio in the later half of steps, which may make them longer by as much as run.step_drift allows


def size(work: str) -> int:
    """The product of its numbers: tokens, for a batch of sequences."""
    return prod(int(number) for number in work.split("x") if number.isdecimal())


def nearest(works: Iterable[str]) -> Mapping[str, str]:
    """For each size, the smallest one with which it is evaluated."""
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


def common_to_stages(computed: Mapping[Position, Computed]) -> float | None:
    """The share of the variation that is common to ranks of different stages with the same data-parallel rank.

    These share their work, but no CPU or GPU: the share is the correlation of their compute over steps, each
    relative to the median of its stage. None for one stage, or if data-parallel ranks are unknown or few.
    """
    stages: dict[int, dict[int, list[Computed]]] = {}
    for position, seconds in computed.items():
        if position.replica is not None:
            stages.setdefault(position.stage, {}).setdefault(position.replica, []).append(seconds)
    effects = [_effects(replicas) for _, replicas in sorted(stages.items()) if len(replicas) >= MIN_PEERS]
    count, both, of_early, of_late = 0, 0.0, 0.0, 0.0
    for early, late in pairwise(effects):
        for replica in early.keys() & late.keys():
            steps = early[replica].keys() & late[replica].keys()
            for first, second in _about_their_means(early[replica], late[replica], sorted(steps)):
                count, both = count + 1, both + first * second
                of_early, of_late = of_early + first**2, of_late + second**2
    return both / sqrt(of_early * of_late) if count >= MIN_STEPS and of_early * of_late > 0 else None


def _about_their_means(
    early: Mapping[int, float], late: Mapping[int, float], steps: list[int]
) -> list[tuple[float, float]]:
    if not steps:
        return []
    first, second = fmean(early[step] for step in steps), fmean(late[step] for step in steps)
    return [(early[step] - first, late[step] - second) for step in steps]


def _effects(replicas: Mapping[int, list[Computed]]) -> Effects:
    """The effect of each data-parallel rank of a stage, which may be several ranks, relative to the others."""
    effects: dict[int, dict[int, float]] = {replica: {} for replica in replicas}
    steps = {step for ranks in replicas.values() for seconds in ranks for step in seconds}
    for step in steady(steps) if steps else ():
        own = {
            replica: median(lasted)
            for replica, ranks in replicas.items()
            if (lasted := [seconds[step] for seconds in ranks if seconds.get(step, 0.0) > 0])
        }
        if len(own) >= MIN_PEERS:
            middle = median(own.values())
            for replica, seconds in own.items():
                effects[replica][step] = log(seconds / middle)
    return effects


def cpu_pressure(samples: Samples) -> float | None:
    """The highest share of time, over all nodes, in which tasks wait for a CPU, in percent; None if unknown."""
    means = [fmean(cell.mean for cell in series.values()) for series in samples.of(CPU_PRESSURE).values() if series]
    return max(means, default=None)
