"""What a run learns: that its loss is a number, and does not leap."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import apart
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run.loss_window import LASTING, WINDOW, Leap
from clusterproof.plugins.training_run.losses import LossSeries, are_compared
from clusterproof.plugins.training_run.run import TrainingRun

pytestmark = [mark.run]


@mark.hyperpod_performance_debugger
@evidence("grep -iE 'loss: *(nan|inf)' train.log")
def test_loss_finite(run: TrainingRun) -> None:
    """Loss and norm of the gradients.

    A loss that is nan or inf at the end of the log stays so: the run learns nothing any more. One that is a number
    again later was skipped or begun again from a checkpoint. The norm of the gradients alone may be inf in single
    steps, while a loss scale adapts, and such steps are skipped: from three lines at the end on both count. A loss that
    a log no longer has, as Megatron-LM leaves nan out and pandas leaves its cell empty, may be none. Leaps are those of
    run.loss_spikes.

    Remedy (investigate): Go back to a checkpoint from before that step, with a lower learning rate, clipped gradients
    and the batch left out. If the same step goes well on other nodes, a GPU computes wrongly: run dcgmi diag -r 3.
    """
    losses = run.data.losses
    for said in alike(losses.never_again, never_again):
        fail_if(said, f"{said}; expected a number")
    for said in alike(losses.for_a_while, for_a_while):
        concern_if(said, f"{said}, and a number again later; expected one in each")
    for said in alike(
        losses.without_norm, lambda norm: f"the norm of the gradients is {norm.word} from {norm.since} on"
    ):
        concern_if(said, f"{said}; expected a number")
    for said in alike(losses.skipping, skipping):
        concern_if(said, f"{said}; expected steps that change the weights")
    for said in alike(losses.unclear, unclear):
        incomplete(said)
    _ = run.losses


@mark.hyperpod_performance_debugger
@evidence("grep -oiE '(loss|grad[ _]norm): *[0-9.e+-]+' train.log")
def test_loss_spikes(run: TrainingRun) -> None:
    """Spikes of the loss and of the gradients.

    Each line of the log is compared with the hundred before it. A loss counts that is ten times the largest of them, or
    twice their mean in five lines one behind the other; a norm of the gradients that is ten times the largest of them.
    A loss that no longer falls is not evaluated: no threshold for it is known; nor is one of reinforcement learning,
    beside rewards or a KL divergence, which begins at 0 and may grow.

    Remedy (investigate): Look whether the loss came back. If not, go back to a checkpoint from before, leave out the
    batches around that step, and lower the learning rate or clip gradients. If the same batch goes well on other nodes,
    a GPU computes wrongly: run dcgmi diag -r 3.
    """
    logged = run.losses
    leap, rise, norm = (run.threshold(f"run.{name}") for name in ("loss_leap", "loss_rise", "norm_leap"))
    largest, mean = f"the largest of the {WINDOW} lines before", f"the mean of the {WINDOW} lines before"
    falling = {key: series for key, series in logged.losses.items() if not series.may_grow}
    rises = f"{mean}, as in {LASTING} lines together"
    for name, series in logged.named(logged.losses):
        for seen, most, times in ((series.window.leap, leap, largest), (series.window.rise, rise, rises)):
            concern_if(excess := too_high(seen, most, times), f"{name}: the loss {excess}")
    for name, series in logged.named(logged.norms):
        concern_if(excess := too_high(series.window.leap, norm, largest), f"{name}: the norm of the gradients {excess}")
    kinds = {"loss": falling, "norm of the gradients": logged.norms}
    if not any(kinds.values()):
        not_applicable("a loss beside rewards, as of GRPO, may grow from 0, and no norm of the gradients is logged")
    alone = " and no ".join(what for what, series in kinds.items() if not are_compared(series))
    if alone:
        incomplete(
            f"no {alone} has {WINDOW} before it, all above 0; expected more of them: log a longer part of the run"
        )


def alike(found: Iterable[tuple[str, LossSeries]], words: Callable[[LossSeries], str]) -> list[str]:
    """A line for all of whom the same is to be said: `rank 0 and 7 more: the loss is nan …`."""
    names: dict[str, list[str]] = {}
    for name, series in found:
        names.setdefault(words(series), []).append(name)
    return [f"{of[0]}{f' and {len(of) - 1} more' if len(of) > 1 else ''}: {seen}" for seen, of in names.items()]


def never_again(loss: LossSeries) -> str:
    """`the loss is nan from step 60 on, in 241 of 300 lines`."""
    return f"the loss is {loss.word} from {loss.since} on, in {loss.at_end} of {loss.lines} lines"


def for_a_while(loss: LossSeries) -> str:
    """`the loss is inf in 2 of 300 lines, first at step 40`."""
    return f"the loss is {loss.word} in {loss.wrong} of {loss.lines} lines, first at {loss.first_wrong}"


def skipping(steps: LossSeries) -> str:
    """`the optimizer skips every step from step 290 on, in 11 of 300 lines`."""
    return f"the optimizer skips every step from {steps.since} on, in {steps.at_end} of {steps.lines} lines"


def unclear(loss: LossSeries) -> str:
    """What the last lines have instead of a loss, and what would tell it."""
    if loss.missing_at_end:
        seen = f"the last {loss.missing_at_end} of its lines have no loss, which Megatron-LM leaves out if it is nan"
        return f"{seen}, and pandas leaves empty; expected one in each"
    seen = f"the loss is 0 in the last {loss.unclear_at_end} lines, which Trainer prints for nan too"
    return f"{seen}, and they have no grad_norm; set logging_nan_inf_filter=False"


def too_high(seen: Leap | None, most: float, times: str) -> str:
    """`is 30 at step 200, 15 times the largest …; expected less than 10 times`; empty where it is not."""
    if seen is None or seen.times < most:
        return ""
    shown, limit = apart(seen.times, most, 1)
    return f"is {seen.value:.3g} at {seen.at}, {shown} times {times}; expected less than {limit} times"
