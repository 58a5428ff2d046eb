"""What a check of a training run is called for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from clusterproof.plugins.training_run.run import TrainingRun

# Once for the run, or for each of its ranks.
SUBJECTS_OF_RUN: dict[str, Callable[[TrainingRun], Iterable[Any]]] = {
    "run": lambda run: (run,),
    "rank": lambda run: run.ranks,
}
