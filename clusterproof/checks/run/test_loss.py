"""The loss of a run: values that are no numbers, and jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run.loss_window import LASTING, WINDOW, Leap
from clusterproof.plugins.training_run.losses import LossSeries, are_compared
from clusterproof.plugins.training_run.run import TrainingRun

pytestmark = [mark.run]


@mark.hyperpod_performance_debugger
@evidence("grep -iE 'loss\\W{1,4}(nan|inf)|nan iterations: +[1-9]' train.log")
def test_loss_finite(run: TrainingRun) -> None:
    """Loss and norm of the gradients.

    A loss that is nan or inf at the end of the log stays so: the run no longer learns. If it becomes a number again,
    those steps were skipped or repeated from a checkpoint. The gradient norm may be inf in single steps while the loss
    scale adapts, and such steps are skipped: it counts only from three lines at the end on. If the last lines have no
    loss, it may be nan: Megatron-LM leaves it out, and pandas leaves the cell empty. See run.loss_spikes for jumps.

    Remedy (investigate): Restart from a checkpoint before that step with a lower learning rate, gradient clipping, and
    without that batch. If the same step succeeds on other nodes, a GPU computes wrong results: run dcgmi diag -r 3.
    """
    losses = run.data.losses
    for message in by_message(losses.never_again, never_again):
        fail_if(message, f"{message}; expected a number")
    for message in by_message(losses.for_a_while, for_a_while):
        concern_if(message, f"{message}, then a number again; expected a number in each")
    for message in by_message(
        losses.without_norm, lambda norm: f"the norm of the gradients is {norm.word} from {norm.since} on"
    ):
        concern_if(message, f"{message}; expected a number")
    skips = list(losses.skipping)
    for message in by_message(((name, steps) for name, steps in skips if not steps.is_settling), skipping):
        concern_if(message, f"{message}; expected steps that change the weights")
    for message in by_message(((name, steps) for name, steps in skips if steps.is_settling), settling):
        incomplete(message)
    for message in by_message(losses.unclear, unclear):
        incomplete(message)
    _ = run.losses


@mark.hyperpod_performance_debugger
@evidence("grep -oiE '(loss|grad[ _]norm)\\W{1,4}[0-9.,e+-]+' train.log")
def test_loss_spikes(run: TrainingRun) -> None:
    """Spikes of the loss and of the gradients.

    Each log line is compared with the hundred before it. A loss counts as a spike if it is ten times the largest of
    them, or twice their mean in five lines in a row; a gradient norm if it is ten times the largest. A loss that no
    longer falls is not evaluated, since no threshold is known; nor is a loss of reinforcement learning (logged with
    rewards or a KL divergence), which starts at 0 and may grow.

    Remedy (investigate): Check whether the loss recovered. If not, restart from an earlier checkpoint, skip the batches
    around that step, and lower the learning rate or clip gradients. If the same batch succeeds on other nodes, a GPU
    computes wrong results: run dcgmi diag -r 3.
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


def by_message(series_by_name: Iterable[tuple[str, LossSeries]], describe: Callable[[LossSeries], str]) -> list[str]:
    """One line for all with the same message: `rank 0 and 7 more: the loss is nan …`."""
    names: dict[str, list[str]] = {}
    for name, series in series_by_name:
        names.setdefault(describe(series), []).append(name)
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


def settling(steps: LossSeries) -> str:
    """A run that ends before its first step: a dynamic loss scale begins too high."""
    seen = f"the optimizer skips every step of the {steps.lines} lines so far, as it does while the loss scale settles"
    return f"{seen}; expected a longer part of the log"


def unclear(loss: LossSeries) -> str:
    """What the last lines have instead of a loss, and what would show the loss."""
    if loss.missing_at_end:
        seen = f"the last {loss.missing_at_end} of its lines have no loss, which Megatron-LM leaves out if it is nan"
        return f"{seen}, and pandas leaves empty; expected one in each"
    seen = f"the loss is 0 in the last {loss.unclear_at_end} lines, which Trainer prints for nan too"
    return f"{seen}, and they have no grad_norm; set logging_nan_inf_filter=False"


def too_high(seen: Leap | None, most: float, times: str) -> str:
    """`is 30 at step 200, 15 times the largest …; expected less than 10 times`; empty if it is not too high."""
    if seen is None or seen.times < most:
        return ""
    shown, limit = format_pair(seen.times, most, 1)
    return f"is {seen.value:.3g} at {seen.at}, {shown} times {times}; expected less than {limit} times"
