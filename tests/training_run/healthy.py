"""A healthy run for each check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import computing
from tests.training_run.dumps import dumped


@cache
def even() -> TrainingRun:
    """Ranks of two stages that compute alike."""
    return computing(stages=2, replicas=8)


@cache
def arrived() -> TrainingRun:
    """Ranks of which none waits for another."""
    return dumped({rank: {"0": (50, 50)} for rank in range(4)})


HEALTHY: Mapping[str, Callable[[], TrainingRun]] = {
    "run.slow_rank": even,
    "run.work_uneven": even,
    "run.stages_uneven": even,
    "run.first_missing": arrived,
}
