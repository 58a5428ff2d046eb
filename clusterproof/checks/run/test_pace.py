"""How long ranks compute: slow hardware, uneven work, uneven stages."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import apart
from clusterproof.plugins.core.verdict import concern, concern_if, incomplete, not_applicable
from clusterproof.plugins.suite.routing import evidence
from clusterproof.plugins.training_run.pace import Pace
from clusterproof.plugins.training_run.run import RankOfRun, TrainingRun

pytestmark = [mark.run]

BY_HAND = "the seconds of each rank's forward and backward, step by step"


@mark.hyperpod_node_debugger("G")
@evidence("on the rank's node: nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE")
def test_slow_rank(rank: RankOfRun) -> None:
    """Compute time of each rank.

    Every other rank waits for it in each step. Its own compute is compared with the median of the ranks of the same
    pipeline stage, step by step. If the work varies from step to step, as with sequence lengths, a rank is named only
    if it is slow in nine of ten steps. Work that varies so much that a rank slower by a tenth could hide in it is not a
    pass; a rank whose replica is slow in other stages too has more work, and is not named.

    Remedy (investigate): Find the rank's GPU and node, take the node out of the job, and check its clocks, temperature
    and power. Measure it in pairs: pytest --cluster X -m perf. If the code gives this rank more to do, nothing is wrong
    with it.
    """
    pace, least, most = rank.pace, rank.threshold("run.slow_rank_concern"), rank.threshold("run.slow_rank_fail")
    slower, errors = pace.slower(rank.threshold("run.work_swing_strict")), rank.threshold("run.certain_errors")
    if pace.is_work(least):
        return
    if slower < least:
        require_certainty(pace, most, errors)
        return
    times, peers = apart(slower, least, 2)[0], pace.peers
    if not pace.is_certain(errors):
        incomplete(
            f"computes {times} times as long as its {peers} peers in {pace.steps} steps, which differ too much "
            f"to tell; expected about {pace.steps_for(errors)} steps"
        )
    seen = f"computes {times} times as long as its {peers} peers, in nine of ten steps at least {pace.low:.2f} times"
    seat = rank.run.seat(rank.place.rank)
    assert slower < most or pace.low < 1, f"{seen}; expected less than {most:g}{seat}"
    concern(f"{seen}; expected less than {least:g}{seat}")


def require_certainty(pace: Pace, most: float, errors: float) -> None:
    """Raise Incomplete where a rank that fails could look the same as one that does not look slow."""
    if pace.excludes(most, errors):
        return
    if pace.ratio >= most:
        incomplete(
            f"computes {pace.ratio:.2f} times as long as its {pace.peers} peers, but not in nine of ten steps: "
            "its work swings too much to tell; expected even work (run.work_uneven)"
        )
    incomplete(
        f"its {pace.steps} steps vary too much to tell whether it is slow; "
        f"expected about {pace.steps_for(errors, most)} steps"
    )


@mark.hyperpod_performance_debugger
@evidence(BY_HAND)
def test_work_uneven(run: TrainingRun) -> None:
    """Work among ranks.

    In each step the rank with the most work, such as the longest sequences, holds up all others. Which one it is varies
    from step to step if sequences are distributed at random, and stays the same if one replica always gets more.

    Remedy (fix code): Give each rank the same number of tokens: pack sequences, sort them into buckets, distribute them
    by length. A replica that is always slow, in every stage, may also be on one slow node.
    """
    swing, most = run.usual_swing, run.threshold("run.work_uneven_concern")
    least = run.threshold("run.slow_rank_concern")
    busy = [f"data-parallel rank {replica} computes {ratio:.2f} times as long" for replica, ratio in run.busy(least)]
    concern_if(busy, f"{', '.join(busy)} as others, in several stages; expected less than {least:g}")
    times = apart(swing, most, 2)[0]
    words = f"ranks compute {times} times as long as usual in one step of ten; expected less than {most:g}"
    concern_if(swing >= most, words)


@mark.hyperpod_performance_debugger
@evidence(BY_HAND)
def test_stages_uneven(run: TrainingRun) -> None:
    """Work among pipeline stages.

    Remedy (fix code): Move layers from the slow stage to the fast one; the last stage often has the loss and the
    vocabulary as well.
    """
    stages, most = run.stages, run.threshold("run.stages_uneven_concern")
    if len(stages) < 2:
        not_applicable("one pipeline stage")
    slowest, fastest = max(stages, key=stages.__getitem__), min(stages, key=stages.__getitem__)
    ratio = stages[slowest] / stages[fastest]
    if ratio >= most:
        times = apart(ratio, most, 2)[0]
        concern(f"stage {slowest} computes {times} times as long as stage {fastest}; expected less than {most:g}")


@mark.hyperpod_nccl
@evidence("coll_exec_time_us of each rank by coll_sn (NCCL_INSPECTOR_ENABLE=1), or kernels nccl* of all ranks' traces")
def test_last_to_come(run: TrainingRun) -> None:
    """Arrival at collectives.

    An AllReduce, AllGather, ReduceScatter or AllToAll ends on all ranks at once, so it is shortest on the rank that
    came last. A rank is named if it comes last, by a tenth of the time of the one before it, to more than half of those
    of a communicator. Broadcasts and other collectives with a root, sends and receives say nothing of it.

    Remedy (investigate): Look at what this rank does before: run.slow_rank shows it, given its compute step by step.
    Its node or its loader may be slow, or it has more work than the others.
    """
    found, most = run.last_to_come, run.threshold("run.last_to_come_percent")
    if found and found.percent > most:
        shown, limit = apart(found.percent, most)
        seen = f"comes last to {shown} % of {found.calls} collectives of {found.ranks} ranks"
        if not found.is_certain(run.threshold("run.certain_errors")):
            incomplete(f"rank {found.rank} {seen}: that may be chance; expected more of them: record a longer part")
        waits = f"which wait {found.seconds:.3g} s for it; expected at most {limit} %"
        if found.host:
            concern(f"rank {found.rank} of communicator {found.communicator} ({found.host}) {seen}, {waits}")
        concern(f"rank {found.rank} {seen} ({found.communicator}), {waits}{run.seat(found.rank)}")
