"""GPU utilisation of a training run, as checks read it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from clusterproof.plugins.core.result import NOT_RECORDED
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable
from clusterproof.plugins.training_run.rules.clocks import MIN_CLOCKS, most_peers
from clusterproof.plugins.training_run.rules.gpus import (
    MIN_GROWTH_S,
    Growth,
    HangEvidence,
    UnderusedGpu,
    ceased,
    growing,
    observed_s,
    peak,
    unused_gpus,
)
from clusterproof.plugins.training_run.samples import (
    CLOCK,
    GPU,
    MIN_S,
    MIN_SAMPLES,
    TENSOR,
    Gpu,
    InUse,
    Samples,
    gpus,
    mean_of,
    share_bound,
)

NO_SAMPLES = (
    f"{NOT_RECORDED} how busy the GPUs are; record the run with clusterproof watch --record DIR, or give what "
    "nvidia-smi, dcgmi, Prometheus or SageMaker's profiler recorded"
)
RECORD = "clusterproof watch --record"


@dataclass(frozen=True)
class SampledGpus:
    """The GPUs of a run by their samples. Missing data raises Incomplete, with what to collect."""

    samples: Samples

    @cached_property
    def gpus(self) -> list[Gpu]:
        """Its GPUs that were sampled often enough. Raises Incomplete if none was, NotApplicable."""
        if not self.samples.series:
            raise Incomplete(NO_SAMPLES, cause=NO_SAMPLES)
        if not self.samples.of(GPU):
            raise NotApplicable("no GPU was sampled on these nodes")
        every = gpus(self.samples)
        sampled = [gpu for gpu in every if not _is_short(gpu)]
        if not sampled:
            raise _too_few("a GPU", min((gpu.samples for gpu in every), default=0))
        return sampled

    def require_all(self, besides: Collection[str] = ()) -> None:
        """Raise Incomplete if a GPU was not sampled often enough; called last, so that it hides no finding.

        `besides` are GPUs with a finding already: then it is enough if all were sampled alike.
        """
        if not besides:
            _ = self.gpus
        gone = {gpu.name for gpu in ceased(self.samples)}.union(besides)  # the former are reported by run.gpu_lost
        every = gpus(self.samples)
        short = [gpu for gpu in every if _is_short(gpu) and gpu.name not in gone]
        if short and not (besides and all(map(_is_short, every))):
            more = f" and {len(short) - 1} more" if len(short) > 1 else ""
            raise _too_few(f"{short[0].name}{more}", short[0].samples)

    def require_each_gpu(self, metric: str, what: str) -> None:
        """Raise Incomplete if a metric was sampled of other GPUs only."""
        known = {" ".join(key) for key in self.samples.of(metric)}
        _require([gpu.name for gpu in self.gpus if gpu.name not in known], what, "every GPU")

    def require_each_node(self, metrics: Iterable[str], what: str) -> None:
        """Raise Incomplete if none of these was sampled of a node whose GPUs were."""
        known = {node for metric in metrics for node, _ in self.samples.of(metric)}
        nodes = dict.fromkeys(node for node, _ in sorted(self.samples.of(GPU)))
        _require([node for node in nodes if node not in known], what, "every node")

    @property
    def unused_at_end(self) -> str:
        """How long no GPU had been used when the samples end, in words; empty if not long. Raises as `gpus`."""
        _ = self.gpus
        tail = InUse(self.samples).unused_at_end(self.samples)
        if not tail:
            return ""
        node, seconds = tail
        lasted = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
        return f"no GPU{f' of {node}' * bool(node)} was used for the last {lasted} of the samples"

    def bound(self, waits: Mapping[str, float], gpu_below: float) -> float:
        """The share of time in which GPUs are below so many percent, a metric above its limit. Raises as `gpus`."""
        _ = self.gpus
        share = share_bound(self.samples, waits, gpu_below)
        if share is None:
            missing = f"{NOT_RECORDED} {next(iter(waits))} beside the GPUs; expected samples of both at the same time"
            raise Incomplete(missing, cause=missing)
        return share

    @cached_property
    def growing(self) -> list[Growth]:
        """The GPUs with growing memory, the soonest full first. Raises as `gpus`."""
        _ = self.gpus
        if not observed_s(self.samples):
            raise _not_sampled("the memory of GPUs", "nvidia-smi's memory.used")
        return growing(self.samples, MIN_GROWTH_S)

    def require_settled(self) -> None:
        """Raise Incomplete if the memory of a GPU was not sampled for long enough to detect growth."""
        seconds = observed_s(self.samples)
        name = min(seconds, key=lambda gpu: seconds[gpu])
        if seconds[name] < MIN_GROWTH_S:
            of = f" of {name}" if max(seconds.values()) >= MIN_GROWTH_S else ""
            raise Incomplete(
                f"memory{of} was sampled for {seconds[name] / 60:.0f} min behind the run's first ten; "
                f"expected at least {MIN_GROWTH_S // 60}: sample a longer part"
            )

    @property
    def peak_memory(self) -> float:
        """The maximum memory usage of any GPU, in percent. Raises as `gpus`."""
        _ = self.gpus
        used = peak(self.samples)
        if used is None:
            raise _not_sampled("the memory of GPUs", "nvidia-smi's memory.used")
        return used

    def unused(self, below: float) -> list[UnderusedGpu] | None:
        """The GPUs of which less than so many percent are used; None if that is unknown. Raises as `gpus`."""
        _ = self.gpus
        return unused_gpus(self.samples, below)

    @property
    def tensor_percent(self) -> float:
        """The share of cycles in which tensor cores compute, over all GPUs. Raises as `gpus`."""
        _ = self.gpus
        share = mean_of(self.samples, TENSOR)
        if share is None:
            raise _not_sampled("how busy tensor cores are", "GPM, on Hopper and later, or DCGM's field 1004")
        return share

    @property
    def clock_peers(self) -> int:
        """How many GPUs a GPU's clock can be compared with, if enough. Raises as `gpus`."""
        _ = self.gpus
        if not self.samples.of(CLOCK):
            raise _not_sampled("the clocks of GPUs", "nvidia-smi's clocks.sm")
        peers = most_peers(self.samples)
        if peers < MIN_CLOCKS:
            few = f"{peers} other GPUs busy at the same time; expected {MIN_CLOCKS} to compare with: sample all nodes"
            raise Incomplete(few, cause=few)
        return peers

    @property
    def hang_evidence(self) -> HangEvidence:
        """The samples that show whether the run hangs. Raises as `gpus`."""
        _ = self.gpus
        if len(self.gpus) < 2:
            self.require_all()
            raise NotApplicable("one GPU: it waits for no other")
        look = HangEvidence(self.samples)
        if look.missing:
            raise _not_sampled(look.missing, "all of it")
        return look


def _is_short(gpu: Gpu) -> bool:
    return gpu.samples < MIN_SAMPLES or gpu.seconds < MIN_S


def _require(missing: Sequence[str], what: str, of_each: str) -> None:
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise Incomplete(f"no sample has {what} of {missing[0]}{more}; expected it of {of_each}: {RECORD} samples it")


def _too_few(subject: str, times: int) -> Incomplete:
    few = (
        f"{subject} was sampled {times} times since the run began; "
        f"expected at least {MIN_SAMPLES} times and {MIN_S // 60} minutes: sample a longer part"
    )
    return Incomplete(few, cause=few)


def _not_sampled(what: str, where: str) -> Incomplete:
    missing = f"{NOT_RECORDED} {what}; record the run with clusterproof watch --record, which samples {where}"
    return Incomplete(missing, cause=missing)
