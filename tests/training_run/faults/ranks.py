"""How long ranks compute, and which comes last: faults, and healthy runs."""

from __future__ import annotations

from functools import cache
from random import Random

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.builders import arriving, computing, logging_ranks, readers_of, slow, uneven
from tests.training_run.faults.fault import CONCERN, FAIL, INCOMPLETE, RunFault


@cache
def even() -> TrainingRun:
    """Ranks of two stages that compute equally long."""
    return computing(stages=2, replicas=8)


@cache
def logged() -> TrainingRun:
    """Ranks that log their steps, with a different one last each time."""
    return logging_ranks()


@cache
def together() -> TrainingRun:
    """Ranks with a different one first at each collective."""
    return arriving(-1)


HEALTHY = {
    "run.slow_rank": even,
    "run.held_up": logged,
    "run.work_uneven": even,
    "run.stages_uneven": even,
    "run.stragglers": even,
    "run.last_to_come": together,
}

FAULTS = (
    RunFault(
        "a pace that six of eight ranks do not keep",
        lambda: computing(lambda position, _: 1.0 if position.rank in (2, 5) else 1.3, replicas=8),
        {"run.work_uneven": CONCERN},
        " times as long as ranks 2, 5 of 8 in their stage: most are slow, or have more work",
    ),
    RunFault(
        "a rank that computes 1.3 times as long",
        lambda: computing(slow(2, 1.3), replicas=8),
        {"run.slow_rank": FAIL},
        "rank 2: computes 1.3 times as long as its 7 peers",
    ),
    RunFault(
        "a rank that computes 1.07 times as long",
        lambda: computing(slow(5, 1.07), stages=2),
        {"run.slow_rank": CONCERN},
        "rank 5: computes 1.07 times as long as its 3 peers",
    ),
    RunFault(
        "a rank that collects garbage in each seventh step",
        lambda: logging_ranks(lambda rank, step: 2.0 if rank == 3 and step % 7 == 5 else 0.0),
        {"run.held_up": CONCERN, "run.step_outliers": CONCERN},
        "the others wait for rank 3 for 8.5 % of the time: it computes longest in",
    ),
    RunFault(
        "sequences of uneven length",
        lambda: computing(uneven(0.6), stages=2, steps=400),
        {"run.work_uneven": CONCERN, "run.stragglers": CONCERN},
        "of it is common to ranks that share their work, so the work is uneven; expected less than 1.1",
    ),
    RunFault(
        "CPUs that other programs use",
        lambda: computing(
            lambda position, step: 1 + 0.6 * Random(f"{position.rank} {step}").random(), stages=2, steps=400
        ),
        {"run.work_uneven": CONCERN, "run.stragglers": CONCERN},
        "of it is common to ranks that share their work, so CPUs are shared, or programs pause; expected less than 1.1",
    ),
    RunFault(
        "ranks of one stage that swing, for whatever reason",
        lambda: computing(uneven(0.6), steps=400),
        {"run.work_uneven": CONCERN, "run.stragglers": CONCERN},
        "the work is uneven, or CPUs are shared or programs pause, and nothing recorded tells which; expected",
    ),
    RunFault(
        "a pause of each of 64 ranks at another time",
        lambda: logging_ranks(lambda rank, step: 1.0 * (step % 64 == rank), ranks=64),
        {"run.stragglers": CONCERN},
        "if no rank were behind the others: 64 of 64 ranks are the slowest in turn; expected less than 1.1",
    ),
    RunFault(
        "a replica that always has the longest sequences",
        lambda: computing(lambda position, _: 1.2 if position.replica == 3 else 1.0, stages=2),
        {"run.work_uneven": CONCERN},
        "data-parallel rank 3 computes 1.20 times as long as others",
    ),
    RunFault(
        "a last stage with more layers",
        lambda: computing(lambda position, _: 1.5 if position.stage == 3 else 1.0, stages=4),
        {"run.stages_uneven": CONCERN},
        "stage 3 computes 1.5 times as long as stage",
    ),
    RunFault(
        "a trace of three steps",
        lambda: computing(steps=3),
        dict.fromkeys(readers_of("computed"), INCOMPLETE),
        "3 steps; expected at least 20",
    ),
    RunFault(
        "a trace of one data-parallel rank",
        lambda: computing(stages=4, replicas=1),
        {"run.slow_rank": INCOMPLETE, "run.work_uneven": Verdict.NOT_APPLICABLE, "run.stragglers": INCOMPLETE},
        "1 rank a stage; expected 3",
    ),
    RunFault(
        "a rank that comes last to every collective",
        lambda: arriving(5),
        {"run.last_to_come": CONCERN},
        "rank 5 of communicator 0xabc123 (gpu1) comes last to",
    ),
    RunFault(
        "noise that may hide a slow rank",
        lambda: computing(slow(0, 1.08), steps=20, noise=0.1),
        {"run.slow_rank": INCOMPLETE},
        "which vary too much to tell",
    ),
)
