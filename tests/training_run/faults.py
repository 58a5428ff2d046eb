"""What is wrong with training runs, and what their checks say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import computing, slow, uneven
from tests.training_run.dumps import dumped

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE


@dataclass(frozen=True)
class RunFault:
    """One fault: every verdict in which the run differs from a healthy one, and words of the first one's message."""

    name: str
    run: Callable[[], TrainingRun]
    expect: Mapping[str, Verdict]
    words: str


FAULTS = (
    RunFault(
        "a rank that computes 1.3 times as long",
        lambda: computing(slow(2, 1.3), replicas=8),
        {"run.slow_rank": FAIL},
        "rank 2: computes 1.3 times as long as its 7 peers do",
    ),
    RunFault(
        "a rank that computes 1.07 times as long",
        lambda: computing(slow(5, 1.07), stages=2),
        {"run.slow_rank": CONCERN},
        "rank 5: computes 1.07 times as long as its 3 peers do",
    ),
    RunFault(
        "sequences of uneven length",
        lambda: computing(uneven(), stages=2),
        {"run.work_uneven": CONCERN},
        "times as long as usual in one step of ten",
    ),
    RunFault(
        "a replica that always has the longest sequences",
        lambda: computing(lambda place, _: 1.2 if place.replica == 3 else 1.0, stages=2),
        {"run.work_uneven": CONCERN},
        "data-parallel rank 3 computes 1.20 times as long as others",
    ),
    RunFault(
        "a last stage with more layers",
        lambda: computing(lambda place, _: 1.5 if place.stage == 3 else 1.0, stages=4),
        {"run.stages_uneven": CONCERN},
        "stage 3 computes 1.5 times as long as stage",
    ),
    RunFault(
        "a trace of three steps",
        lambda: computing(steps=3),
        {"run.slow_rank": INCOMPLETE, "run.work_uneven": INCOMPLETE, "run.stages_uneven": INCOMPLETE},
        "3 steps; expected 20 at least",
    ),
    RunFault(
        "a trace of one data-parallel rank",
        lambda: computing(stages=4, replicas=1),
        {"run.slow_rank": INCOMPLETE, "run.work_uneven": Verdict.NOT_APPLICABLE},
        "1 ranks a stage; expected 3",
    ),
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
    RunFault(
        "noise in which a slow rank cannot be told",
        lambda: computing(slow(0, 1.08), steps=20, noise=0.1),
        {"run.slow_rank": INCOMPLETE},
        "which differ too much to tell",
    ),
)
