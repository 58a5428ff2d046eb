"""GPU and CPU samples, stored as means of a few seconds each, so that all time has equal weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median, median_high

from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.training_run import RunError

GPU, CPU, IO_WAIT = "gpu", "cpu", "io wait"  # in percent, like all without another unit
CPU_PRESSURE, IO_PRESSURE = "cpu pressure", "io pressure"  # share of time in which tasks wait for it (PSI)
MEMORY, TENSOR, POWER = "memory", "tensor cores", "power"  # of a GPU: relative to its total, to its limit
CAPPED, SLOWED = "power cap", "hardware slowdown"  # share of time in which that holds a GPU's clocks down
CLOCK = "clock"  # MHz, of a GPU's SMs
LINK, NETWORK = "nvlink", "network"  # MB/s both ways: of a GPU, of a node
HOST_MEMORY = "memory of the node"  # relative to its total
NETWORK_BYTES = "network (SageMaker)"  # bytes, for which its profiler gives no period
MAX_VALUE = dict.fromkeys((GPU, CPU, IO_WAIT, CPU_PRESSURE, IO_PRESSURE, HOST_MEMORY, TENSOR, CAPPED, SLOWED), 100.0)
MAX_VALUE |= {MEMORY: 100.5, POWER: 400.0, CLOCK: 10_000.0}  # the power limit is exceeded for moments
BIN_S = 5  # doubled when there are too many bins
LONGEST_BIN_S = 86_400
MAX_BINS = 2_000_000  # some 250 MB
MAX_LOST = 10_000
IDLE_PERCENT = 10.0  # below it a GPU is waiting
BEGUN_S = 60  # of use by GPUs until a run counts as begun
MIN_SAMPLES, MIN_S = 30, 300
TAIL_SHARE = 0.1  # of all samples: stopping them by hand takes minutes, a stalled job hours
DAYS_S = 1e8  # below this, a time is not relative to 1970
MAX_PAUSE_S = 60.0  # between two observations


@record
class Sample:
    """One sample: percent, or the metric's unit, at a time in seconds; `device` is a GPU, empty for the node."""

    node: str
    metric: str
    device: str
    time_s: float
    percent: float


@record
class GpuLost:
    """A GPU that a tool reports as unreadable at a time: `GPU is lost`; no `device`: all GPUs.

    `until_s` is when it was last reported, if later.
    `is_gone` is False if only a value, or the driver, may be unreadable, rather than a GPU lost.
    """

    node: str
    device: str
    time_s: float
    words: str
    is_gone: bool = True
    until_s: float = 0.0

    @property
    def last_s(self) -> float:
        """When it was last reported."""
        return max(self.time_s, self.until_s)


@dataclass(slots=True)
class Bin:
    """The samples of a few seconds."""

    total: float = 0.0
    count: int = 0
    idle: int = 0

    @property
    def mean(self) -> float:
        """Their mean, in percent."""
        return self.total / self.count


Series = dict[int, Bin]  # by time, in bins since 1970


@dataclass
class Samples:
    """All samples, by metric, node and device. Bins, in seconds, become longer with the duration."""

    series: dict[tuple[str, str, str], Series] = field(default_factory=dict)
    bins: int = 0
    bin_s: int = BIN_S
    lost: dict[tuple[str, str, str], GpuLost] = field(default_factory=dict)  # by node, device and words: when first

    def lose(self, gpu: GpuLost) -> None:
        """Add a lost GPU."""
        key = gpu.node, gpu.device, gpu.words
        known = self.lost.get(key)
        if known:
            first = known if known.time_s <= gpu.time_s else gpu
            self.lost[key] = replace(first, until_s=max(known.last_s, gpu.last_s))
        elif len(self.lost) < MAX_LOST:
            self.lost[key] = gpu

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        series = self.series.setdefault((sample.metric, sample.node, sample.device), {})
        at = int(sample.time_s // self.bin_s)
        cell = series.get(at)
        if cell is None:
            cell = series[at] = Bin()
            self.bins += 1
        cell.total += sample.percent
        cell.count += 1
        cell.idle += sample.percent < IDLE_PERCENT
        while self.bins > MAX_BINS:
            self._coarsen()

    def _coarsen(self) -> None:
        """Merge bins in pairs. Raises RunError."""
        self.bin_s *= 2
        if self.bin_s > LONGEST_BIN_S:
            many = f"more than {MAX_BINS:,} things were sampled"
            raise RunError(f"{many}, as {' '.join(next(reversed(self.series)))!r:.60}; expected the GPUs of one run")
        self.bins = 0
        for key, series in self.series.items():
            coarse: Series = {}
            for at, fine in series.items():
                known = coarse.setdefault(at // 2, Bin())
                known.total, known.count, known.idle = (
                    known.total + fine.total,
                    known.count + fine.count,
                    known.idle + fine.idle,
                )
            self.series[key] = coarse
            self.bins += len(coarse)

    @property
    def span(self) -> tuple[float, float] | None:
        """The times of the first and the last sample, in seconds; None if there are none."""
        times = [at * self.bin_s for series in self.series.values() for at in (min(series), max(series) + 1)]
        return (min(times), max(times)) if times else None

    def of(self, metric: str) -> Mapping[tuple[str, str], Series]:
        """The series of a metric by node and device."""
        return {(node, device): series for (kind, node, device), series in self.series.items() if kind == metric}


@record
class Gpu:
    """A GPU of a run: its utilization, idle time, and amount of samples."""

    name: str  # `algo-1 gpu0`
    percent: float
    idle: float  # share of the time
    samples: int
    seconds: float


def gpus(samples: Samples) -> list[Gpu]:
    """The GPUs during the run."""
    every = samples.of(GPU)
    goes_on = InUse(samples)
    sampled = []
    for (node, device), series in sorted(every.items()):
        chosen = {at: cell for at, cell in series.items() if goes_on.at(node, at)}
        if chosen:
            sampled.append(
                Gpu(
                    f"{node} {device}",
                    fmean(cell.mean for cell in chosen.values()),
                    fmean(cell.idle / cell.count for cell in chosen.values()),
                    sum(cell.count for cell in chosen.values()),
                    (max(chosen) - min(chosen) + 1) * samples.bin_s,
                )
            )
    return sampled


class InUse:
    """The duration of a run: from a minute after the first use of any GPU to the last; by node if times have no date.

    Times that restart in each file, like dmon's, cannot be compared between nodes.
    """

    def __init__(self, samples: Samples) -> None:
        every = samples.of(GPU)
        self.bin_s = samples.bin_s
        used = {key: [at for at, cell in series.items() if cell.mean >= IDLE_PERCENT] for key, series in every.items()}
        self._undated = {node for (node, _), series in every.items() if max(series) * self.bin_s < DAYS_S}
        self._spans: dict[str, tuple[int, int]] = {}
        for (node, _), moments in used.items():
            for at in (min(moments), max(moments)) if moments else ():
                first, last = self._spans.get(self._clock(node), (at, at))
                self._spans[self._clock(node)] = min(first, at), max(last, at)

    def begun(self, node: str) -> float:
        """The first bin of a node in the run: -inf if no GPU was used."""
        span = self._spans.get(self._clock(node))
        return span[0] + BEGUN_S / self.bin_s if span else float("-inf")

    def ended(self, node: str) -> float:
        """The last one: inf if no GPU was used."""
        span = self._spans.get(self._clock(node))
        return span[1] if span else float("inf")

    def at(self, node: str, at: int) -> bool:
        """Whether a bin of a node is in the run."""
        return self.begun(node) <= at <= self.ended(node)

    def unused_at_end(self, samples: Samples) -> tuple[str, float] | None:
        """The node without GPU use at the end, empty for all nodes, and for how long (s); None if short.

        If samples of most nodes end together, the others just continued.
        """
        ends: dict[str, dict[str, int]] = {}
        begins: dict[str, int] = {}
        for (node, _), series in samples.of(GPU).items():
            clock = self._clock(node)
            of_clock = ends.setdefault(clock, {})
            of_clock[node] = max(of_clock.get(node, 0), max(series))
            begins[clock] = min(begins.get(clock, min(series)), min(series))
        longest_s, gpu_name = 0, ""
        for clock, (_, used) in self._spans.items():
            end = median_high(ends[clock].values())
            tail_s = (end - used) * self.bin_s
            least = max(MIN_S, TAIL_SHARE * (end - begins[clock]) * self.bin_s)
            if tail_s > max(least, longest_s):
                longest_s, gpu_name = tail_s, clock
        return (gpu_name, longest_s) if longest_s else None

    def _clock(self, node: str) -> str:
        return node if node in self._undated else ""


def mean_of(samples: Samples, metric: str) -> float | None:
    """The mean over time of a metric during the run, over all that have it; None if none has."""
    goes_on = InUse(samples)
    every = [
        [cell.mean for at, cell in series.items() if goes_on.at(node, at)]
        for (node, _), series in samples.of(metric).items()
    ]
    means = [fmean(values) for values in every if values]
    return fmean(means) if means else None


def apart_from_most(compared: Iterable[Gpu], points: float) -> list[Gpu]:
    """The GPUs whose utilization differs from the median by more than so many points, the farthest first."""
    compared = list(compared)
    middle = median(gpu.percent for gpu in compared)
    far = (gpu for gpu in compared if abs(gpu.percent - middle) > points)
    return sorted(far, key=lambda gpu: -abs(gpu.percent - middle))


def share_bound(samples: Samples, waits: Mapping[str, float], gpu_below: float) -> float | None:
    """The share of time in which a node's GPUs are below so many percent, and any of these metrics above its limit.

    None if none of them was sampled together with a GPU.
    """
    every = samples.of(GPU)
    goes_on = InUse(samples)
    is_bound: dict[tuple[str, int], bool] = {}
    for metric, least in waits.items():
        for (node, _), series in samples.of(metric).items():
            for at, other in series.items():
                for mean in _gpus_at(every, node, at) if goes_on.at(node, at) else ():
                    is_bound[node, at] = is_bound.get((node, at), False) or (mean < gpu_below and other.mean > least)
    return fmean(is_bound.values()) if is_bound else None


def range_of(metric: str) -> str:
    """The valid range of a metric, in words."""
    return f"0 to {MAX_VALUE[metric]:g}" if metric in MAX_VALUE else "0 or more"


def _gpus_at(every: Mapping[tuple[str, str], Series], node: str, at: int) -> Iterator[float]:
    means = [series[at].mean for (of, _), series in every.items() if of == node and at in series]
    if means:
        yield fmean(means)


def longest(moments: Iterable[tuple[int, bool]], bin_s: float) -> list[int]:
    """The longest period in which a condition always holds, from observations in order.

    A minute without observations ends a period.
    """
    return max(periods(moments, bin_s), key=lambda times: times[-1] - times[0], default=[])


def periods(moments: Iterable[tuple[int, bool]], bin_s: float) -> Iterator[list[int]]:
    """All such periods, in order."""
    current: list[int] = []
    for at, holds in moments:
        if current and (not holds or (at - current[-1]) * bin_s > MAX_PAUSE_S):
            yield current
            current = []
        if holds:
            current.append(at)
    if current:
        yield current
