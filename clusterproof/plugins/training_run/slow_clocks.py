"""GPUs whose clocks are lower than those of others that work as hard, and what holds them down."""

from __future__ import annotations

from statistics import fmean, median

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.samples import CAPPED, CLOCK, GPU, SLOWED, Samples, Series, longest

BUSY_PERCENT = 90.0
LEAST_PEERS = 4

Key = tuple[str, str]  # node, device


@record
class SlowClock:
    """A GPU that was slow for so long: its clock as a share of its peers', and of the time how long it was held."""

    name: str
    seconds: float
    share: float
    capped_percent: float
    slowed_percent: float


def most_peers(samples: Samples) -> int:
    """How many busy GPUs at most had their clocks sampled at once, beside one of them."""
    return max((len(clocks) - 1 for clocks in _clocks(samples).values()), default=0)


def slow_clocks(samples: Samples, below: float) -> list[SlowClock]:
    """GPUs below that share of their peers' clock while something holds them down, the longest first."""
    shares: dict[Key, dict[int, float]] = {}
    for at, clocks in sorted(_clocks(samples).items()):
        usual = median(clocks.values())
        for key, clock in clocks.items() if len(clocks) > LEAST_PEERS else ():
            shares.setdefault(key, {})[at] = clock / usual
    capped, slowed = samples.of(CAPPED), samples.of(SLOWED)
    found = []
    for key, of_gpu in shares.items():
        held = (capped.get(key, {}), slowed.get(key, {}))
        is_slow = ((at, share < below and any(_mean(one, [at]) > 0 for one in held)) for at, share in of_gpu.items())
        times = longest(is_slow, samples.bin_s)
        if times:
            seconds = (times[-1] - times[0] + 1) * samples.bin_s
            share = fmean(of_gpu[at] for at in times)
            found.append(SlowClock(" ".join(key), seconds, share, *(_mean(one, times) for one in held)))
    return sorted(found, key=lambda one: -one.seconds)


def _mean(series: Series, times: list[int]) -> float:
    return fmean(series[at].mean if at in series else 0.0 for at in times)


def _clocks(samples: Samples) -> dict[int, dict[Key, float]]:
    """By time the clocks of the GPUs that are busy then."""
    found: dict[int, dict[Key, float]] = {}
    busy = samples.of(GPU)
    for key, series in samples.of(CLOCK).items():
        for at, clock in series.items():
            use = busy.get(key, {}).get(at)
            if use and use.mean > BUSY_PERCENT:
                found.setdefault(at, {})[key] = clock.mean
    return found
