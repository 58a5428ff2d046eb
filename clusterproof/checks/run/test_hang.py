"""Runs that hang, and which rank the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern, concern_if, fail_if, incomplete
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.training_run import MAX_RANKS, rank_names
from clusterproof.plugins.training_run.rules.hang import AwaitedRanks, doing, is_comparable, last_call
from clusterproof.plugins.training_run.run import TrainingRun

pytestmark = [mark.run]


@mark.hyperpod_nccl
@evidence("torchfrtrace DIR; on the rank's node: dmesg | grep -i xid; py-spy dump --pid PID")
def test_first_missing(run: TrainingRun) -> None:
    """Ranks missing in a collective.

    Compares the progress of the ranks in each process group, from the Flight Recorder dumps that each rank writes when
    a collective times out. A rank is named if others wait for it and it waits for nobody: its GPU has stopped, or its
    program has not reached the collective. If clusterproof watch recorded the nodes, the main threads of the ranks are
    compared too: if most wait in the same place for ten minutes, a rank that waits elsewhere, computes, is stopped or
    has ended is a concern.

    Remedy (investigate): Check the nodes of the ranks named here, not those that report the timeout: Xid errors in the
    kernel log, a GPU that has fallen off the bus, a process that is gone. If the node is healthy, see what the rank
    waits for (py-spy dump --pid PID).
    """
    if not run.data.dumps and run.awaited:
        judge_processes(run, run.awaited)
    missing = run.missing
    waits = missing.shown()
    where = ", and ".join(
        f"{wait.collective.name} {wait.collective.number} of {wait.group} ({rank_names(wait.waiting)} waiting)"
        for wait in waits
    )
    silent = set(missing.without_dump)
    named = [rank for rank in missing.ranks if rank not in silent]
    more = f"{last_lines(run, named)}{activities(run, named)}{on_nodes(run, named)}"
    if all(wait.is_called for wait in waits):
        fail_if(
            named,
            f"{rank_names(named)}: its GPU has not begun {where}, which it called; expected every GPU to begin{more}",
        )
    else:
        fail_if(named, f"{rank_names(named)} missing in {where}; expected every rank to come{more}")
    if silent.issuperset(missing.ranks) and missing.are_waiting:
        with suppress(Incomplete):  # that they left no dump is said below
            if run.awaited:
                judge_processes(run, run.awaited)
    missed = f", and others wait for them in {where}" if silent.intersection(missing.ranks) else ""
    if silent:
        incomplete(
            f"{rank_names(missing.without_dump)} left no dump{missed}; "
            f"expected one of every rank: give them, or look there{activities(run, missing.without_dump)}"
            f"{on_nodes(run, missing.without_dump)}"
        )
    if missing.are_waiting and not named and not any(mismatch.holds_up for mismatch in run.mismatches):
        incomplete(
            "ranks wait, but none is behind the others in a collective; expected one that is: look at their stacks"
        )


@mark.hyperpod_performance_debugger
@evidence("torchfrtrace DIR")
def test_collectives_match(run: TrainingRun) -> None:
    """Mismatched collectives.

    Read from the Flight Recorder's dumps. Every rank of a process group must call the same collectives in the same
    order, with the same number of elements of the same type. If one rank calls a different collective (a desync), all
    ranks wait forever or compute with wrong data. The first call that differs is named; it is a concern if no rank
    waits in it yet, because all wait earlier. Sends, receives, collectives whose parts may be uneven, and groups in
    which ranks also send are not compared, nor are calls made after another's timeout, since those dumps may be from an
    earlier attempt.

    Remedy (fix code): Look for a branch that only some ranks take: a condition on the rank, an empty batch, a loss that
    is not finite, or a rank with fewer batches. TORCH_DISTRIBUTED_DEBUG=DETAIL stops the run at that call. This is a
    bug in the code, not a fault of a node.
    """
    for mismatch in run.mismatches:
        fail_if(
            mismatch.holds_up,
            f"at collective {mismatch.number} of {mismatch.group} {mismatch.description}; "
            "expected the same of every rank",
        )
        where = f"at collective {mismatch.number} of {mismatch.group}, in which nobody waits yet,"
        concern_if(not mismatch.holds_up, f"{where} {mismatch.description}; expected the same of every rank")
    silent = run.missing.without_dump
    if silent:
        incomplete(f"{rank_names(silent)} left no dump; expected one of every rank")
    if not all(is_comparable(dump, group) for dump in run.dumps.values() for group in dump.enqueued):
        incomplete("dumps number sends and collectives of a group together, or do not have its ranks; expected neither")


def last_lines(run: TrainingRun, numbers: Sequence[int]) -> str:
    """The last call of each of them, if its dump has the line of its program."""
    calls = ((rank, last_call(run.dumps[rank])) for rank in numbers[:MAX_RANKS] if rank in run.dumps)
    return "".join(f"; rank {rank} last called {last.name} at {last.where}" for rank, last in calls if last)


def judge_processes(run: TrainingRun, seen: AwaitedRanks) -> None:
    """Name the ranks for which the others wait, by what the kernel says of their processes."""
    concern(f"{seen.description}; expected every rank to come{on_nodes(run, list(seen.activities))}")


def activities(run: TrainingRun, numbers: Sequence[int]) -> str:
    """The last activities of ranks' processes, if they were watched: whether one is stuck, or computes."""
    seen = run.data.processes.latest
    return "".join(f"; rank {rank} {doing(seen[rank])}" for rank in numbers[:MAX_RANKS] if rank in seen)


def on_nodes(run: TrainingRun, numbers: Sequence[int]) -> str:
    """The nodes on which they are, as far as that is known."""
    return "".join(run.where(rank) for rank in numbers[:MAX_RANKS])


@mark.hyperpod_nccl
@evidence("clusterproof watch --cluster X --record DIR; on a node: py-spy dump --pid PID")
def test_hung(run: TrainingRun) -> None:
    """GPUs that only wait.

    All of the run's GPUs show as busy, but their tensor cores are idle, they draw too little power to compute (as far
    as each is known), and NVLink and the network carry no traffic: every rank waits for another.

    Remedy (investigate): Take stack traces of all ranks (py-spy dump --pid PID), or evaluate their Flight Recorder
    dumps (clusterproof --run DUMPS): run.first_missing names the ranks that the others wait for.
    """
    spin, least_s = run.spin, run.threshold("run.hung_s")
    assert spin is None or spin.seconds < least_s, (
        f"{len(spin.gpus)} GPUs ({', '.join(spin.gpus[:MAX_RANKS])}{', …' if len(spin.gpus) > MAX_RANKS else ''}) "
        f"compute nothing for {spin.seconds / 60:.0f} min, and nothing passes between them; "
        f"expected less than {least_s / 60:g} min"
    )
    run.sampled.require_all()
