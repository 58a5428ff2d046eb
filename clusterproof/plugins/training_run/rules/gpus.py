"""GPUs of a run over time: growing memory, GPUs without samples, and GPUs that all only wait."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median, median_high

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.robust import spread
from clusterproof.plugins.training_run.samples import (
    CPU,
    DAYS_S,
    GPU,
    IDLE_PERCENT,
    LINK,
    MAX_PAUSE_S,
    MEMORY,
    MIN_S,
    NETWORK,
    POWER,
    TENSOR,
    GpuLost,
    InUse,
    Samples,
    Series,
    longest,
)

SETTLED_S = 600  # of a run until caches and allocators reach their size
MIN_GROWTH_S = 1800  # after that
MAX_POINTS = 128  # of a series between which slopes are computed
CERTAIN = 3.0  # multiple of its own scatter that the growth must exceed,
MIN_GROWTH = 0.2  # and this many points

Points = Sequence[tuple[float, float]]  # seconds, percent


@record
class Growth:
    """A GPU whose memory use grows: percent now, points an hour, and hours until it is full."""

    name: str
    percent: float
    points_an_hour: float
    hours_left: float

    @property
    def description(self) -> str:
        """`gpu001 gpu3 uses 80 % and 2.5 points more each hour: full in 8.0 h`."""
        more = f"{self.points_an_hour:.1f} points more each hour"
        return f"{self.name} uses {self.percent:.0f} % and {more}: full in {self.hours_left:.1f} h"


def peak(samples: Samples) -> float | None:
    """The maximum memory usage of any GPU, in percent; None if unknown."""
    every = [cell.mean for series in samples.of(MEMORY).values() for cell in series.values()]
    return max(every, default=None)


def observed_s(samples: Samples) -> dict[str, float]:
    """How long each GPU's memory was sampled after the first ten minutes."""
    return {name: _span_s(points) for name, points in _settled(samples)}


def growing(samples: Samples, least_s: float) -> list[Growth]:
    """The GPUs, sampled for so long, whose memory grows significantly, the soonest full first."""
    growths = (_growth(name, points) for name, points in _settled(samples) if _span_s(points) >= least_s)
    return sorted((growth for growth in growths if growth), key=lambda growth: growth.hours_left)


def _settled(samples: Samples) -> Iterator[tuple[str, Points]]:
    goes_on = InUse(samples)
    for (node, device), series in sorted(samples.of(MEMORY).items()):
        start, end = goes_on.begun(node) + SETTLED_S / samples.bin_s, goes_on.ended(node)
        yield (
            f"{node} {device}",
            [(at * samples.bin_s, cell.mean) for at, cell in sorted(series.items()) if start <= at <= end],
        )


def _span_s(points: Points) -> float:
    return points[-1][0] - points[0][0] if points else 0.0


def _growth(name: str, points: Points) -> Growth | None:
    """None if it does not grow, or no longer: a single jump does not count."""
    late = points[len(points) // 2 :]
    if len(late) < 2:
        return None
    slope, of_late = _slope(points), _slope(late)
    rise = of_late * (late[-1][0] - late[0][0])
    line = [percent - of_late * seconds for seconds, percent in late]
    if slope <= 0 or rise < max(MIN_GROWTH, CERTAIN * spread(line)):
        return None
    now = fmean(percent for _, percent in late[-max(1, len(late) // 20) :])
    per_s = min(slope, of_late)
    return Growth(name, now, 3600 * per_s, max(0.0, 100 - now) / per_s / 3600)


def _slope(points: Points) -> float:
    """Points per second by Theil and Sen: the median of all pairwise slopes."""
    step = max(1, len(points) // MAX_POINTS)
    pairs = combinations(points[::step], 2)
    return median((after[1] - before[1]) / (after[0] - before[0]) for before, after in pairs)


HIGH = 95  # percentile of the utilization of a GPU, its memory and its node's CPUs


@record
class UnderusedGpu:
    """A GPU with room: 95th percentiles of its use, its memory and its node's CPUs."""

    name: str
    use: float
    memory: float
    cpu: float


def unused_gpus(samples: Samples, below: float) -> list[UnderusedGpu] | None:
    """The GPUs for which all three are below so many percent; None if one of these was not sampled on any GPU."""
    memory, cpus, goes_on = samples.of(MEMORY), samples.of(CPU), InUse(samples)
    known = [
        UnderusedGpu(
            f"{node} {device}",
            *(_high(series, node, goes_on) for series in (use, memory[node, device], cpus[node, ""])),
        )
        for (node, device), use in sorted(samples.of(GPU).items())
        if (node, device) in memory and (node, "") in cpus
    ]
    return [gpu for gpu in known if max(gpu.use, gpu.memory, gpu.cpu) < below] if known else None


def _high(series: Series, node: str, goes_on: InUse) -> float:
    means = sorted(cell.mean for at, cell in series.items() if goes_on.at(node, at))
    return means[(len(means) - 1) * HIGH // 100] if means else 100.0


MIN_LOOKS = 3  # at the other GPUs of a node, and a minute, that one is missing


@record
class GpuWithoutSamples:
    """A GPU, or a node, without samples for so long while others had some; and since when (s)."""

    name: str
    time_s: float
    seconds: float


def ceased(samples: Samples) -> list[GpuWithoutSamples]:
    """The GPUs and nodes whose use is known only up to a time, the longest unknown first.

    If samples of most nodes end with the run, that is normal, and the others just continued.
    """
    nodes: dict[str, dict[str, Series]] = {}
    for (node, device), series in samples.of(GPU).items():
        nodes.setdefault(node, {})[device] = series
    gone = []
    for node, devices in nodes.items():
        looks = sorted({at for series in devices.values() for at in series})
        for device, series in devices.items():
            last = max(series)
            missed = len(looks) - bisect_right(looks, last)
            seconds = (looks[-1] - last) * samples.bin_s
            if missed >= MIN_LOOKS and seconds > MAX_PAUSE_S:
                gone.append(GpuWithoutSamples(f"{node} {device}", last * samples.bin_s, seconds))
    ended_at = {node: max(map(max, devices.values())) * samples.bin_s for node, devices in nodes.items()}
    dated = {node: end for node, end in ended_at.items() if end > DAYS_S}  # dmon's seconds restart with each file
    latest: float = max(dated.values(), default=0)
    if dated:
        used_s = (InUse(samples).ended(next(iter(dated))) + 1) * samples.bin_s
        latest = max(min(latest, used_s), median_high(dated.values()))
    gone += [GpuWithoutSamples(node, end, latest - end) for node, end in dated.items() if latest - end > MIN_S]
    return sorted(gone, key=lambda gpu: -gpu.seconds)


def back_s(samples: Samples, lost: GpuLost) -> float | None:
    """When a GPU has values again, or any of the node's if all were lost; None if never."""
    behind = (
        at * samples.bin_s
        for (_, node, device), series in samples.series.items()
        if node == lost.node and device and (device == lost.device or not lost.device)
        for at in series
        if at * samples.bin_s > lost.last_s
    )
    return min(behind, default=None)


SPINNING_PERCENT = 98.0  # the utilization that the driver reports for a waiting kernel
COMPUTES_PERCENT = 1.0  # share of the tensor cores' cycles below which nothing is computed

Every = Mapping[tuple[str, str], Series]


@record
class BusyWait:
    """The longest time in which all GPUs of a run only waited, the GPUs, and when it began (s since 1970)."""

    seconds: float
    gpus: tuple[str, ...]
    began: float


@record
class Bounds:
    """The power below which a GPU computes nothing (percent of its limit), and negligible traffic (MB/s)."""

    power_percent: float
    traffic: float


class HangEvidence:
    """The samples that show a hang, by metric."""

    def __init__(self, samples: Samples) -> None:
        self.bin_s = samples.bin_s
        self.use = samples.of(GPU)
        self.tensor, self.power = samples.of(TENSOR), samples.of(POWER)
        self.link, self.network = samples.of(LINK), samples.of(NETWORK)

    @property
    def missing(self) -> str:
        """What is missing of any GPU to decide, in words; empty if nothing."""
        if not self.use.keys() <= self.tensor.keys() | self.power.keys():
            return "how much the GPUs compute (GPM), or draw of their power limit"
        on_wires = {node for node, _ in self.network} if len({node for node, _ in self.use}) > 1 else set()
        if not all(key in self.link or key[0] in on_wires for key in self.use):
            return "what passes over NVLink (GPM), or between several nodes"
        return ""

    def spin(self, bounds: Bounds) -> BusyWait | None:
        """The longest time in which all GPUs in use only waited; None if there was none."""
        times = sorted({at for series in self.use.values() for at in series})
        span = longest(((at, self._all_wait(at, bounds)) for at in times), self.bin_s)
        if not span:
            return None
        seconds = (span[-1] - span[0] + 1) * self.bin_s
        return BusyWait(seconds, tuple(" ".join(key) for key in self._used(span[-1])), span[0] * self.bin_s)

    def _all_wait(self, at: int, bounds: Bounds) -> bool:
        used = list(self._used(at))
        return len(used) > 1 and all(self._waits(key, at, bounds) for key in used)

    def _used(self, at: int) -> Iterator[tuple[str, str]]:
        return (key for key, series in sorted(self.use.items()) if at in series and series[at].mean >= IDLE_PERCENT)

    def _waits(self, key: tuple[str, str], at: int, bounds: Bounds) -> bool:
        if self.use[key][at].mean < SPINNING_PERCENT:
            return False
        tensor, power = _at(self.tensor, key, at), _at(self.power, key, at)
        is_idle = (tensor or 0) < COMPUTES_PERCENT and (power or 0) < bounds.power_percent  # as far as each is known
        traffic = [_at(self.link, key, at), _at(self.network, (key[0], ""), at)]
        return (
            is_idle
            and (tensor, power) != (None, None)
            and all(rate is None or rate < bounds.traffic for rate in traffic)
        )


def _at(every: Every, key: tuple[str, str], at: int) -> float | None:
    cell = every.get(key, {}).get(at)
    return cell.mean if cell else None
