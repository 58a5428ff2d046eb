"""What the GPUs of a run do beyond being busy: memory that grows or stays unused, clocks that are held down."""

from __future__ import annotations

from collections.abc import Sequence
from time import gmtime, strftime

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import apart
from clusterproof.plugins.core.verdict import Incomplete, concern, concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run import DATA
from clusterproof.plugins.training_run.rules.clocks import SlowClock, slow_clocks
from clusterproof.plugins.training_run.rules.gpus import Unused, back_s, ceased
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.samples import CPU, CPU_PRESSURE, DAYS_S, IO_PRESSURE, IO_WAIT, TENSOR, GpuLost

pytestmark = [mark.run]

MAX_GPUS = 5  # that are named
RECORD = "clusterproof watch --cluster X --record DIR"


@mark.hyperpod_performance_debugger
@evidence("nvidia-smi --query-gpu=memory.used --format=csv -l 10; " + RECORD)
def test_gpu_memory_growth(run: TrainingRun) -> None:
    """Growth of GPU memory.

    From ten minutes after its start, a run's memory is expected to stay constant. The slope is the median of the slopes
    between any two samples, of the whole run or of its later half, whichever is less: a jump is not growth, nor is
    growth that has stopped. From the slope follows when the memory is full.

    Remedy (fix code): Look for tensors that are kept from step to step with their graphs (losses summed up without
    .item()), unbounded caches, and sequences that get longer. torch.cuda.memory_snapshot shows who holds what.
    """
    growing = run.sampled.growing
    fail_h, concern_h = run.threshold("run.memory_full_fail_h"), run.threshold("run.memory_full_concern_h")
    soon = [gpu for gpu in growing if gpu.hours_left < fail_h]
    fail_if(soon, f"{', '.join(gpu.words for gpu in soon[:MAX_GPUS])}; expected memory that does not grow")
    later = [gpu for gpu in growing if fail_h <= gpu.hours_left < concern_h]
    concern_if(later, f"{', '.join(gpu.words for gpu in later[:MAX_GPUS])}; expected memory that does not grow")


@mark.hyperpod_performance_debugger
@evidence("dcgmi dmon -e 1004,252; " + RECORD)
def test_batch_size(run: TrainingRun) -> None:
    """Room for a larger batch.

    Memory that is never used and tensor cores that are mostly idle, while neither CPUs nor storage hold the GPUs up.
    Where tensor cores were not sampled, as by SageMaker's profiler, the 95th percentiles of a GPU's use, its memory and
    its node's CPUs must all be low, and no step may wait for data.

    Remedy (fix code): Raise the batch or micro-batch size, and turn activation checkpointing off while there is room.
    """
    used = run.sampled.peak_memory
    if (
        not run.data.samples.of(TENSOR)
        and (unused := run.sampled.unused(run.threshold("run.batch_p95_percent"))) is not None
    ):
        hardly_used(run, unused)
        return
    tensor = run.sampled.tensor_percent
    most, least = run.threshold("run.batch_memory_percent"), run.threshold("run.batch_tensor_percent")
    if used < most and tensor < least and not gpus_wait(run):
        concern(
            f"at most {used:.0f} % of the GPUs' memory used, tensor cores busy {tensor:.0f} % of the time; "
            f"expected {most:g} % or {least:g} %"
        )


def hardly_used(run: TrainingRun, unused: Sequence[Unused]) -> None:
    """Say of which GPUs little is used, unless they wait for something else."""
    if unused and not gpus_wait(run) and not waits_for_data(run):
        first, more = unused[0], f", and {len(unused) - 1} GPUs like it" if len(unused) > 1 else ""
        concern(
            f"{first.name}{more}: 95 % of the time at most {first.use:.0f} % used, {first.memory:.0f} % of its memory, "
            f"and {first.cpu:.0f} % of the CPUs; expected {run.threshold('run.batch_p95_percent'):g} % of one of them"
        )


def waits_for_data(run: TrainingRun) -> bool:
    """Whether any rank waits for data for too much of its steps; where that is unknown, none does."""
    try:
        return 100 * run.share(DATA, is_steady=True).share > run.threshold("run.data_wait_percent")
    except Incomplete:
        return False


def gpus_wait(run: TrainingRun) -> bool:
    """Whether the GPUs wait for CPUs or storage; where that is unknown, they do not."""
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

    The SM clock of a busy GPU is compared with that of the others that are busy at the same time; it counts if the
    driver's counters show that something holds it down meanwhile. The power cap alone is a concern: GPUs differ. A
    hardware slowdown, thermal or by the power brake, fails. Where nobody sampled all that may hold a slow clock down,
    the power cap and each slowdown, the check is incomplete.

    Remedy (investigate): Compare the GPU's temperature and power with its neighbours', then check the node's cooling
    and power supplies. If it stays slow, take the node out of the job and have it replaced.
    """
    _ = run.sampled.clock_peers
    below, least_s = run.threshold("run.slow_clock_share"), run.threshold("run.slow_clock_s")
    slow = [gpu for gpu in slow_clocks(run.data.samples, below) if gpu.seconds >= least_s]
    slowed = [gpu for gpu in slow if gpu.slowed_percent]
    fail_if(slowed, in_words(slowed, below))
    capped = [gpu for gpu in slow if gpu.capped_percent and gpu not in slowed]
    concern_if(capped, in_words(capped, below))
    unknown = [gpu for gpu in slow if gpu not in (*slowed, *capped)]
    if unknown:
        incomplete(
            f"{in_words(unknown, below)}: {RECORD}, or nvidia-smi's clocks_event_reasons.active, says what holds "
            "it down"
        )


def in_words(slow: list[SlowClock], below: float) -> str:
    """`gpu001 gpu3 at 0.81 of its peers' clock for 12 min, slowed by hardware 40 % of it; expected at least 0.95`."""
    seen = []
    for gpu in slow[:MAX_GPUS]:
        by = "slowed by hardware" if gpu.slowed_percent else "held by the power cap"
        percent = gpu.slowed_percent or gpu.capped_percent
        held = f", {by} {percent:.0f} % of it" if percent else ""
        shown = apart(gpu.share, below, 2)[0]
        seen.append(f"{gpu.name} at {shown} of its peers' clock for {gpu.seconds / 60:.0f} min{held}")
    more = f" and {len(slow) - MAX_GPUS} more" if len(slow) > MAX_GPUS else ""
    return f"{'; '.join(seen)}{more}; expected at least {below:g}"


@mark.hyperpod_node_debugger("G")
@evidence("nvidia-smi -l 10; journalctl -k --grep 'NVRM: Xid'")
def test_gpu_lost(run: TrainingRun) -> None:
    """GPUs that are lost during the run.

    What nvidia-smi prints instead of values: a GPU that is lost or waits for a reset, or of which it has no handle any
    more, fails; one of which no value can be read is a concern. One of which nothing is sampled any more while others
    of its node are, for a minute at least, is incomplete, and so is a node, for five minutes, or one whose driver it
    does not reach: a container that has lost its devices says so of healthy GPUs.

    Remedy (reset or reboot): Drain the node and look for an Xid at that time; reset the GPU, or reboot. If it is lost
    again, replace the node.
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
        words = [f"nothing of {gpu.name} behind {moment(gpu.time_s)}" for gpu in unseen[:MAX_GPUS]]
        more = f" and {len(unseen) - MAX_GPUS} more" if len(unseen) > MAX_GPUS else ""
        incomplete(f"{'; '.join(words)}{more}; expected samples as of the others: look whether it is lost")
    if not lost:
        _ = run.sampled.gpus


def lost_in_words(run: TrainingRun, lost: Sequence[GpuLost]) -> str:
    """`gpu001 gpu3 from 2025-07-21 15:15:00 on: GPU is lost`."""
    seen = [f"{' '.join((gpu.node, gpu.device)).strip()} {since(run, gpu)}: {gpu.words}" for gpu in lost[:MAX_GPUS]]
    more = f" and {len(lost) - MAX_GPUS} more" if len(lost) > MAX_GPUS else ""
    return f"{'; '.join(seen)}{more}"


def since(run: TrainingRun, gpu: GpuLost) -> str:
    """`from 2025-07-21 15:15:00 on`, or until when, where it has values again."""
    back = back_s(run.data.samples, gpu)
    first, last = moment(gpu.time_s), moment(gpu.last_s)
    if back is None:
        return f"from {first} on"
    when = f"at {first}" if first == last else f"from {first} to {last}"
    return f"{when}, and with values again from {moment(back)} on"


def moment(time_s: float) -> str:
    """The date and time of a file's own clock; of one without dates the minutes."""
    if time_s < DAYS_S:
        return f"minute {time_s / 60:.0f}"
    return strftime("%Y-%m-%d %H:%M:%S", gmtime(time_s))
