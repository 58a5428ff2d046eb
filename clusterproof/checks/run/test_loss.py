"""What a run learns: that its loss is a number, and does not leap."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import apart
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run.losses import LASTING, WINDOW, Leap, are_compared, each
from clusterproof.plugins.training_run.run import TrainingRun

pytestmark = [mark.run]


@mark.hyperpod_performance_debugger
@evidence("grep -iE 'loss: *(nan|inf)' train.log")
def test_loss_finite(run: TrainingRun) -> None:
    """Loss and norm of the gradients.

    A loss that is nan or inf at the end of the log stays so: the run learns nothing any more. One that is a number
    again later was skipped or begun again from a checkpoint. The norm of the gradients alone may be inf in single
    steps, while a loss scale adapts: from three lines at the end on it counts. Leaps are those of run.loss_spikes.

    Remedy (investigate): Go back to a checkpoint from before that step, with a lower learning rate, clipped gradients
    and the batch left out. If the same step goes well on other nodes, a GPU computes wrongly: run dcgmi diag -r 3.
    """
    losses = run.losses
    for rank, series in losses.never_again:
        seen = f"the loss is {series.word} from {series.since} on, in {series.at_end} of {series.lines} lines"
        fail_if(series.at_end, f"rank {rank}: {seen}; expected a number")
    for rank, series in losses.for_a_while:
        seen = f"the loss is {series.word} in {series.wrong} of {series.lines} lines, first at {series.first_wrong}"
        concern_if(series.wrong, f"rank {rank}: {seen}, and a number again later; expected one in each")
    for rank, series in losses.without_norm:
        seen = f"the norm of the gradients is {series.word} from {series.since} on"
        concern_if(series.at_end, f"rank {rank}: {seen}; expected a number")
    for rank, series in losses.unclear:
        seen = f"the loss is 0 in the last {series.unclear_at_end} lines, which Trainer prints for nan too"
        incomplete(f"rank {rank}: {seen}, and they have no grad_norm; set logging_nan_inf_filter=False")


@mark.hyperpod_performance_debugger
@evidence("grep -oiE '(loss|grad[ _]norm): *[0-9.e+-]+' train.log")
def test_loss_spikes(run: TrainingRun) -> None:
    """Spikes of the loss and of the gradients.

    Each line of the log is compared with the hundred before it. A loss counts that is ten times the largest of them, or
    twice their mean in five lines one behind the other; a norm of the gradients that is ten times the largest of them.
    A loss that no longer falls is not evaluated: no threshold for it is known.

    Remedy (investigate): Look whether the loss came back. If not, go back to a checkpoint from before, leave out the
    batches around that step, and lower the learning rate or clip gradients. If the same batch goes well on other nodes,
    a GPU computes wrongly: run dcgmi diag -r 3.
    """
    logged = run.losses
    leap, rise, norm = (run.threshold(f"run.{name}") for name in ("loss_leap", "loss_rise", "norm_leap"))
    largest, mean = f"the largest of the {WINDOW} lines before", f"the mean of the {WINDOW} lines before"
    for rank, series in each(logged.losses):
        for seen, most, times in (
            (series.leap, leap, largest),
            (series.rise, rise, f"{mean}, as in {LASTING} lines together"),
        ):
            concern_if(excess := too_high(seen, most, times), f"rank {rank}: the loss {excess}")
    for rank, series in each(logged.norms):
        concern_if(excess := too_high(series.leap, norm, largest), f"rank {rank}: the norm of the gradients {excess}")
    kinds = {"loss": logged.losses, "norm of the gradients": logged.norms}
    alone = " and no ".join(what for what, series in kinds.items() if not are_compared(series))
    if alone:
        incomplete(
            f"no {alone} has {WINDOW} before it, all above 0; expected more of them: log a longer part of the run"
        )


def too_high(seen: Leap | None, most: float, times: str) -> str:
    """`is 30 at step 200, 15 times the largest …; expected less than 10 times`; empty where it is not."""
    if seen is None or seen.times < most:
        return ""
    shown, limit = apart(seen.times, most, 1)
    return f"is {seen.value:.3g} at {seen.at}, {shown} times {times}; expected less than {limit} times"
