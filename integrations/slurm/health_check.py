"""HealthCheckProgram: finds what no job has met yet, gives Slurm our reasons, and takes back what it drained itself."""

from __future__ import annotations

import time
from dataclasses import replace

from clusterproof.integrations.slurm import control
from clusterproof.integrations.slurm.call import EXPLAIN_S, Call
from clusterproof.integrations.slurm.checking import check
from clusterproof.integrations.slurm.control import SlurmError
from clusterproof.integrations.slurm.log import CRITICAL, ERROR, WARNING
from clusterproof.integrations.slurm.verdict import Cursor, Drain, Run, draining, reason_of

LOOK_S = 1.0
OCCASIONS = ("prolog", "epilog")


def health_check(call: Call) -> None:
    """Check, then drain or resume by what was found. Slurm is asked nothing about a node that is well."""
    ours = our_drain(call) if call.settings.drains else None
    begins = ours.begins if ours else call.cursor
    run = check(OCCASIONS, call.settings, call.left_s, begins)
    call.tell(run)
    found = draining(run, call.job)
    if ours:
        resume(call, run, ours.reason)
    elif not found or drain(call, reason_of(found), begins):
        call.advance(run.ends)


def explain(call: Call) -> None:
    """Wait until Slurm has drained the node for the script that failed, and give it the reason."""
    until = time.monotonic() + EXPLAIN_S
    while time.monotonic() < until:
        time.sleep(LOOK_S)
        try:
            if our_drain(call) or control.node_state(call.node).is_drained:
                return
        except SlurmError as problem:
            call.log(f"asks again: {problem}", WARNING)
    call.log(f"Slurm has not drained {call.node} within {EXPLAIN_S:.0f} s; its reason is not set", WARNING)


def our_drain(call: Call) -> Drain | None:
    """The drain of ours that holds, with Slurm told its reason; None where there is none. Raises SlurmError."""
    ours = call.drained
    if ours is None:
        return None
    node = control.node_state(call.node)
    if node.is_unexplained and not ours.is_told:
        control.drain(call.node, ours.reason)
        call.remember("drained", replace(ours, is_told=True).to_json())
        return ours
    if node.is_drained and node.reason == ours.reason:
        return ours
    if node.is_drained or ours.is_told or time.time() - ours.at > EXPLAIN_S:
        call.state.forget("drained")  # somebody has resumed it, or drained it for a reason of theirs
    return None


def drain(call: Call, reason: str, begins: Cursor | None) -> bool:
    """Drain the node, unless it already is, or enough are; whether that settles it. Raises SlurmError."""
    node = control.node_state(call.node)
    if node.is_unavailable:
        call.log(f"fails, and is {'+'.join(sorted(node.flags))} already ({node.reason}): {reason}", ERROR)
        return True
    if not call.settings.drains:
        call.log(f"would drain, but only observes: {reason}", ERROR)
        return True
    limits = call.settings.health_check
    full = control.limit_reached(node.partitions, limits.max_drained_percent, limits.max_drained_nodes)
    if full:
        call.log(f"NOT DRAINED, as {full}: {reason}", CRITICAL)
        return False
    call.log(f"drains: {reason}", ERROR)
    control.drain(call.node, reason)
    call.remember("drained", Drain(reason, begins, time.time(), is_told=True).to_json())
    return True


def resume(call: Call, run: Run, reason: str) -> None:
    """Resume the node after a run that passes, where the drain is still ours. Raises SlurmError."""
    if not call.settings.drains or not call.settings.health_check.resume:
        return
    if not run.is_passing:
        call.log(f"stays drained: {len(run.of('fail'))} fail, {len(run.of('incomplete'))} incomplete", WARNING)
        return
    if control.node_state(call.node).reason == reason:
        control.resume(call.node)
        call.log(f"resumes, as all pass: it was drained for {reason}", WARNING)
        call.state.forget("drained")
        call.advance(run.ends)
