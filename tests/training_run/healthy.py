"""A healthy run for each check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import arriving, computing, logging_ranks, losing, stepping
from tests.training_run.dumps import dumped
from tests.training_run.sampled import sampled
from tests.training_run.watched import watched


@cache
def even() -> TrainingRun:
    """Ranks of two stages that compute alike."""
    return computing(stages=2, replicas=8)


@cache
def arrived() -> TrainingRun:
    """Ranks of which none waits for another."""
    return dumped({rank: {"0": (50, 50)} for rank in range(4)})


@cache
def together() -> TrainingRun:
    """Ranks that come to each collective now this one first, now that one."""
    return arriving(-1)


def parts(step: int) -> dict[str, float]:
    """Of a step of a second: hardly any wait for data, a start of three seconds, a checkpoint each hundred steps."""
    return {"data": 0.01, "init": 3.0 if step == 1 else 0.0, "checkpoint": 0.5 if step % 100 == 0 else 0.0}


@cache
def steps() -> TrainingRun:
    """Steps that all take as long."""
    return stepping(lambda step: 1.5 if step % 100 == 0 else 1.0, parts)


@cache
def hidden() -> TrainingRun:
    """Steps of which collectives run alone for a twentieth."""
    return stepping(lambda _: 1.0, lambda _: {"exposed communication": 0.05})


@cache
def logged() -> TrainingRun:
    """Ranks that log their steps, and of which now this one is last, now that one."""
    return logging_ranks()


@cache
def used() -> TrainingRun:
    """GPUs of two nodes that are all well used."""
    return sampled()


@cache
def recorded() -> TrainingRun:
    """GPUs of two nodes that train well."""
    return watched()


@cache
def learning() -> TrainingRun:
    """A run whose loss falls."""
    return losing(lambda step: 9.0 / step)


HEALTHY: Mapping[str, Callable[[], TrainingRun]] = {
    "run.slow_rank": even,
    "run.held_up": logged,
    "run.work_uneven": even,
    "run.stages_uneven": even,
    "run.first_missing": arrived,
    "run.last_to_come": together,
    "run.step_outliers": steps,
    "run.step_drift": steps,
    "run.data_wait": steps,
    "run.init_time": steps,
    "run.comm_exposed": hidden,
    "run.gpu_busy": used,
    "run.gpu_fluctuates": used,
    "run.load_balance": used,
    "run.cpu_bound": used,
    "run.io_bound": used,
    "run.checkpoint_share": steps,
    "run.loss_finite": learning,
    "run.loss_spikes": learning,
    "run.gpu_memory_growth": recorded,
    "run.batch_size": recorded,
    "run.slow_clock": recorded,
    "run.hung": recorded,
}
