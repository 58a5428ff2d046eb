"""Samples of GPUs and CPUs, kept as means over bins of a few seconds, so that all time counts the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median, median_high

from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.training_run import RunError

GPU, CPU, IO_WAIT = "gpu", "cpu", "io wait"  # in percent, as all but those with another unit
CPU_PRESSURE, IO_PRESSURE = "cpu pressure", "io pressure"  # of the time in which tasks wait for it (PSI)
MEMORY, TENSOR, POWER = "memory", "tensor cores", "power"  # of a GPU: of all that it has, of its limit
CAPPED, SLOWED = "power cap", "hardware slowdown"  # of the time in which that holds a GPU's clocks down
CLOCK = "clock"  # MHz, of a GPU's SMs
LINK, NETWORK = "nvlink", "network"  # MB/s both ways: of a GPU, of a node
HOST_MEMORY = "memory of the node"  # of all that it has
NETWORK_BYTES = "network (SageMaker)"  # bytes, of which its profiler does not say in what time
MAX_VALUE = dict.fromkeys((GPU, CPU, IO_WAIT, CPU_PRESSURE, IO_PRESSURE, HOST_MEMORY, TENSOR, CAPPED, SLOWED), 100.0)
MAX_VALUE |= {MEMORY: 100.5, POWER: 400.0, CLOCK: 10_000.0}  # the power limit does not hold for a moment
BIN_S = 5  # until there are so many bins that two are made one
LONGEST_BIN_S = 86_400
MAX_BINS = 2_000_000  # some 250 MB
MAX_LOST = 10_000
IDLE_PERCENT = 10.0  # below it a GPU waits
BEGUN_S = 60  # of GPUs in use before a run counts as begun
LEAST_SAMPLES, LEAST_S = 30, 300
TAIL_SHARE = 0.1  # of all samples: who stops them by hand is later by minutes, and a job that stalls by hours
DAYS_S = 1e8  # up to which a time is none since 1970
MAX_PAUSE_S = 60.0  # between two looks at what goes on


@record
class Sample:
    """One sample: percent, or in the metric's unit, at a time in seconds; `device` is a GPU, empty for the node."""

    node: str
    metric: str
    device: str
    time_s: float
    percent: float


@record
class GpuLost:
    """A tool reports at a time that it cannot read a GPU any more (`GPU is lost`); without `device`, any of them.

    `until_s` is when it said so last, where that is later.
    `is_gone` is False where that may be a value, or a driver, that cannot be read, and no GPU that is lost.
    """

    node: str
    device: str
    time_s: float
    words: str
    is_gone: bool = True
    until_s: float = 0.0

    @property
    def last_s(self) -> float:
        """When it was said last."""
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
    """All samples, by metric, node and device. Longer runs have longer bins."""

    series: dict[tuple[str, str, str], Series] = field(default_factory=dict)
    bins: int = 0
    bin_s: int = BIN_S
    lost: dict[tuple[str, str, str], GpuLost] = field(default_factory=dict)  # by node, device and words: when first

    def lose(self, gpu: GpuLost) -> None:
        """Take in that a GPU is lost."""
        key = gpu.node, gpu.device, gpu.words
        known = self.lost.get(key)
        if known:
            first = known if known.time_s <= gpu.time_s else gpu
            self.lost[key] = replace(first, until_s=max(known.last_s, gpu.last_s))
        elif len(self.lost) < MAX_LOST:
            self.lost[key] = gpu

    def add(self, sample: Sample) -> None:
        """Take in a sample."""
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
        """Make one bin of two. Raises RunError."""
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
        """When the first and the last of them were, in seconds; None where there are none."""
        times = [at * self.bin_s for series in self.series.values() for at in (min(series), max(series) + 1)]
        return (min(times), max(times)) if times else None

    def of(self, metric: str) -> Mapping[tuple[str, str], Series]:
        """The series of a metric by node and device."""
        return {(node, device): series for (kind, node, device), series in self.series.items() if kind == metric}


@record
class Gpu:
    """One GPU of a run: utilisation, idle time, and the time that was sampled."""

    name: str  # `algo-1 gpu0`
    percent: float
    idle: float  # share of the time
    samples: int
    seconds: float


def gpus(samples: Samples) -> list[Gpu]:
    """The GPUs while the run goes on."""
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
    """When a run uses GPUs: from a minute after the first use to the last; by node where samples have no dates.

    Seconds that begin with each file, as dmon's, are no time at which nodes can be compared.
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
        """The first bin of a node that counts: -inf where no GPU was used."""
        span = self._spans.get(self._clock(node))
        return span[0] + BEGUN_S / self.bin_s if span else float("-inf")

    def ended(self, node: str) -> float:
        """The last one: inf where no GPU was used."""
        span = self._spans.get(self._clock(node))
        return span[1] if span else float("inf")

    def at(self, node: str, at: int) -> bool:
        """Whether a bin of a node counts."""
        return self.begun(node) <= at <= self.ended(node)

    def unused_at_end(self, samples: Samples) -> tuple[str, float] | None:
        """Of whose samples no GPU is used at the end, empty for all nodes, and for how long (s); None where few are.

        Where samples of most nodes end together, the others only sampled on.
        """
        ends: dict[str, dict[str, int]] = {}
        begins: dict[str, int] = {}
        for (node, _), series in samples.of(GPU).items():
            clock = self._clock(node)
            of_clock = ends.setdefault(clock, {})
            of_clock[node] = max(of_clock.get(node, 0), max(series))
            begins[clock] = min(begins.get(clock, min(series)), min(series))
        longest_s, whose = 0, ""
        for clock, (_, used) in self._spans.items():
            end = median_high(ends[clock].values())
            tail_s = (end - used) * self.bin_s
            least = max(LEAST_S, TAIL_SHARE * (end - begins[clock]) * self.bin_s)
            if tail_s > max(least, longest_s):
                longest_s, whose = tail_s, clock
        return (whose, longest_s) if longest_s else None

    def _clock(self, node: str) -> str:
        return node if node in self._undated else ""


def mean_of(samples: Samples, metric: str) -> float | None:
    """The mean over time of a metric while the run goes on, of all that have it; None where none has."""
    goes_on = InUse(samples)
    every = [
        [cell.mean for at, cell in series.items() if goes_on.at(node, at)]
        for (node, _), series in samples.of(metric).items()
    ]
    means = [fmean(values) for values in every if values]
    return fmean(means) if means else None


def apart_from_most(compared: Iterable[Gpu], points: float) -> list[Gpu]:
    """The GPUs that are busier or idler than the middle one by more than so many points, the farthest first."""
    compared = list(compared)
    middle = median(gpu.percent for gpu in compared)
    far = (gpu for gpu in compared if abs(gpu.percent - middle) > points)
    return sorted(far, key=lambda gpu: -abs(gpu.percent - middle))


def share_bound(samples: Samples, waits: Mapping[str, float], gpu_below: float) -> float | None:
    """The share of the time in which a node's GPUs are below so many percent, and any of these metrics above its own.

    None where none of them was sampled beside a GPU.
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
    """What values of a metric can be, in words."""
    return f"0 to {MAX_VALUE[metric]:g}" if metric in MAX_VALUE else "0 or more"


def _gpus_at(every: Mapping[tuple[str, str], Series], node: str, at: int) -> Iterator[float]:
    means = [series[at].mean for (of, _), series in every.items() if of == node and at in series]
    if means:
        yield fmean(means)


def longest(moments: Iterable[tuple[int, bool]], bin_s: float) -> list[int]:
    """Of moments in order, each with whether it holds then: those of the longest time in which it always does.

    Where nobody looked for a minute it may have ended meanwhile.
    """
    best: list[int] = []
    current: list[int] = []
    for at, holds in moments:
        if not holds or (current and (at - current[-1]) * bin_s > MAX_PAUSE_S):
            current = []
        if holds:
            current.append(at)
            if current[-1] - current[0] > (best[-1] - best[0] if best else -1):
                best = list(current)
    return best
