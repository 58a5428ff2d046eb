"""GPUs of a run: memory that grows or stays unused, and low clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import gmtime, strftime

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair, listed
from clusterproof.plugins.core.verdict import Incomplete, concern, concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run import DATA
from clusterproof.plugins.training_run.rules.clocks import SlowClock, slow_clocks, slowed_together
from clusterproof.plugins.training_run.rules.gpus import UnderusedGpu, back_s, ceased
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import (
    CLOCK,
    CPU,
    CPU_PRESSURE,
    DAYS_S,
    IO_PRESSURE,
    IO_WAIT,
    MEMORY,
    TENSOR,
    GpuLost,
)

pytestmark = [mark.run]

MAX_GPUS = 5  # that are named
RECORD = "clusterproof watch --cluster X --record DIR"


@mark.hyperpod_performance_debugger
@evidence("nvidia-smi --query-gpu=memory.used --format=csv -l 10; " + RECORD)
def test_gpu_memory_growth(run: TrainingRun) -> None:
    """Growth of GPU memory.

    After its first ten minutes, a run's GPU memory should stay constant. The slope is the median of the slopes between
    any two samples, over the whole run or its second half, whichever is smaller: a jump, or growth that has stopped,
    does not count. The slope predicts when the memory is full.

    Remedy (fix code): Look for tensors that keep their graphs from step to step (losses summed without .item()),
    unbounded caches, and sequences that get longer. torch.cuda.memory_snapshot() shows what holds the memory.
    """
    growing = run.sampled.growing
    fail_h, concern_h = run.threshold("run.memory_full_fail_h"), run.threshold("run.memory_full_concern_h")
    soon = [gpu for gpu in growing if gpu.hours_left < fail_h]
    fail_if(soon, f"{listed(gpu.description for gpu in soon)}; expected memory that does not grow")
    later = [gpu for gpu in growing if fail_h <= gpu.hours_left < concern_h]
    concern_if(later, f"{listed(gpu.description for gpu in later)}; expected memory that does not grow")
    run.sampled.require_each_gpu(MEMORY, "the memory")
    run.sampled.require_settled()


@mark.hyperpod_performance_debugger
@evidence("dcgmi dmon -e 1004,252; " + RECORD)
def test_batch_size(run: TrainingRun) -> None:
    """Room for a larger batch.

    Reports GPU memory that is never used and tensor cores that are mostly idle although neither CPUs nor storage slow
    the GPUs down. If tensor cores were not sampled, as with SageMaker's profiler, the 95th percentiles of GPU
    utilisation, GPU memory and the node's CPU utilisation must all be low, and no step may wait for data.

    Remedy (fix code): Raise the batch or micro-batch size, and turn off activation checkpointing as long as memory
    allows.
    """
    used = run.sampled.peak_memory
    if (
        not run.data.samples.of(TENSOR)
        and (unused := run.sampled.unused(run.threshold("run.batch_p95_percent"))) is not None
    ):
        hardly_used(run, unused)
        run.sampled.require_all()
        return
    tensor = run.sampled.tensor_percent
    most, least = run.threshold("run.batch_memory_percent"), run.threshold("run.batch_tensor_percent")
    if used < most and tensor < least and not gpus_wait(run):
        concern(
            f"at most {used:.0f} % of the GPUs' memory used, tensor cores busy {tensor:.0f} % of the time; "
            f"expected {most:g} % or {least:g} %"
        )
    run.sampled.require_all()


def hardly_used(run: TrainingRun, unused: Sequence[UnderusedGpu]) -> None:
    """Report GPUs that are little used, unless they wait for something else."""
    if unused and not gpus_wait(run) and not waits_for_data(run):
        first, more = unused[0], f", and {len(unused) - 1} GPUs like it" if len(unused) > 1 else ""
        concern(
            f"{first.name}{more}: 95 % of the time at most {first.use:.0f} % used, {first.memory:.0f} % of its memory, "
            f"and {first.cpu:.0f} % of the CPUs; expected {run.threshold('run.batch_p95_percent'):g} % of one of them"
        )


def waits_for_data(run: TrainingRun) -> bool:
    """Whether any rank waits for data in too much of its steps; if that is unknown, False."""
    try:
        return 100 * run.share(DATA, is_steady=True).share > run.threshold("run.data_wait_percent")
    except Incomplete:
        return False


def gpus_wait(run: TrainingRun) -> bool:
    """Whether the GPUs wait for CPUs or storage; if that is unknown, False."""
    waits = run.threshold("run.gpu_waits_percent")
    for metrics in (
        {CPU: run.threshold("run.cpu_busy_percent"), CPU_PRESSURE: run.threshold("run.cpu_pressure_percent")},
        {IO_WAIT: run.threshold("run.io_wait_percent"), IO_PRESSURE: run.threshold("run.io_pressure_percent")},
    ):
        try:
            if 100 * run.sampled.bound(metrics, waits) > run.threshold("run.bound_percent"):
                return True
        except Incomplete:
            continue
    return False


@mark.hyperpod_node_debugger("G")
@evidence("nvidia-smi -q -d CLOCK,PERFORMANCE; " + RECORD)
def test_slow_clock(run: TrainingRun) -> None:
    """Clocks of GPUs under load.

    The SM clock of a busy GPU is compared with the other GPUs that are busy at the same time. A lower clock counts if
    the driver's counters show a reason. The power cap alone is a concern, since GPUs differ; a hardware slowdown,
    thermal or by the power brake, fails. If it slows so many GPUs that fewer than four are left to compare with, those
    that it slows most of the time fail by that alone. If not all reasons for a slow clock were sampled (the power cap
    and each slowdown), the check is incomplete.

    Remedy (investigate): Compare the GPU's temperature and power with its neighbours', then check the node's cooling
    and power supplies. If the GPU stays slow, drain the node and have it replaced.
    """
    below, least_s = run.threshold("run.slow_clock_share"), run.threshold("run.slow_clock_s")
    together = [gpu for gpu in slowed_together(run.data.samples) if gpu.seconds >= least_s]
    fail_if(together, f"{each_in_words(together, below)}; expected no GPU that heat or a power brake slows down")
    _ = run.sampled.clock_peers
    slow = [gpu for gpu in slow_clocks(run.data.samples, below) if gpu.seconds >= least_s]
    slowed = longest_of_each(gpu for gpu in slow if gpu.slowed_percent)
    fail_if(slowed, in_words(slowed, below))
    capped = longest_of_each((gpu for gpu in slow if gpu.capped_percent), without=slowed)
    concern_if(capped, in_words(capped, below))
    unknown = longest_of_each(
        (gpu for gpu in slow if not (gpu.slowed_percent or gpu.capped_percent)), without=[*slowed, *capped]
    )
    if unknown:
        incomplete(
            f"{in_words(unknown, below)}: {RECORD}, or nvidia-smi's clocks_event_reasons.active, says what holds "
            "it down"
        )
    run.sampled.require_each_gpu(CLOCK, "the clock")
    run.sampled.require_all()


def longest_of_each(slow: Iterable[SlowClock], without: Sequence[SlowClock] = ()) -> list[SlowClock]:
    """The first of each GPU, as the longest come first, except of these GPUs."""
    named = {gpu.name for gpu in without}
    longest: dict[str, SlowClock] = {}
    for gpu in slow:
        longest.setdefault(gpu.name, gpu)
    return [gpu for name, gpu in longest.items() if name not in named]


def in_words(slow: list[SlowClock], below: float) -> str:
    """`gpu001 gpu3 at 0.81 of its peers' clock for 12 min, slowed by hardware 40 % of it; expected at least 0.95`."""
    return f"{each_in_words(slow, below)}; expected at least {below:g}"


def each_in_words(slow: list[SlowClock], below: float) -> str:
    """The same without the expected value."""
    seen = []
    for gpu in slow[:MAX_GPUS]:
        by = "slowed by hardware" if gpu.slowed_percent else "held by the power cap"
        percent = gpu.slowed_percent or gpu.capped_percent
        held = f", {by} {percent:.0f} % of it" if percent else ""
        at = "busy" if gpu.share is None else f"at {format_pair(gpu.share, below, 2)[0]} of its peers' clock"
        seen.append(f"{gpu.name} {at} for {gpu.seconds / 60:.0f} min{held}")
    more = f" and {len(slow) - MAX_GPUS} more" if len(slow) > MAX_GPUS else ""
    return f"{'; '.join(seen)}{more}"


@mark.hyperpod_node_debugger("G")
@evidence("nvidia-smi -l 10; journalctl -k --grep 'NVRM: Xid'")
def test_gpu_lost(run: TrainingRun) -> None:
    """GPUs that are lost during the run.

    Reads what nvidia-smi prints instead of values. A GPU that is lost, waits for a reset or has no handle any more
    fails; one whose values cannot be read is a concern. The check is incomplete if a GPU's samples stop for at least a
    minute while the node's other GPUs are still sampled, if a whole node's samples stop for five minutes, or if
    nvidia-smi cannot reach the driver: in a container that lost its devices this happens with healthy GPUs.

    Remedy (reset or reboot): Drain the node and look for an Xid at that time (journalctl -k | grep Xid). Reset the GPU
    or reboot the node. If the GPU is lost again, replace the node.
    """
    lost = list(run.data.samples.lost.values())
    gone = [gpu for gpu in lost if gpu.is_gone]
    fail_if(gone, f"{lost_in_words(run, gone)}; expected every GPU until the end")
    unread = [gpu for gpu in lost if not gpu.is_gone and gpu.device]
    concern_if(unread, f"{lost_in_words(run, unread)}; expected its values until the end")
    unreached = [gpu for gpu in lost if not gpu.is_gone and not gpu.device]
    with part:
        if unreached:
            incomplete(
                f"{lost_in_words(run, unreached)}; expected values until the end: run nvidia-smi on the node itself, "
                "outside its containers"
            )
    named = {f"{gpu.node} {gpu.device}".strip() for gpu in lost}
    unseen = [gpu for gpu in ceased(run.data.samples) if gpu.name not in named]
    if unseen:
        messages = [f"no sample of {gpu.name} after {moment(gpu.time_s)}" for gpu in unseen[:MAX_GPUS]]
        more = f" and {len(unseen) - MAX_GPUS} more" if len(unseen) > MAX_GPUS else ""
        incomplete(f"{'; '.join(messages)}{more}; expected samples, as from the others: check whether it is lost")
    run.sampled.require_all(besides=named)


def lost_in_words(run: TrainingRun, lost: Sequence[GpuLost]) -> str:
    """`gpu001 gpu3 from 2025-07-21 15:15:00 on: GPU is lost`."""
    seen = [f"{' '.join((gpu.node, gpu.device)).strip()} {since(run, gpu)}: {gpu.words}" for gpu in lost[:MAX_GPUS]]
    more = f" and {len(lost) - MAX_GPUS} more" if len(lost) > MAX_GPUS else ""
    return f"{'; '.join(seen)}{more}"


def since(run: TrainingRun, gpu: GpuLost) -> str:
    """`from 2025-07-21 15:15:00 on`, or until when, if it has values again."""
    back = back_s(run.data.samples, gpu)
    first, last = moment(gpu.time_s), moment(gpu.last_s)
    if back is None:
        return f"from {first} on"
    when = f"at {first}" if first == last else f"from {first} to {last}"
    return f"{when}, and with values again from {moment(back)} on"


def moment(time_s: float) -> str:
    """The date and time by a file's own clock; minutes if the file has no dates."""
    if time_s < DAYS_S:
        return f"minute {time_s / 60:.0f}"
    return strftime("%Y-%m-%d %H:%M:%S", gmtime(time_s))
