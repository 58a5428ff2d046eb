"""Runs that hang: that they do, and which rank the others wait for."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import fail_if, incomplete
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run.rules.gpus import Bounds
from clusterproof.plugins.training_run.run import TrainingRun

pytestmark = [mark.run]

MAX_RANKS = 8  # in a message


@mark.hyperpod_nccl
@evidence("torchfrtrace DIR; on the rank's node: dmesg | grep -i xid; py-spy dump --pid PID")
def test_first_missing(run: TrainingRun) -> None:
    """Ranks missing in a collective.

    Read from the Flight Recorder's dumps, which each rank writes when a collective times out. Within each process group
    the progress of the ranks is compared. A rank is named if others wait for it and it waits for nobody itself: its GPU
    has stopped, or its program has not reached the collective.

    Remedy (investigate): Look at the nodes of these ranks, not of those that report the timeout: Xid errors in the
    kernel log, a GPU that has fallen off the bus, a process that is gone. If the node is healthy, py-spy shows what the
    rank waits for.
    """
    found = run.missing
    where = ", and ".join(
        f"{wait.collective.name} {wait.collective.number} of {wait.group} ({ranks(wait.waiting)} waiting)"
        for wait in found.shown()
    )
    silent = set(found.without_dump)
    named = [rank for rank in found.ranks if rank not in silent]
    fail_if(named, f"{ranks(named)} missing in {where}; expected every rank to come{on_nodes(run, named)}")
    missed = f", and others wait for them in {where}" if silent.intersection(found.ranks) else ""
    if silent:
        incomplete(
            f"{ranks(found.without_dump)} left no dump{missed}; expected one of every rank: give them, or look there"
            f"{on_nodes(run, found.without_dump)}"
        )
    if found.are_waiting and not named:
        incomplete(
            "ranks wait, and none is behind the others in a collective; expected one that is: look at their stacks"
        )


def on_nodes(run: TrainingRun, numbers: Sequence[int]) -> str:
    """Which nodes they are on, as far as that is known."""
    return "".join(run.where(rank) for rank in numbers[:MAX_RANKS])


@mark.hyperpod_nccl
@evidence("clusterproof watch --cluster X --record DIR; on a node: py-spy dump --pid PID")
def test_hung(run: TrainingRun) -> None:
    """GPUs that only wait.

    All GPUs that the run uses are reported as busy, yet their tensor cores do nothing, they draw too little power to
    compute (as far as each is known), and nothing passes over NVLink or the network: each waits for another.

    Remedy (investigate): Take the stacks of all ranks (py-spy), or the Flight Recorder's dumps, and evaluate those
    (pytest --run DUMPS): run.first_missing names the ranks that the others wait for.
    """
    bounds = Bounds(run.threshold("run.hung_power_percent"), run.threshold("run.hung_traffic_mb_s"))
    spin, least_s = run.sampled.hang_evidence.spin(bounds), run.threshold("run.hung_s")
    assert spin is None or spin.seconds < least_s, (
        f"{len(spin.gpus)} GPUs ({', '.join(spin.gpus[:MAX_RANKS])}{', …' if len(spin.gpus) > MAX_RANKS else ''}) "
        f"compute nothing for {spin.seconds / 60:.0f} min, and nothing passes between them; "
        f"expected less than {least_s / 60:g} min"
    )


def ranks(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 12, 14`."""
    shown = ", ".join(map(str, numbers[:MAX_RANKS])) + (", …" if len(numbers) > MAX_RANKS else "")
    return f"rank{'s' * (len(numbers) > 1)} {shown}"
