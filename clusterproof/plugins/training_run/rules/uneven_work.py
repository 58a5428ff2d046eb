"""Why the compute of ranks swings from step to step: their work, which some share, or their CPUs, which none does."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import log, sqrt
from statistics import fmean, median

from clusterproof.plugins.training_run.records import Place
from clusterproof.plugins.training_run.rules.stragglers import LEAST_PEERS, LEAST_STEPS, Computed, steady
from clusterproof.plugins.training_run.samples import CPU_PRESSURE, Samples

Effects = Mapping[int, Mapping[int, float]]  # by data-parallel rank and step: the logarithm of how many times as long


def common_to_stages(computed: Mapping[Place, Computed]) -> float | None:
    """Which share of the swing is common to ranks of different stages that have the same data-parallel rank.

    These share their work and neither CPU nor GPU: the share is the correlation of their compute over steps, each
    beside the median of its stage. None where there is one stage, or data-parallel ranks are unknown or few.
    """
    stages: dict[int, dict[int, list[Computed]]] = {}
    for place, seconds in computed.items():
        if place.replica is not None:
            stages.setdefault(place.stage, {}).setdefault(place.replica, []).append(seconds)
    effects = [_effects(replicas) for _, replicas in sorted(stages.items()) if len(replicas) >= LEAST_PEERS]
    count, both, one, other = 0, 0.0, 0.0, 0.0
    for early, late in pairwise(effects):
        for replica in early.keys() & late.keys():
            steps = early[replica].keys() & late[replica].keys()
            for first, second in _about_their_means(early[replica], late[replica], sorted(steps)):
                count, both, one, other = count + 1, both + first * second, one + first**2, other + second**2
    return both / sqrt(one * other) if count >= LEAST_STEPS and one * other > 0 else None


def _about_their_means(
    early: Mapping[int, float], late: Mapping[int, float], steps: list[int]
) -> list[tuple[float, float]]:
    if not steps:
        return []
    first, second = fmean(early[step] for step in steps), fmean(late[step] for step in steps)
    return [(early[step] - first, late[step] - second) for step in steps]


def _effects(replicas: Mapping[int, list[Computed]]) -> Effects:
    """Of each data-parallel rank of a stage, which may be several ranks, how it is beside the others."""
    found: dict[int, dict[int, float]] = {replica: {} for replica in replicas}
    steps = {step for ranks in replicas.values() for seconds in ranks for step in seconds}
    for step in steady(steps) if steps else ():
        own = {
            replica: median(data)
            for replica, ranks in replicas.items()
            if (data := [seconds[step] for seconds in ranks if seconds.get(step, 0.0) > 0])
        }
        if len(own) >= LEAST_PEERS:
            usual = median(own.values())
            for replica, seconds in own.items():
                found[replica][step] = log(seconds / usual)
    return found


def cpu_pressure(samples: Samples) -> float | None:
    """For how much of the time tasks wait for a CPU, in percent, on the node where that is most; None if unknown."""
    means = [fmean(one.mean for one in series.values()) for series in samples.of(CPU_PRESSURE).values() if series]
    return max(means, default=None)
