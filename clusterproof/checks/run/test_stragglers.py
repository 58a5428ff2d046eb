"""Stragglers that move from rank to rank: what they cost a run together."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import concern
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run import Position
from clusterproof.plugins.training_run.rules.silent_ranks import require_all
from clusterproof.plugins.training_run.rules.stragglers import MIN_PEERS, Computed, steady
from clusterproof.plugins.training_run.run import TrainingRun

pytestmark = [mark.run]


@mark.hyperpod_performance_debugger
@evidence("the seconds of each rank's forward and backward, step by step; gc.callbacks, py-spy: what pauses")
def test_stragglers(run: TrainingRun) -> None:
    """Time lost to changing stragglers.

    In each step all ranks wait for the slowest; its excess over its stage's mean is lost time. Each rank is compared
    with its own usual pace: run.slow_rank covers a rank that is always slow, and run.held_up a rank that causes more
    than half of the loss. The slowdown is the duration of the steps divided by their duration without the loss; if
    durations were not logged, compute time is used.

    Remedy (investigate): Pauses at different times on different ranks add up: run garbage collection on all ranks in
    the same step (gc.disable, gc.collect), and keep other programs off the ranks' CPUs. If the work is uneven
    (run.work_uneven), give each rank the same number of tokens.
    """
    require_all(run.uncompared)
    most = run.threshold("run.straggler_slowdown")
    changing = [loss for loss in losses(run) if loss.slowdown >= most and loss.is_of_several]
    if changing:
        loss = max(changing, key=lambda loss: loss.seconds)
        shown, limit = format_pair(loss.slowdown, most, 2)
        concern(
            f"steps take {shown} times as long as if no rank were behind the others: {len(loss.by_rank)} "
            f"of {loss.of} ranks are the slowest in turn; expected less than {limit} times"
        )


@record
class LostTime:
    """Seconds that the ranks of a pipeline stage wait for the slowest one, and how many of them each rank causes."""

    seconds: float
    whole: float
    of: int
    by_rank: Mapping[int, float]

    @property
    def slowdown(self) -> float:
        """How many times as long the steps take as without the loss."""
        return self.whole / (self.whole - self.seconds) if self.whole > self.seconds else 1.0

    @property
    def is_of_several(self) -> bool:
        """Whether no rank causes more than half of it."""
        return 2 * max(self.by_rank.values()) <= self.seconds


def losses(run: TrainingRun) -> list[LostTime]:
    """The loss of each stage with enough ranks. Raises Incomplete, NotApplicable."""
    stages: dict[int, dict[Position, Computed]] = {}
    _ = run.ranks
    for position, seconds in run.computed.items():
        stages.setdefault(position.stage, {})[position] = seconds
    lasted = {step.step: step.seconds for step in run.every_step if step.times == 1}
    return [_of_stage(run, stage, lasted) for stage in stages.values() if len(stage) >= MIN_PEERS]


def _of_stage(run: TrainingRun, stage: Mapping[Position, Computed], lasted: Mapping[int, float]) -> LostTime:
    whole, by_rank = 0.0, dict[int, float]()
    for step in steady({step for seconds in stage.values() for step in seconds}):
        own = {
            position.rank: seconds[step] / pace.ratio
            for position, seconds in stage.items()
            if step in seconds and (pace := run.paces.get(position.rank))
        }
        if len(own) < MIN_PEERS:
            continue
        slowest = max(own, key=own.__getitem__)
        by_rank[slowest] = by_rank.get(slowest, 0.0) + own[slowest] - fmean(own.values())
        whole += lasted.get(step, own[slowest])
    return LostTime(sum(by_rank.values()), whole, len(stage), by_rank or {-1: 0.0})
