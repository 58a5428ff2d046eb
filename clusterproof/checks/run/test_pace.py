"""Compute time of ranks: slow hardware, uneven work, uneven pipeline stages."""

from __future__ import annotations

from statistics import median

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair, listed
from clusterproof.plugins.core.verdict import concern, concern_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run import rank_names
from clusterproof.plugins.training_run.rules.last_rank import recorded_by, require_every_rank
from clusterproof.plugins.training_run.rules.silent_ranks import require_all
from clusterproof.plugins.training_run.rules.straggler_cost import StragglerCost
from clusterproof.plugins.training_run.rules.stragglers import RankPace, seconds_of_stages
from clusterproof.plugins.training_run.rules.work import common_to_stages, cpu_pressure
from clusterproof.plugins.training_run.run import RankOfRun, TrainingRun

pytestmark = [mark.run]

FAST_SHARE = 0.25  # of the ranks of a stage, from which on a few with less work do not explain it
BY_HAND = "the seconds of each rank's forward and backward, step by step"


@mark.hyperpod_node_debugger("G")
@evidence("on the rank's node: nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE")
def test_slow_rank(rank: RankOfRun) -> None:
    """Compute time of each rank.

    All other ranks wait for a slow rank in each step. Each rank's compute time is compared, step by step, with the
    median of the ranks of its pipeline stage. If the work varies from step to step, because of sequence lengths or
    shared CPUs, a rank is named only if it is slow in each of five parts of the run. The second half is also evaluated
    on its own, to find a rank that becomes slow. If the work varies so much that a rank 10 % slower could hide in it,
    the check does not pass. A rank whose replica is slow in other stages too has more work, and is not named, unless it
    is far slower than they are.

    Remedy (investigate): Find the rank's GPU and node, drain the node, and check its clocks, temperature and power.
    Measure it in pairs (clusterproof check X -m perf -k pairwise). If the code gives this rank more work, its node is
    not at fault.
    """
    least, most = rank.threshold("run.slow_rank_concern"), rank.threshold("run.slow_rank_fail")
    require_all({rank.position.rank: reason} if (reason := rank.run.uncompared.get(rank.position.rank)) else {})
    uneven, errors = rank.threshold("run.work_swing_strict"), rank.threshold("run.certain_errors")
    whole = rank.pace
    if whole.is_work(least):
        return
    later, work = rank.later_pace, whole.work(least)
    fails = whole.is_certain(errors, work) and whole.slower(uneven) >= most * work and whole.at_least(uneven)[0] >= 1
    becomes_slow = (
        later
        and later.is_certain(errors)
        and not later.is_work(least)
        and later.low_of_parts >= least
        and later.slower(uneven) > whole.slower(uneven)
    )
    pace, when = (later, " in the later half of the run") if later and becomes_slow and not fails else (whole, "")
    slower, (low, of_what), work = pace.slower(uneven), pace.at_least(uneven), pace.work(least)
    if slower < least:
        require_certainty(whole, most, errors)
        return
    times, peers = format_pair(max(slower, pace.ratio), least, 2)[0], pace.peers
    if not pace.is_certain(errors, work):
        incomplete(
            f"computes {times} times as long as its {peers} peers in {pace.steps} steps, which vary too much to "
            f"tell; expected about {pace.steps_for(errors, work)} steps"
        )
    seen = f"computes {times} times as long as its {peers} peers{when}, in {of_what} at least {low:.2f} times"
    placement = rank.run.where(rank.position.rank)
    assert slower < most * work or low < 1, f"{seen}; expected less than {most * work:.3g}{placement}"
    concern(f"{seen}; expected less than {least:g}{placement}")


def require_certainty(pace: RankPace, most: float, errors: float) -> None:
    """Raise Incomplete if a failing rank could look the same as one that does not look slow."""
    if pace.excludes(most, errors):
        return
    if pace.ratio >= most:
        incomplete(
            f"computes {pace.ratio:.2f} times as long as its {pace.peers} peers, but not in each part of the run: "
            "its work swings too much to tell; expected even work (run.work_uneven)"
        )
    incomplete(
        f"its {pace.steps} steps vary too much to tell whether it is slow; "
        f"expected about {pace.steps_for(errors, most)} steps"
    )


@mark.hyperpod_node_debugger("G")
@evidence(BY_HAND + "; on the rank's node: cat /sys/fs/cgroup/cpu.stat (nr_throttled)")
def test_held_up(run: TrainingRun) -> None:
    """Time lost by waiting for one rank.

    In each step all ranks wait for the slowest; its lead over the second slowest is lost time. A rank is named if it
    loses a large share of the run's time, costs the most in at least half of ten parts of the run and more often than
    by chance, and costs twice as much as any other rank. This finds a rank that is as fast as the others in most steps
    but pauses in some.

    Remedy (investigate): Find what pauses this rank's program: a CPU limit of its container (nr_throttled in cpu.stat),
    garbage collection (gc.freeze, gc.disable), swapping, another program on its CPUs. If it is slow in every step, see
    run.slow_rank.
    """
    require_all(run.uncompared)
    most = run.threshold("run.held_up_percent")
    for cost in run.straggler_costs:
        shown, limit = format_pair(cost.percent, most, 1)
        concern_if(
            cost.percent > most and names_a_rank(run, cost),
            f"the others wait for rank {cost.position.rank} for {shown} % of the time: it computes longest in "
            f"{cost.times} of {cost.steps} steps, by {cost.longest:.3g} s in step {cost.longest_step}; "
            f"expected at most {limit} %{run.where(cost.position.rank)}",
        )


def names_a_rank(run: TrainingRun, cost: StragglerCost) -> bool:
    """Whether a cost is that of one rank, significantly, and not of more work."""
    stands_out = cost.seconds >= run.threshold("run.held_up_times") * cost.second
    pace = run.paces.get(cost.position.rank)
    is_work = pace is not None and pace.is_work(run.threshold("run.slow_rank_concern"))
    return stands_out and cost.is_certain(run.threshold("run.held_up_errors")) and not is_work


@mark.hyperpod_performance_debugger
@evidence(BY_HAND)
def test_work_uneven(run: TrainingRun) -> None:
    """Work among ranks.

    In each step the slowest rank holds up all others. It differs from step to step if sequences are distributed at
    random, or if programs pause or share CPUs; it stays the same if one replica always gets more work. Ranks of
    different stages with the same data-parallel rank share their work but no CPU: if at least half of the variation is
    common to them, the work is uneven. If that is unknown, both causes are named. If at least a quarter of the ranks of
    a stage compute far less in each step, the others are slow or have more work.

    Remedy (investigate): If the work is uneven, give each rank the same number of tokens: pack sequences, sort them
    into buckets, distribute them by length. If CPUs are shared, keep other programs off them, and look for CPU limits
    (nr_throttled in cpu.stat) and garbage collection (gc.freeze). Stages and data-parallel ranks in the trace, or
    clusterproof watch --record, tell which it is. If most ranks are slow, compare the clocks of their GPUs. A replica
    that is slow in every stage may also be on a slow node.
    """
    swing, most = run.median_swing, run.threshold("run.work_uneven_concern")
    least = run.threshold("run.slow_rank_concern")
    busy = [
        f"data-parallel rank {replica} computes {ratio:.2f} times as long"
        for replica, ratio in busy_replicas(run, least)
    ]
    concern_if(busy, f"{listed(busy)} as others, in several stages; expected less than {least:g}")
    for fast in fast_ranks(run):
        times, limit = format_pair(1 / max(pace.ratio for pace in fast), run.threshold("run.slow_rank_fail"), 2)
        numbers = sorted(pace.position.rank for pace in fast)
        seen = (
            f"most ranks compute {times} times as long as {rank_names(numbers)} of {fast[0].peers + 1} in their stage"
        )
        concern_if(seen, f"{seen}: most are slow, or have more work; expected less than {limit}")
    if swing >= most:
        times = format_pair(swing, most, 2)[0]
        seen = f"ranks compute {times} times as long as usual in one step of ten"
        concern(f"{seen}: {why_uneven(run)}; expected less than {most:g}")


def fast_ranks(run: TrainingRun) -> list[list[RankPace]]:
    """For each stage the ranks that compute far less than most of it, if these are too many to be called slow.

    If work varies from step to step, nothing is certain.
    """
    most, errors = run.threshold("run.slow_rank_fail"), run.threshold("run.certain_errors")
    if run.median_swing >= run.threshold("run.work_swing_strict"):
        return []
    fast_of_stages = []
    for stage in sorted({pace.position.stage for pace in run.paces.values()}):
        paces = [pace for pace in run.paces.values() if pace.position.stage == stage]
        fast = [pace for pace in paces if pace.is_far_below(most, errors)]
        if max(2, FAST_SHARE * len(paces)) <= len(fast) < len(paces) / 2 and all(pace.ratio < most for pace in paces):
            fast_of_stages.append(fast)
    return fast_of_stages


def busy_replicas(run: TrainingRun, least: float) -> list[tuple[int, float]]:
    """The replicas that compute so many times as long as their peers in several stages, and how many times."""
    ratios: dict[int, list[float]] = {}
    for pace in run.paces.values():
        if pace.position.replica is not None and pace.ratio >= least and pace.is_work(least):
            ratios.setdefault(pace.position.replica, []).append(pace.ratio)
    middles = {replica: median(values) for replica, values in ratios.items()}
    return sorted(middles.items(), key=lambda replica: -replica[1])


def why_uneven(run: TrainingRun) -> str:
    """Why their compute may vary, as far as the run shows it."""
    common, pressure = common_to_stages(run.computed), cpu_pressure(run.data.samples)
    if common is not None:
        seen = f"{100 * max(0.0, common):.0f} % of it is common to ranks that share their work"
        is_work = common >= run.threshold("run.work_common_share")
        return f"{seen}, so the work is uneven" if is_work else f"only {seen}, so CPUs are shared, or programs pause"
    if pressure is None:
        return "the work is uneven, or CPUs are shared or programs pause, and nothing recorded tells which"
    waits = f"tasks wait for a CPU {pressure:.0f} % of the time"
    if pressure >= run.threshold("run.cpu_pressure_percent"):
        return f"{waits}, so CPUs are shared; the work may be uneven too"
    return f"{waits}, so the work is uneven, or programs pause"


@mark.hyperpod_performance_debugger
@evidence(BY_HAND)
def test_stages_uneven(run: TrainingRun) -> None:
    """Work among pipeline stages.

    Remedy (fix code): Move layers from the slow stage to the fast one. The last stage often also computes the loss and
    the vocabulary.
    """
    stages, most = seconds_of_stages(run.computed), run.threshold("run.stages_uneven_concern")
    if len(stages) < 2:
        not_applicable("only one pipeline stage")
    slowest, fastest = max(stages, key=stages.__getitem__), min(stages, key=stages.__getitem__)
    ratio = stages[slowest] / stages[fastest]
    if ratio >= most:
        times = format_pair(ratio, most, 2)[0]
        concern(f"stage {slowest} computes {times} times as long as stage {fastest}; expected less than {most:g}")


@mark.hyperpod_nccl
@evidence("coll_exec_time_us of each rank by coll_sn (NCCL_INSPECTOR_ENABLE=1), or kernels nccl* of all ranks' traces")
def test_last_to_come(run: TrainingRun) -> None:
    """Arrival at collectives.

    An AllReduce, AllGather, ReduceScatter or AllToAll ends on all ranks at once, so it is shortest on the rank that
    arrived last. A rank is named if it arrives last in more than half of a communicator's collectives, with a time at
    least a tenth shorter than the next rank's. Broadcasts and other collectives with a root, sends and receives are
    ignored.

    Remedy (investigate): Check what this rank does before the collective; run.slow_rank shows it if the rank's compute
    time was logged for each step. Its node or data loader may be slow, or it has more work than the others.
    """
    last, most = run.usually_last, run.threshold("run.last_to_come_percent")
    require_every_rank(recorded_by(run.data))
    if last and last.percent > most:
        shown, limit = format_pair(last.percent, most)
        seen = f"comes last to {shown} % of {last.calls} collectives of {last.ranks} ranks"
        if not last.is_certain(run.threshold("run.certain_errors")):
            incomplete(f"rank {last.rank} {seen}, perhaps by chance; expected more collectives: record a longer part")
        waits = f"which wait {last.seconds:.3g} s for it; expected at most {limit} %"
        if last.host:
            concern(f"rank {last.rank} of communicator {last.communicator} ({last.host}) {seen}, {waits}")
        concern(f"rank {last.rank} {seen} ({last.communicator}), {waits}{run.where(last.rank)}")
