"""Made-up training runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest

from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import verdict_on
from clusterproof.plugins.training_run import Operation, Position, Step
from clusterproof.plugins.training_run.collectives import CollectiveCall
from clusterproof.plugins.training_run.losses import Loss
from clusterproof.plugins.training_run.run import TrainingRun
from clusterproof.plugins.training_run.run_data import RunData

SHARED = Path(__file__).parents[3] / "shared" / "runs"
CHECKS = {name: check for name, check in all_checks().items() if check.is_of_run}
Seconds = Callable[[Position, int], float]  # of a rank's forward pass in a step


def labelled(path: str) -> Path:
    """A recording of `../shared/runs` with known faults. Skips if it is absent."""
    if not (SHARED / path).exists():
        pytest.skip(f"no recorded runs: {SHARED} is absent")
    return SHARED / path


def one_second(_position: Position, _step: int) -> float:
    return 1.0


def computing(
    seconds: Seconds = one_second, *, stages: int = 1, replicas: int = 4, steps: int = 40, noise: float = 0.01
) -> TrainingRun:
    """A run whose ranks compute this long, with a little noise that is always the same."""
    random = Random(5)
    positions = [Position(rank, rank // replicas, rank % replicas) for rank in range(stages * replicas)]
    data = RunData()
    data.add(
        (
            Operation(position, step, name, seconds(position, step) * share * random.gauss(1, noise))
            for step in range(1, steps + 1)
            for position in positions
            for name, share in (("forward-compute", 1.0), ("backward-compute", 2.0), ("forward-recv", random.random()))
        ),
        "made up",
    )
    return TrainingRun("made-up", data)


def stepping(
    seconds: Callable[[int], float], parts: Callable[[int], Mapping[str, float]] | None = None, steps: int = 400
) -> TrainingRun:
    """A run of two ranks whose steps take this long, within a hundredth, and have these parts."""
    random = Random(6)
    data = RunData()
    data.add(
        (
            Step(Position(rank), step, seconds(step) * random.gauss(1, 0.01), parts(step) if parts else {})
            for step in range(1, steps + 1)
            for rank in range(2)
        ),
        "made up",
    )
    return TrainingRun("made-up", data)


def logging_ranks(
    longer: Callable[[int, int], float] = lambda _rank, _step: 0.0, *, ranks: int = 4, steps: int = 240
) -> TrainingRun:
    """Ranks that log their steps, a third of which is their own forward pass, longer as given; all end at once."""
    random = Random(8)
    data = RunData()
    for step in range(1, steps + 1):
        own = [random.gauss(1, 0.02) + longer(rank, step) for rank in range(ranks)]
        data.add((Step(Position(rank), step, max(own) + 2, {"forward": own[rank]}) for rank in range(ranks)), "made up")
    return TrainingRun("made-up", data)


def losing(
    loss: Callable[[int], float],
    norm: Callable[[int], float | None] = lambda _: 0.3,
    steps: int = 300,
    is_skipped: Callable[[int], bool] = lambda _: False,
) -> TrainingRun:
    """A run with these losses and gradient norms; without norms, a loss of 0 is ambiguous."""
    data = RunData()
    lines = ((step, loss(step), norm(step)) for step in range(1, steps + 1))
    data.add(
        (Loss(0, *line, is_unclear=line[1:] == (0.0, None), is_skipped=is_skipped(line[0])) for line in lines),
        "made up",
    )
    return TrainingRun("made-up", data)


def arriving(late: int, calls: int = 200, ranks: int = 8) -> TrainingRun:
    """A run in which one rank is 2 ms late to each collective, the others within a tenth of that; -1: none."""
    random = Random(7)
    data = RunData()
    data.add(
        (
            CollectiveCall("0xabc123", ranks, rank, f"gpu{rank // 4}", number, (1e-3 if rank == late else 3e-3) + came)
            for number in range(calls)
            for rank in range(ranks)
            for came in (random.random() * 2e-4,)
        ),
        "made up",
    )
    return TrainingRun("made-up", data)


def slow(rank: int, times: float, others: Seconds = one_second) -> Seconds:
    """One rank computes this many times as long."""
    return lambda position, step: others(position, step) * (times if position.rank == rank else 1)


def uneven(most: float = 0.4) -> Seconds:
    """Each replica has another sequence length in each step."""
    return lambda position, step: 1 + most * Random(f"{position.replica} {step}").random()


def result_of(check: str, run: TrainingRun) -> Result:
    """A check's result on a run."""
    return verdict_on(NO_POLICY, CHECKS[check], run)


def readers_of(fact: str) -> tuple[str, ...]:
    """The checks that read this fact of a run (`computed`): those that report it when it cannot be read."""

    def unreadable(_run: TrainingRun) -> None:
        raise Incomplete("not to be read here")

    kind = type("Unreadable", (TrainingRun,), {fact: property(unreadable)})
    run = kind("unreadable", computing().data)
    return tuple(name for name in CHECKS if "not to be read here" in result_of(name, run).message)


def verdicts(run: TrainingRun) -> Mapping[str, str]:
    """Every check's result."""
    return {name: result_of(name, run).verdict.value for name in CHECKS}


def ranks_named(run: TrainingRun) -> list[int]:
    """The ranks named as slow."""
    result = result_of("run.slow_rank", run)
    return [int(device.split()[1]) for device in result.devices] if result.verdict.value in ("fail", "concern") else []
