"""GPU utilisation of a run, and what GPUs wait for."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair, number_of
from clusterproof.plugins.core.verdict import concern, concern_if, incomplete, not_applicable, part
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

    The mean GPU utilisation that the driver reports, from a minute after the first GPU was used to the last use of one.
    If no GPU is used for the last tenth of the samples, and for five minutes, the check does not pass: the job may have
    stalled.
    Utilisation only means that some kernel ran, so the real use is lower. If no GPU was sampled, PyTorch profiler
    traces are used: the share of each step in which any kernel runs, including those that only wait for other ranks.

    Remedy (investigate): Find what the GPUs wait for: run.cpu_bound, run.io_bound, run.data_wait, run.comm_exposed.
    Raise the batch size.
    """
    if traced := run.traced_gpus:
        kernels_busy(run, traced)
        return
    least = run.threshold("run.gpu_busy_percent")
    gpus = run.sampled.gpus
    if unused := run.sampled.unused_at_end:
        with part:
            incomplete(f"{unused}; expected samples that end with the run: look whether the job stalled")
    busy = sum(gpu.percent for gpu in gpus) / len(gpus)
    if busy < least:
        idlest = min(gpus, key=lambda gpu: gpu.percent)
        shown, limit = format_pair(busy, least)
        concern(f"{shown} % of the time, {idlest.name} {idlest.percent:.0f} %; expected at least {limit} %")
    run.sampled.require_all()


def kernels_busy(run: TrainingRun, ranks: Sequence[TimeShare]) -> None:
    """Report if kernels ran in too little of the traced steps; `ranks` has the idlest first."""
    least, steps = run.threshold("run.gpu_busy_percent"), int(run.threshold("run.traced_steps"))
    short = [rank for rank in ranks if rank.steps < steps]
    with part:
        if short:
            seen, _ = kernels_in_words(run, short, least)
            few = f"of {number_of(short[0].steps, 'step')}; expected at least {steps}: trace more of them"
            incomplete(f"{seen}, {few}")
    enough = [rank for rank in ranks if rank.steps >= steps]
    if enough:
        seen, busy = kernels_in_words(run, enough, least)
        concern_if(busy < least, f"{seen}; expected at least {format_pair(busy, least)[1]} %")


def kernels_in_words(run: TrainingRun, ranks: Sequence[TimeShare], least: float) -> tuple[str, float]:
    """In how much of the steps of these ranks kernels run, and in percent."""
    busy, idlest = 100 * sum(rank.share for rank in ranks) / len(ranks), ranks[0]
    of_idlest = f"in {100 * idlest.share:.0f} % of those of {run.data.rank_words(idlest.rank)}"
    return f"kernels run in {format_pair(busy, least)[0]} % of the steps that were traced, {of_idlest}", busy


@mark.hyperpod_performance_debugger
@evidence(SEEN)
def test_gpu_fluctuates(run: TrainingRun) -> None:
    """Idle phases of GPUs.

    The share of time in which a GPU is below 10 % utilisation, averaged over all GPUs.

    Remedy (investigate): Check what happens between steps: data loading, logging, evaluation, checkpoints.
    """
    gpus, most = run.sampled.gpus, run.threshold("run.gpu_idle_percent")
    idle = 100 * sum(gpu.idle for gpu in gpus) / len(gpus)
    if idle > most:
        shown, limit = format_pair(idle, most, 1)
        concern(f"idle {shown} % of the time; expected at most {limit} %")
    run.sampled.require_all()


@mark.hyperpod_performance_debugger
@evidence(SEEN)
def test_load_balance(run: TrainingRun) -> None:
    """Load balance between GPUs.

    Each GPU's mean utilisation is compared with the median over all GPUs of the run.

    Remedy (investigate): Give every rank the same amount of work. If a GPU is unused, check CUDA_VISIBLE_DEVICES and
    how many processes each node starts.
    """
    gpus, points = run.sampled.gpus, run.threshold("run.load_balance_points")
    if len(gpus) < 2:
        run.sampled.require_all()
        not_applicable("only one GPU: nothing to compare it with")
    far = apart_from_most(gpus, points)
    if far:
        names = ", ".join(f"{gpu.name} {gpu.percent:.0f} %" for gpu in far[:MAX_GPUS])
        more = f" and {len(far) - MAX_GPUS} more" if len(far) > MAX_GPUS else ""
        concern(f"{names}{more}; expected all within {points:g} percentage points of the median")
    run.sampled.require_all()


@mark.hyperpod_performance_debugger
@evidence("mpstat -P ALL 1; " + SEEN)
def test_cpu_bound(run: TrainingRun) -> None:
    """Wait for CPUs.

    The share of time in which a node's GPUs are below 50 % utilisation while its CPUs as a whole are busy, or while
    tasks wait for a CPU, perhaps because of a cpuset. A single busy core is not a bottleneck.

    Remedy (investigate): Move work out of the data loader (decode and augment on the GPU, or in advance), or give the
    loaders more CPUs.
    """
    waits = {CPU: run.threshold("run.cpu_busy_percent"), CPU_PRESSURE: run.threshold("run.cpu_pressure_percent")}
    share = 100 * run.sampled.bound(waits, run.threshold("run.gpu_waits_percent"))
    most = run.threshold("run.bound_percent")
    if share > most:
        shown, limit = format_pair(share, most, 1)
        concern(f"{shown} % of the time GPUs wait while the CPUs are busy; expected at most {limit} %")
    run.sampled.require_each_node(waits, "the CPUs")
    run.sampled.require_all()


@mark.hyperpod_performance_debugger("B")
@evidence("iostat -x 1; " + SEEN)
def test_io_bound(run: TrainingRun) -> None:
    """Wait for storage.

    The share of time in which a node's GPUs are below 50 % utilisation while its CPUs, or all of its tasks, wait for
    I/O.

    Remedy (investigate): Check the file system that holds the data: throughput, small files, striping. Stage the data
    on local NVMe.
    """
    waits = {IO_WAIT: run.threshold("run.io_wait_percent"), IO_PRESSURE: run.threshold("run.io_pressure_percent")}
    share = 100 * run.sampled.bound(waits, run.threshold("run.gpu_waits_percent"))
    most = run.threshold("run.bound_percent")
    if share > most:
        shown, limit = format_pair(share, most, 1)
        concern(f"{shown} % of the time GPUs wait while the CPUs wait for I/O; expected at most {limit} %")
    run.sampled.require_each_node(waits, "the wait for I/O")
    run.sampled.require_all()
