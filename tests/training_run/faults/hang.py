"""Ranks that are missing: faults, and a healthy run."""

from __future__ import annotations

from functools import cache

from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.dumps import dumped
from tests.training_run.faults.fault import FAIL, INCOMPLETE, RunFault


@cache
def arrived() -> TrainingRun:
    """Ranks of which none waits for another."""
    return dumped({rank: {"0": (50, 50)} for rank in range(4)})


HEALTHY = {
    "run.first_missing": arrived,
}

FAULTS = (
    RunFault(
        "a rank whose program does not come to a collective",
        lambda: dumped({0: {"1": (91, 90)}, 1: {"1": (90, 90)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}),
        {"run.first_missing": FAIL},
        "rank 1 missing in all_reduce 91 of TENSOR (rank 0 waiting)",
    ),
    RunFault(
        "a rank that left no dump",
        lambda: dumped({0: {"1": (91, 90)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}),
        {"run.first_missing": INCOMPLETE},
        "rank 1 left no dump, and others wait",
    ),
)
