"""GPU clocks: below those of other busy GPUs, and slowed down by hardware together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.samples import CAPPED, CLOCK, GPU, SLOWED, Samples, Series, longest, periods

BUSY_PERCENT = 90.0
MIN_CLOCKS = 4
MOSTLY_PERCENT = 50.0  # of the time that hardware slows a GPU down: above this it is no reference for others

Key = tuple[str, str]  # node, device


@record
class SlowClock:
    """A GPU that was slow for so long: its clock relative to its peers', and the share of time it was held down.

    Unsampled reasons are None; so is the ratio if there are too few peers.
    """

    name: str
    seconds: float
    share: float | None
    capped_percent: float | None
    slowed_percent: float | None


def most_peers(samples: Samples) -> int:
    """The maximum number of busy GPUs whose clocks were sampled at the same time as one of them."""
    return max((len(clocks) - 1 for clocks in _clocks(samples).values()), default=0)


def slowed_together(samples: Samples) -> list[SlowClock]:
    """Busy GPUs slowed down by hardware while too few others remain for comparison; longest first."""
    clocks, busy, slowed = _clocks(samples), samples.of(GPU), samples.of(SLOWED)
    mostly = {
        key: {at for at, held in series.items() if held.mean > MOSTLY_PERCENT and _is_busy(busy, key, at)}
        for key, series in slowed.items()
    }
    alone = {at: sum(at not in mostly.get(key, ()) for key in known) for at, known in clocks.items()}
    slowest = []
    for key, moments in mostly.items():
        seen = sorted(at for at in slowed[key] if _is_busy(busy, key, at))
        together = ((at, at in moments and (alone.get(at, 0) < MIN_CLOCKS or key not in clocks[at])) for at in seen)
        if times := longest(together, samples.bin_s):
            seconds = (times[-1] - times[0] + 1) * samples.bin_s
            slowest.append(SlowClock(" ".join(key), seconds, None, None, _percent(slowed[key], times)))
    return sorted(slowest, key=lambda clock: -clock.seconds)


def _is_busy(busy: Mapping[Key, Series], key: Key, at: int) -> bool:
    use = busy.get(key, {}).get(at)
    return use is not None and use.mean > BUSY_PERCENT


def slow_clocks(samples: Samples, below: float) -> list[SlowClock]:
    """GPUs below that share of their peers' clock, with reasons or without all being sampled; longest first.

    Each time is one of its own: a long one at the power cap hides no shorter one that hardware caused.
    """
    shares: dict[Key, dict[int, float]] = {}
    for at, clocks in sorted(_clocks(samples).items()):
        middle = median(clocks.values())
        for key, clock in clocks.items() if len(clocks) > MIN_CLOCKS else ():
            shares.setdefault(key, {})[at] = clock / middle
    capped, slowed = samples.of(CAPPED), samples.of(SLOWED)
    slowest = []
    for key, of_gpu in shares.items():
        held = [counter.get(key, {}) for counter in (capped, slowed)]
        is_slow = (
            (at, share < below and (not all(at in counter for counter in held) or _is_held(held, at)))
            for at, share in of_gpu.items()
        )
        for times in periods(is_slow, samples.bin_s):
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
    """By time, the clocks of the GPUs that are busy then."""
    clocks: dict[int, dict[Key, float]] = {}
    busy = samples.of(GPU)
    for key, series in samples.of(CLOCK).items():
        for at, clock in series.items():
            if _is_busy(busy, key, at):
                clocks.setdefault(at, {})[key] = clock.mean
    return clocks
