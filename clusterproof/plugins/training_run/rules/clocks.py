"""Clocks of GPUs: those below the clocks of others that are as busy, and those that hardware slows down together."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.samples import CAPPED, CLOCK, GPU, SLOWED, Samples, Series, longest

BUSY_PERCENT = 90.0
LEAST_CLOCKS = 4
MOSTLY_PERCENT = 50.0  # of a moment in which hardware slows a GPU down: then it is nothing to compare others with

Key = tuple[str, str]  # node, device


@record
class SlowClock:
    """A GPU that was slow for so long: its clock as a share of its peers', and of the time how long it was held.

    The latter are None where that was not sampled; so is the share of one that too few others can be compared with.
    """

    name: str
    seconds: float
    share: float | None
    capped_percent: float | None
    slowed_percent: float | None


def most_peers(samples: Samples) -> int:
    """How many busy GPUs at most had their clocks sampled at once, beside one of them."""
    return max((len(clocks) - 1 for clocks in _clocks(samples).values()), default=0)


def slowed_together(samples: Samples) -> list[SlowClock]:
    """Busy GPUs that hardware slows down while it leaves too few others alone to compare with; longest first."""
    slowed = samples.of(SLOWED)
    moments: dict[int, dict[Key, bool]] = {}
    for key, series in samples.of(GPU).items():
        for at, use in series.items():
            if use.mean > BUSY_PERCENT and (held := slowed.get(key, {}).get(at)):
                moments.setdefault(at, {})[key] = held.mean > MOSTLY_PERCENT
    together: dict[Key, list[tuple[int, bool]]] = {}
    for at, gpus in sorted(moments.items()):
        are_many = list(gpus.values()).count(False) < LEAST_CLOCKS
        for key, is_slowed in gpus.items():
            together.setdefault(key, []).append((at, is_slowed and are_many))
    slowest = []
    for key, held_at in together.items():
        if times := longest(held_at, samples.bin_s):
            seconds = (times[-1] - times[0] + 1) * samples.bin_s
            slowest.append(SlowClock(" ".join(key), seconds, None, None, _percent(slowed[key], times)))
    return sorted(slowest, key=lambda clock: -clock.seconds)


def slow_clocks(samples: Samples, below: float) -> list[SlowClock]:
    """GPUs below that share of their peers' clock, held down or not all that may do it was sampled; longest first."""
    shares: dict[Key, dict[int, float]] = {}
    for at, clocks in sorted(_clocks(samples).items()):
        middle = median(clocks.values())
        for key, clock in clocks.items() if len(clocks) > LEAST_CLOCKS else ():
            shares.setdefault(key, {})[at] = clock / middle
    capped, slowed = samples.of(CAPPED), samples.of(SLOWED)
    slowest = []
    for key, of_gpu in shares.items():
        held = [counter.get(key, {}) for counter in (capped, slowed)]
        is_slow = (
            (at, share < below and (not all(at in counter for counter in held) or _is_held(held, at)))
            for at, share in of_gpu.items()
        )
        times = longest(is_slow, samples.bin_s)
        if times:
            seconds = (times[-1] - times[0] + 1) * samples.bin_s
            share = fmean(of_gpu[at] for at in times)
            slowest.append(SlowClock(" ".join(key), seconds, share, *(_percent(counter, times) for counter in held)))
    return sorted(slowest, key=lambda clock: -clock.seconds)


def _is_held(held: Sequence[Series], at: int) -> bool:
    return any(counter[at].mean > 0 for counter in held if at in counter)


def _percent(counter: Series, times: Sequence[int]) -> float | None:
    seen = [counter[at].mean for at in times if at in counter]
    return sum(seen) / len(times) if seen else None


def _clocks(samples: Samples) -> dict[int, dict[Key, float]]:
    """By time the clocks of the GPUs that are busy then."""
    clocks: dict[int, dict[Key, float]] = {}
    busy = samples.of(GPU)
    for key, series in samples.of(CLOCK).items():
        for at, clock in series.items():
            use = busy.get(key, {}).get(at)
            if use and use.mean > BUSY_PERCENT:
                clocks.setdefault(at, {})[key] = clock.mean
    return clocks
