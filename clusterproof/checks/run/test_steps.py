"""Step times: outliers, drift, data loading, checkpoints, the start."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair, number_of
from clusterproof.plugins.core.verdict import (
    Incomplete,
    NotApplicable,
    concern,
    concern_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run import CHECKPOINT, DATA, EXPOSED, INIT, kind_of
from clusterproof.plugins.training_run.rules.phases import all_wait, waited_for
from clusterproof.plugins.training_run.rules.silent_ranks import require_all
from clusterproof.plugins.training_run.rules.steps import (
    DRIFT_LINES,
    DRIFT_STEPS,
    EACH_STEP,
    OUTLIER_LINES,
    OUTLIER_STEPS,
    Outliers,
    drift,
    outliers,
    period,
)
from clusterproof.plugins.training_run.rules.straggler_cost import holds_up
from clusterproof.plugins.training_run.rules.stragglers import MIN_STEPS, WARM_UP
from clusterproof.plugins.training_run.run import TrainingRun

pytestmark = [mark.run]

LOG = "the seconds of each step and its parts, as docs/training-runs.md logs them"
MAX_STEPS = 5  # that are named


@mark.hyperpod_performance_debugger
@evidence(LOG)
def test_step_outliers(run: TrainingRun) -> None:
    """Step duration outliers.

    A step is an outlier if it exceeds the median by five standard deviations, estimated from the middle of all steps,
    and by a fifth. The time lost is the time above the median. Checkpoints are ignored. A log line that covers several
    steps is judged by their mean; if a single long step could hide in it, the check does not pass. A rank that computes
    longest in half of these steps, and in more of them than by chance, is named if that accounts for half of the excess
    over an ordinary step.

    Remedy (investigate): Check what else happens in these steps: evaluation, logging, garbage collection (gc.freeze), a
    stalled file system, another job on the node.
    """
    series = run.timed(OUTLIER_STEPS, OUTLIER_LINES)
    slow = outliers(series)
    require_all(run.silent)
    lost, most = 100 * slow.share, run.threshold("run.step_outliers_lost_percent")
    if lost > most:
        longest = ", ".join(f"{step.label} ({step.seconds:.3g} s)" for step in slow.steps[:MAX_STEPS])
        shown, limit = format_pair(lost, most, 1)
        each = (
            f", about every {number} steps, as by a checkpoint or an evaluation"
            if (number := period(slow.steps))
            else ""
        )
        concern(
            f"{slow.count} of {slow.of} steps take far longer than the usual {slow.typical_s:.3g} s, "
            f"e.g. {longest}{each}: {shown} % of the time is lost; expected at most {limit} %{held_up_by(run, slow)}"
        )
    hidden = outliers(series, within=True)
    if 100 * hidden.share > most:
        incomplete(
            f"{len(hidden.steps)} lines that stand for several steps each are above the usual {slow.typical_s:.3g} s: "
            f"whether few steps take far longer cannot be told; expected a line for each: {EACH_STEP}"
        )


def held_up_by(run: TrainingRun, slow: Outliers) -> str:
    """`; rank 3 computes longest in 58 of them, …`, if one rank does; empty if none does, or that is unknown."""
    try:
        computed = run.computed
    except (Incomplete, NotApplicable):
        return ""
    longer = {step.step: step.seconds - slow.typical_s for step in slow.steps if step.times == 1}
    held = holds_up(computed, longer, run.threshold("run.held_up_errors"))
    if not held:
        return ""
    rank = held.position.rank
    return (
        f"; {run.data.rank_words(rank)} computes longest in {held.times} of them, by {held.longest:.3g} s in step "
        f"{held.longest_step}{run.where(rank)}"
    )


@mark.hyperpod_performance_debugger("A")
@evidence(LOG)
def test_step_drift(run: TrainingRun) -> None:
    """Step duration drift.

    Remedy (investigate): Find what changed at that step: a hot or throttled GPU, another job on the network, a file
    system that filled up, longer sequences. run.slow_rank names the rank if the log has operations from after the
    change.
    """
    rise, most = drift(run.timed(DRIFT_STEPS, DRIFT_LINES)), run.threshold("run.step_drift_concern")
    if rise and rise.times >= most:
        shown, limit = format_pair(rise.times, most, 2)
        concern(
            f"from step {rise.step} on steps take {rise.after:.3g} s, {shown} times the {rise.before:.3g} s before; "
            f"expected less than {limit} times"
        )


@mark.hyperpod_performance_debugger("B")
@evidence(LOG)
def test_data_wait(run: TrainingRun) -> None:
    """Wait for data.

    Names the rank that waits for the largest share of its steps, unless it stays below the limit in half of the run's
    parts: then it was stopped in only a few steps, as happens on shared machines. No rank is named if most ranks wait
    as long.

    Remedy (fix code): Give the DataLoader more workers (num_workers), pin_memory=True and a larger prefetch_factor;
    then check the file system.
    """
    every = run.shares(DATA, is_steady=True)
    largest, least = every[0], int(run.threshold("run.data_wait_steps"))
    with part:
        if largest.steps < least:
            incomplete(f"{number_of(largest.steps, 'step')}; expected at least {least}: log more of them")
        if largest.has_warm_up:
            few = f"{largest.steps} steps, of which the first {WARM_UP} are the run's warm-up"
            incomplete(f"{few}; expected at least {WARM_UP + MIN_STEPS}, or a trace of later ones: log more of them")
    every = [rank for rank in every if rank.steps >= least and not rank.has_warm_up]
    if not every:
        return
    largest = every[0]
    share, most = 100 * largest.share, run.threshold("run.data_wait_percent")
    if share > most:
        shown, limit = format_pair(share, most, 1)
        if all_wait(every, run.threshold("run.data_wait_alike_share")):
            concern(f"all ranks wait for data, for up to {shown} % of their steps; expected at most {limit} %")
        if 100 * largest.median_share > most:
            loader = run.data.loaders.get(largest.rank)
            how = f" ({loader.description})" if loader else ""
            who = run.data.rank_words(largest.rank)
            concern(f"{who} waits for data for {shown} % of its steps{how}; expected at most {limit} %")
        few = f"most of it in a few steps, {largest.longest:.3g} s in one"
        concern(f"up to {shown} % of a rank's steps is a wait for data, {few}; expected at most {limit} %")


@mark.hyperpod_nccl
@evidence("a trace of torch.profiler: kernels named nccl*, and where no other kernel runs beside them")
def test_comm_exposed(run: TrainingRun) -> None:
    """Exposed communication.

    The part of each step in which only NCCL kernels run: communication that is not overlapped, or waiting for a late
    rank. A late rank waits least itself: if one rank waits far less than the others, that rank is named, not the one
    that waits longest.

    Remedy (investigate): Overlap communication with compute: larger buckets, FSDP prefetching, more micro-batches. If a
    rank is named, it has more work, or a slow GPU or data loader: see run.slow_rank and run.last_to_come.
    """
    every = run.shares(EXPOSED)
    largest, least = every[0], int(run.threshold("run.comm_exposed_steps"))
    if not any(rank.times for rank in every):
        not_applicable("the trace has no kernel of a collective")
    most = run.threshold("run.comm_exposed_percent")
    shown, limit = format_pair(100 * largest.share, most, 1)
    if largest.steps < least:
        who = run.data.rank_words(largest.rank)
        seen = f"in {shown} % of {number_of(largest.steps, 'step')} of {who} only collectives run"
        with part:
            incomplete(f"{seen}; expected at least {least} steps: trace more of them")
        every = [rank for rank in every if rank.steps >= least]
        if not every:
            return
        largest = every[0]
        shown, limit = format_pair(100 * largest.share, most, 1)
    if 100 * largest.share > most:
        late, who = waited_for(every, run.threshold("run.comm_waited_for_share")), run.data.rank_words(largest.rank)
        if late:
            concern(
                f"others wait for rank {late.rank}: only collectives run in {100 * late.share:.1f} % of its steps, "
                f"and in {shown} % of those of {who}; expected at most {limit} %{run.where(late.rank)}"
            )
        concern(f"{who}: in {shown} % of its steps only collectives run; expected at most {limit} %")


@mark.hyperpod_performance_debugger("B")
@evidence(LOG)
def test_init_time(run: TrainingRun) -> None:
    """Start of the job.

    The stage called init of the first step or of a log's first lines; otherwise, if nodes were sampled from the start
    of the job, as SageMaker does, the time until the first step.

    Remedy (investigate): Check what the job does before its first step: pulling the image, loading the checkpoint and
    the data index, compiling, and initialising NCCL.
    """
    longest = run.threshold("run.init_s")
    if (before := run.before_steps) and not any(kind_of(name) == INIT for _, name in run.data.parts):
        begun_late(run, *before)
        return
    every = run.shares(INIT)
    start, most_s = every[0], max(rank.longest for rank in every)
    share, most = 100 * start.share, run.threshold("run.init_percent")
    seconds, (shown, limit) = f"{start.longest:.0f}", format_pair(share, most, 1)
    concern_if(most_s > longest, f"{most_s:.0f} s to the first step; expected at most {longest:.0f} s")
    starts = f"{start.times} starts of {start.seconds:.0f} s together"
    whole = starts if start.times > 1 else f"{seconds} s to the first step"
    concern_if(share > most, f"{whole}, {shown} % of all that was logged; expected at most {limit} %")


def begun_late(run: TrainingRun, seconds: float, whole: float) -> None:
    """Report if the time until the first step was too long, from the first sample of its nodes on."""
    longest, most = run.threshold("run.init_s"), run.threshold("run.init_percent")
    share, (shown, limit) = 100 * seconds / whole, format_pair(100 * seconds / whole, most, 1)
    concern_if(seconds > longest, f"{seconds:.0f} s to the first step; expected at most {longest:.0f} s")
    concern_if(share > most, f"{seconds:.0f} s to the first step, {shown} % of the job; expected at most {limit} %")


@mark.hyperpod_performance_debugger("B")
@evidence(LOG)
def test_checkpoint_share(run: TrainingRun) -> None:
    """Time spent on checkpoints.

    Remedy (fix code): Save checkpoints asynchronously and sharded (torch.distributed.checkpoint.async_save), to storage
    fast enough for all ranks at once, or less often.
    """
    every, least = run.shares(CHECKPOINT), int(run.threshold("run.checkpoints"))
    if every[0].times < least:
        with part:
            incomplete(f"{every[0].times} checkpoints; expected at least {least}: log a longer part of the run")
    spent = next((rank for rank in every if rank.times >= least), None)
    if spent is None:
        return
    share, most = 100 * spent.share, run.threshold("run.checkpoint_percent")
    if share > most:
        shown, limit = format_pair(share, most, 1)
        concern(
            f"{run.data.rank_words(spent.rank)} spends {shown} % of its time on {spent.times} checkpoints; "
            f"expected at most {limit} %"
        )
