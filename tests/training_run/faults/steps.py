"""How steps spend their time: faults, and healthy runs."""

from __future__ import annotations

from functools import cache

from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import stepping
from tests.training_run.faults.fault import CONCERN, INCOMPLETE, RunFault


def parts(step: int) -> dict[str, float]:
    """Parts of a step of a second: hardly any wait for data, three seconds of start, and regular checkpoints."""
    return {"data": 0.01, "init": 3.0 if step == 1 else 0.0, "checkpoint": 0.5 if step % 100 == 0 else 0.0}


def one_second(_step: int) -> float:
    """One second for each step."""
    return 1.0


@cache
def steps() -> TrainingRun:
    """Steps that all take the same time."""
    return stepping(lambda step: 1.5 if step % 100 == 0 else 1.0, parts)


@cache
def hidden() -> TrainingRun:
    """Steps of which collectives run alone for a twentieth."""
    return stepping(lambda _: 1.0, lambda _: {"exposed communication": 0.05})


HEALTHY = {
    "run.step_outliers": steps,
    "run.step_drift": steps,
    "run.data_wait": steps,
    "run.init_time": steps,
    "run.comm_exposed": hidden,
    "run.checkpoint_share": steps,
}

FAULTS = (
    RunFault(
        "a tenth of all steps twice as long",
        lambda: stepping(lambda step: 2.0 if step % 10 == 0 else 1.0, parts),
        {"run.step_outliers": CONCERN},
        "40 of 395 steps take far longer than the usual 1 s",
    ),
    RunFault(
        "steps that take longer from the 250th on",
        lambda: stepping(lambda step: 1.15 if step >= 250 else 1.0, parts),
        {"run.step_drift": CONCERN},
        "from step 250 on steps take 1.15 s, 1.15 times the 1 s before",
    ),
    RunFault(
        "a data loader without workers",
        lambda: stepping(one_second, lambda step: {**parts(step), "data": 0.4}),
        {"run.data_wait": CONCERN},
        "waits for data for 40",
    ),
    RunFault(
        "collectives that nothing hides",
        lambda: stepping(one_second, lambda step: {**parts(step), "exposed communication": 0.3}),
        {"run.comm_exposed": CONCERN},
        "% of its steps only collectives run; expected at most 20 %",
    ),
    RunFault(
        "half an hour until the first step",
        lambda: stepping(one_second, lambda step: {**parts(step), "init": 1800.0 if step == 1 else 0.0}),
        {"run.init_time": CONCERN},
        "1800 s to the first step; expected at most 1200 s",
    ),
    RunFault(
        "a minute until the first step of a run of seven",
        lambda: stepping(one_second, lambda step: {**parts(step), "init": 60.0 if step == 1 else 0.0}),
        {"run.init_time": CONCERN},
        "60 s to the first step, 13.1 % of all that was logged",
    ),
    RunFault(
        "a checkpoint each five steps",
        lambda: stepping(
            lambda step: 1.5 if step % 5 == 0 else 1.0,
            lambda step: {**parts(step), "checkpoint": 0.5 if step % 5 == 0 else 0.0},
        ),
        {"run.checkpoint_share": CONCERN},
        "of its time on 80 checkpoints",
    ),
    RunFault(
        "a log of fifty steps",
        lambda: stepping(one_second, lambda step: {**parts(step), "init": 0.0}, steps=55),
        {"run.step_outliers": INCOMPLETE, "run.step_drift": INCOMPLETE, "run.checkpoint_share": INCOMPLETE},
        "50 steps behind the warm-up; expected at least 100",
    ),
)
