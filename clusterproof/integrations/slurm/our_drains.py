"""The drains of a node that are ours: their reasons given to Slurm, and those forgotten that were taken back."""

from __future__ import annotations

from clusterproof.integrations.slurm import control
from clusterproof.integrations.slurm.call import VERDICT, Call
from clusterproof.integrations.slurm.checking import evaluated_by_the_log
from clusterproof.integrations.slurm.control import NodeState, SlurmError
from clusterproof.integrations.slurm.drains import (
    FOLDER,
    IN_USE,
    LOOKED_AT,
    Drain,
    held,
    hold,
    is_ours,
    is_unexplained,
    release,
    since_looked_at,
    taken_back,
    unexplained,
)
from clusterproof.integrations.slurm.log import WARNING
from clusterproof.integrations.slurm.verdict import Cursor
from clusterproof.plugins.core.record import replace


def known_drains(call: Call, asked: Drain | None) -> tuple[Drain, ...]:
    """The drains that are remembered; the one that was `asked` for, where nothing is."""
    return held(call.state) or (() if asked is None or call.state.has(FOLDER) else (asked,))


def our_drains(call: Call, asked: Drain | None = None) -> tuple[Drain, ...]:
    """The drains of ours, where the node is drained for them and Slurm has a reason. Raises SlurmError, OSError.

    `asked` is one that counts where all records are lost.
    """
    drains = known_drains(call, asked)
    if not drains:
        return ()
    jobs = jobs_here(call, drains)
    node = control.node_state(call.node)  # after that: for a job that was gone by then the node has been drained
    if is_ours(node, drains):
        return not_ended(call, drains, [drain for drain in drains if drain.is_reported and drain.reason != node.reason])
    unreported = unexplained(drains, asked)
    in_use_before = str(call.state.read(IN_USE).get("reason", ""))
    if unreported and is_unexplained(node, in_use_before, control.slurm_user):
        control.drain(call.node, unreported.reason)
        claim = replace(unreported, is_reported=True, is_claim=True)
        hold(call.state, claim)
        drains = tuple(claim if drain is unreported else drain for drain in drains)
        return not_ended(call, drains, [drain for drain in drains if drain.is_reported and drain is not claim])
    if node.is_drained:
        release(call.state, drains)  # somebody has drained it for a reason of theirs
    else:
        in_use(call, node, drains, jobs)
    return ()


def jobs_here(call: Call, drains: tuple[Drain, ...]) -> frozenset[str] | None:
    """The jobs that Slurm still has on the node, where that decides anything; None where it does not say."""
    if all(drain.is_reported for drain in drains):
        return frozenset()
    try:
        return control.jobs_on(call.node)
    except SlurmError as problem:
        call.log(f"goes by the clock: {problem}", WARNING)
        return None


def not_ended(call: Call, drains: tuple[Drain, ...], ended: list[Drain]) -> tuple[Drain, ...]:
    """Those that the node may be drained for, with the others forgotten: they were taken back meanwhile.

    Slurm lets a reason stand that a drained node has: one that was given, and has given way to another, has ended.
    """
    looked = forget(call, ended)
    left = (drain for drain in drains if drain not in ended)
    return tuple(since_looked_at(drain, looked, call.cursor, evaluated_by_the_log) for drain in left)


def in_use(call: Call, node: NodeState, drains: tuple[Drain, ...], jobs: frozenset[str] | None) -> None:
    """Forget the drains that a node was taken back from, and remember the reason that Slurm may still show of it.

    Slurm has drained it for those whose job it has no more; what it never came to has been looked at by nobody.
    """
    call.remember(IN_USE, {"reason": node.data})
    ended = [drain for drain in drains if drain.is_reported or (jobs is not None and drain.job not in jobs)]
    release(call.state, [drain for drain in drains if drain not in ended and not drain.is_pending])
    forget(call, ended)


def forget(call: Call, drains: list[Drain]) -> dict[str, Cursor]:
    """Forget drains that were taken back; how far the kernel log has been looked at for each check."""
    with call.state.locked(f"{LOOKED_AT}.lock"):
        looked = taken_back(call.state, drains)
        if drains:
            call.remember(LOOKED_AT, dict(looked))
            call.state.forget(VERDICT)  # from which a prolog would evaluate the same once more
    release(call.state, drains)
    return looked
