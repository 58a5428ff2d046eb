"""How busy the GPUs of a run are, and what they wait for."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import apart
from clusterproof.plugins.core.verdict import concern, concern_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run.rules.phases import TimeShare
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import CPU, CPU_PRESSURE, IO_PRESSURE, IO_WAIT, apart_from_most

pytestmark = [mark.run]

SEEN = "nvidia-smi dmon -s u; SageMaker: profiler-output/system"
MAX_GPUS = 5  # that are named


@mark.hyperpod_performance_debugger
@evidence(SEEN)
def test_gpu_busy(run: TrainingRun) -> None:
    """GPU utilization.

    The mean over time of the utilisation that the driver reports, from a minute after the first GPU was used to the
    last use of one: samples go on behind a run. It says only that some kernel ran: the true use is lower still. Where
    no GPU was sampled, traces of PyTorch's profiler say the same: for how much of their steps any kernel runs, also one
    that only waits for other ranks.

    Remedy (investigate): Look at what they wait for: run.cpu_bound, run.io_bound, run.data_wait, run.comm_exposed.
    Raise the batch size.
    """
    if traced := run.traced_gpus:
        kernels_busy(run, traced)
        return
    least = run.threshold("run.gpu_busy_percent")
    gpus = run.sampled.gpus
    busy = sum(gpu.percent for gpu in gpus) / len(gpus)
    if busy < least:
        idlest = min(gpus, key=lambda gpu: gpu.percent)
        shown, limit = apart(busy, least)
        concern(f"{shown} % of the time, {idlest.name} {idlest.percent:.0f} %; expected at least {limit} %")


def kernels_busy(run: TrainingRun, ranks: Sequence[TimeShare]) -> None:
    """Say whether kernels ran for too little of the steps that were traced; `ranks` has the idlest first."""
    least, steps = run.threshold("run.gpu_busy_percent"), int(run.threshold("run.traced_steps"))
    busy, idlest = 100 * sum(rank.share for rank in ranks) / len(ranks), ranks[0]
    shown, limit = apart(busy, least)
    who = run.rank_words(idlest.rank)
    seen = f"kernels run in {shown} % of the steps that were traced, in {100 * idlest.share:.0f} % of those of {who}"
    if max(rank.steps for rank in ranks) < steps:
        incomplete(f"{seen}, of {idlest.steps} steps; expected at least {steps}: trace more of them")
    concern_if(busy < least, f"{seen}; expected at least {limit} %")


@mark.hyperpod_performance_debugger
@evidence(SEEN)
def test_gpu_fluctuates(run: TrainingRun) -> None:
    """Idle phases of GPUs.

    The share of time in which a GPU's utilisation is below 10 %, as the mean of all GPUs.

    Remedy (investigate): Look at what happens between steps: data loading, logging, evaluation, checkpoints.
    """
    gpus, most = run.sampled.gpus, run.threshold("run.gpu_idle_percent")
    idle = 100 * sum(gpu.idle for gpu in gpus) / len(gpus)
    if idle > most:
        shown, limit = apart(idle, most, 1)
        concern(f"idle {shown} % of the time; expected at most {limit} %")


@mark.hyperpod_performance_debugger
@evidence(SEEN)
def test_load_balance(run: TrainingRun) -> None:
    """Load balance between GPUs.

    Each GPU's mean utilisation is compared with the median of all GPUs of all nodes.

    Remedy (investigate): Give every rank the same amount of work. A GPU that nobody uses belongs to no rank: check
    CUDA_VISIBLE_DEVICES and how many processes each node starts.
    """
    gpus, points = run.sampled.gpus, run.threshold("run.load_balance_points")
    if len(gpus) < 2:
        not_applicable("one GPU: there is no other to compare it with")
    far = apart_from_most(gpus, points)
    if far:
        names = ", ".join(f"{gpu.name} {gpu.percent:.0f} %" for gpu in far[:MAX_GPUS])
        more = f" and {len(far) - MAX_GPUS} more" if len(far) > MAX_GPUS else ""
        concern(f"{names}{more}; expected all within {points:g} points of the middle one")


@mark.hyperpod_performance_debugger
@evidence("mpstat -P ALL 1; " + SEEN)
def test_cpu_bound(run: TrainingRun) -> None:
    """Wait for CPUs.

    The share of time in which the GPUs of a node are below 50 % utilisation while its CPUs are busy, all of them
    together: one busy core of many is no bottleneck. Or while tasks wait for a CPU that a cpuset may keep from them.

    Remedy (investigate): Move work off the data loader's path (decode and augment on the GPU, or before), or give the
    node's loaders the CPUs that they lack.
    """
    waits = {CPU: run.threshold("run.cpu_busy_percent"), CPU_PRESSURE: run.threshold("run.cpu_pressure_percent")}
    share = 100 * run.sampled.bound(waits, run.threshold("run.gpu_waits_percent"))
    most = run.threshold("run.bound_percent")
    if share > most:
        shown, limit = apart(share, most, 1)
        concern(f"{shown} % of the time GPUs wait while the CPUs are busy; expected at most {limit} %")


@mark.hyperpod_performance_debugger("B")
@evidence("iostat -x 1; " + SEEN)
def test_io_bound(run: TrainingRun) -> None:
    """Wait for storage.

    The share of time in which the GPUs of a node are below 50 % utilisation while its CPUs, or all of its tasks, wait
    for I/O.

    Remedy (investigate): Look at the file system that the data is on: its throughput, small files, striping. Stage the
    data on local NVMe.
    """
    waits = {IO_WAIT: run.threshold("run.io_wait_percent"), IO_PRESSURE: run.threshold("run.io_pressure_percent")}
    share = 100 * run.sampled.bound(waits, run.threshold("run.gpu_waits_percent"))
    most = run.threshold("run.bound_percent")
    if share > most:
        shown, limit = apart(share, most, 1)
        concern(f"{shown} % of the time GPUs wait while the CPUs wait for I/O; expected at most {limit} %")
