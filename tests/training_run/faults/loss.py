"""Losses of a run: faults, and a healthy run."""

from __future__ import annotations

from functools import cache
from math import inf, nan

from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import losing
from tests.training_run.faults.fault import CONCERN, FAIL, INCOMPLETE, RunFault


@cache
def learning() -> TrainingRun:
    """A run whose loss falls."""
    return losing(lambda step: 9.0 / step)


HEALTHY = {
    "run.loss_finite": learning,
    "run.loss_spikes": learning,
}

FAULTS = (
    RunFault(
        "a loss that is no number from the 60th step on",
        lambda: losing(lambda step: 2.0 if step < 60 else nan),
        {"run.loss_finite": FAIL, "run.loss_spikes": INCOMPLETE},
        "rank 0: the loss is nan from step 60 on, in 241 of 300 lines; expected a number",
    ),
    RunFault(
        "a loss that is no number for a while",
        lambda: losing(lambda step: 2.0 if step not in (40, 41) else inf),
        {"run.loss_finite": CONCERN},
        "rank 0: the loss is inf in 2 of 300 lines, first at step 40, then a number again",
    ),
    RunFault(
        "gradients that are no numbers any more",
        lambda: losing(lambda _: 2.0, lambda step: 0.3 if step < 290 else nan),
        {"run.loss_finite": CONCERN},
        "rank 0: the norm of the gradients is nan from step 290 on",
    ),
    RunFault(
        "an optimizer that skips every step at the end",
        lambda: losing(lambda _: 2.0, is_skipped=lambda step: step >= 290),
        {"run.loss_finite": CONCERN},
        "rank 0: the optimizer skips every step from step 290 on, in 11 of 300 lines; expected steps that change",
    ),
    RunFault(
        "losses of 0 at the end that may stand for nan",
        lambda: losing(lambda step: 2.0 if step < 290 else 0.0, lambda step: 0.3 if step < 290 else None),
        {"run.loss_finite": INCOMPLETE},
        "rank 0: the loss is 0 in the last 11 lines, which Trainer prints for nan too, and they have no grad_norm",
    ),
    RunFault(
        "a loss that leaps in one step",
        lambda: losing(lambda step: 2.0 if step != 200 else 30.0),
        {"run.loss_spikes": CONCERN},
        "rank 0: the loss is 30 at step 200, 15 times the largest of the 100 lines before; expected less than 10 times",
    ),
    RunFault(
        "a loss that rises and stays",
        lambda: losing(lambda step: 2.0 if step < 200 else 5.0),
        {"run.loss_spikes": CONCERN},
        "rank 0: the loss is 5 at step 204, 2.4 times the mean of the 100 lines before, as in 5 lines together",
    ),
    RunFault(
        "gradients that leap in one step",
        lambda: losing(lambda _: 2.0, lambda step: 0.3 if step != 200 else 9.0),
        {"run.loss_spikes": CONCERN},
        "rank 0: the norm of the gradients is 9 at step 200, 30 times the largest of the 100 lines before",
    ),
    RunFault(
        "losses below 0, which no multiple tells anything of",
        lambda: losing(lambda step: -1.0 if step != 200 else 30.0),
        {"run.loss_spikes": INCOMPLETE},
        "no loss has 100 before it, all above 0; expected more",
    ),
    RunFault(
        "a log too short for its losses to be compared",
        lambda: losing(lambda _: 2.0, steps=90),
        {"run.loss_spikes": INCOMPLETE},
        "no loss and no norm of the gradients has 100 before it",
    ),
)
