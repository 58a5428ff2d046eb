"""One fault of a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.run import TrainingRun

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE


@dataclass(frozen=True)
class RunFault:
    """One fault: every verdict that differs from a healthy run's, and words of the first one's message."""

    name: str
    run: Callable[[], TrainingRun]
    expect: Mapping[str, Verdict]
    words: str
