"""Missing ranks: faults, and a healthy run."""

from __future__ import annotations

from functools import cache

from clusterproof.plugins.training_run.run import TrainingRun
from tests.training_run.faults.fault import CONCERN, FAIL, INCOMPLETE, RunFault
from tests.training_run.recorded import calling, differing, dumped
from tests.training_run.watched_ranks import SLEEPS, hanging, seen


@cache
def arrived() -> TrainingRun:
    """Ranks that do not wait for each other."""
    return dumped({rank: {"0": (50, 50)} for rank in range(4)})


@cache
def agreeing() -> TrainingRun:
    """Ranks that call the same collectives, some more slowly."""
    calls = [("all_reduce", (7,)), ("_allgather_base", (100, 3)), ("all_reduce_barrier", (1,))]
    return differing([calling(rank, calls[: 2 + rank % 2], ended=1) for rank in range(4)])


def one_calls(name: str, size: int) -> TrainingRun:
    """A run in which rank 1 calls another collective, and all wait."""
    usual, odd = ("all_reduce", (513_000,)), (name, (size,))
    called = [[usual, odd if rank == 1 else usual] for rank in range(4)]
    return differing([calling(rank, calls, ended=1) for rank, calls in enumerate(called)])


HEALTHY = {
    "run.first_missing": arrived,
    "run.collectives_match": agreeing,
}

FAULTS = (
    RunFault(
        "a rank whose program does not come to a collective",
        lambda: dumped({0: {"1": (91, 90)}, 1: {"1": (90, 90)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}),
        {"run.first_missing": FAIL},
        "rank 1 missing in all_reduce 91 of TENSOR (rank 0 waiting)",
    ),
    RunFault(
        "a rank whose process sleeps while those of all others wait",
        lambda: seen(hanging(rank2=SLEEPS)),
        {"run.first_missing": CONCERN},
        "rank 2 is in hrtimer_nanosleep, and others wait in futex_do_wait for 14.8 min (ranks 0, 1, 3 waiting)",
    ),
    RunFault(
        "a rank that left no dump",
        lambda: dumped({0: {"1": (91, 90)}, 2: {"2": (92, 92)}, 3: {"2": (92, 92)}}),
        {"run.first_missing": INCOMPLETE, "run.collectives_match": INCOMPLETE},
        "rank 1 left no dump, and others wait",
    ),
    RunFault(
        "a rank that calls a collective with another size",
        lambda: one_calls("all_reduce", 7),
        {"run.collectives_match": FAIL},
        "at collective 2 of default_pg rank 1 called all_reduce of 7 Float, ranks 0, 2, 3 called all_reduce of 513,000",
    ),
    RunFault(
        "a rank that calls another collective",
        lambda: one_calls("all_gather", 1000),
        {"run.collectives_match": FAIL},
        "at collective 2 of default_pg rank 1 called all_gather of 1,000 Float, ranks 0, 2, 3 called all_reduce",
    ),
)
