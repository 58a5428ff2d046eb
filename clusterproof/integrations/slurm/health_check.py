"""HealthCheckProgram: finds faults between jobs, gives Slurm our reasons, and resumes nodes drained by us."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from clusterproof.integrations.slurm import control
from clusterproof.integrations.slurm.call import VERDICT, Call
from clusterproof.integrations.slurm.checking import OCCASIONS, NoVerdict, check
from clusterproof.integrations.slurm.control import NodeState, SlurmError
from clusterproof.integrations.slurm.drains import (
    EXPLAIN_S,
    Drain,
    begin_of,
    is_ours,
    release,
    remembered_drains,
    update_remembered,
)
from clusterproof.integrations.slurm.folder import boot_id, since_boot_s
from clusterproof.integrations.slurm.job import Job, unevaluated
from clusterproof.integrations.slurm.our_drains import (
    forget,
    forget_ineffective,
    full_after_claim,
    full_before_claim,
    full_partition,
    known_drains,
    our_drains,
    take_back,
    wait_random_time,
)
from clusterproof.integrations.slurm.records import (
    CRITICAL,
    DRAIN_BUDGET,
    ERROR,
    FORMER_DRAIN_BUDGET,
    UNEVALUATED,
    WARNING,
    drain_budget_of,
    log_unevaluated,
)
from clusterproof.integrations.slurm.verdict import SEEN_TWICE, CheckFinding, CheckRun, Cursor, draining
from clusterproof.plugins.core.record import replace

POLL_S = 1.0
FOLLOW_S = 3.0  # between two checks of a node that is drained for our reason
RETRY_S = 5.0  # before a second attempt at what did not answer
OF_JOBS = OCCASIONS["health-check"]


def health_check(call: Call) -> None:
    """Check, drain or resume accordingly, and record for prologs how many nodes are drained."""
    try:
        evaluate(call)
    finally:
        if call.settings.drains:
            record_drained_nodes(call)


def evaluate(call: Call) -> None:
    """Check, then drain or resume accordingly. For a healthy node, Slurm is not queried."""
    ours = our_drains(call) if call.settings.drains else ()
    for claim in ours:
        if claim.is_claim and not confirm_claim(call, claim):
            return
    begins = begin_of(ours) if ours else call.cursor
    run = check(OF_JOBS, call.settings, call.left_s, begins, call.log)
    call.log_run(run)
    if call.settings.drains and call.settings.health_check.resume:
        unevaluated_record = log_unevaluated(call.state, run, call.log)
        if unevaluated_record:
            call.remember(UNEVALUATED, unevaluated_record)
    findings = draining(run, call.job)
    if not ours and any(finding.check in SEEN_TWICE for finding in findings):
        findings = confirmed(call, findings, begins)
    if ours:
        resume(call, run, ours)
        return
    wanted = call.drain(findings, begins, run.ends) if findings else left_behind(call, begins)
    if wanted is None or drain(call, wanted):
        call.advance(begins, run.ends)
        if wanted and wanted.job:
            call.state.forget(Job(wanted.job).record)


def left_behind(call: Call, begins: Cursor | None) -> Drain | None:
    """Leftovers that an epilog would have drained for, of jobs whose epilog ended without a verdict."""
    jobs = unevaluated(call.state)
    if not jobs:
        return None
    run = check(("epilog",), call.settings, call.left_s, begins, call.log)
    call.log_run(run)
    for job in jobs:
        findings = draining(run, job, is_epilog=True)
        if findings:
            return replace(call, occasion="epilog", job=job).drain(findings, begins, run.ends)
        if not run.is_blind_to_jobs:
            call.state.forget(job.record)
    return None


def confirmed(call: Call, findings: tuple[CheckFinding, ...], begins: Cursor | None) -> tuple[CheckFinding, ...]:
    """Without findings that a second run does not confirm: what did not answer once may have been busy."""
    time.sleep(RETRY_S)
    try:
        again = check(OF_JOBS, call.settings, call.left_s, begins)
    except (NoVerdict, OSError) as why:
        call.log(f"not confirmed: {why}", WARNING)
        return tuple(finding for finding in findings if finding.check not in SEEN_TWICE)
    call.log_run(again)
    found_again = {finding.check: finding for finding in draining(again, call.job)}
    return tuple(filter(None, (_found_twice(finding, found_again.get(finding.check)) for finding in findings)))


def _found_twice(first: CheckFinding, again: CheckFinding | None) -> CheckFinding | None:
    """The finding, if one run is enough or both have it: of two, the one about fewer devices."""
    if first.check not in SEEN_TWICE:
        return first
    is_of_others = again and first.devices and again.devices and set(first.devices).isdisjoint(again.devices)
    return None if again is None or is_of_others else min(first, again, key=lambda each: len(each.devices))


def record_drained_nodes(call: Call) -> None:
    """Ask Slurm how many nodes are drained, after a random delay because all nodes start at once; record the answer."""
    last = drain_budget_of(call.state)
    wait_random_time(last.nodes if last else 0, call.left_s / 4)
    try:
        partitions = control.node_state(call.node).partitions
        record_full_partition(call, *full_partition(partitions, call.settings.health_check, but=call.node))
    except SlurmError as problem:
        call.log(f"prologs cannot know how many nodes are drained: {problem}", WARNING)


def record_full_partition(call: Call, full: str, nodes: int) -> None:
    """Record for the node's next prologs which partition is full."""
    budget = {"boot_id": boot_id(), "at": since_boot_s(), "full": full, "nodes": nodes}
    if call.remember(DRAIN_BUDGET, budget):
        call.state.forget(FORMER_DRAIN_BUDGET)


def explain(call: Call, drain: Drain | None) -> None:
    """Follow the node, in one process at a time, until a minute after its last drain.

    Of many concurrent calls, one follows, another waits its turn, and starts after the rest have left their records.
    """
    with contextlib.ExitStack() as turn:
        with call.state.tried("next_to_follow.lock") as is_next:
            if not is_next:
                return
            turn.enter_context(call.state.locked("follow.lock"))
        follow(call, drain)


def follow(call: Call, requested: Drain | None) -> None:
    """Give Slurm the reason once it has drained the node for a failed script, check the limit, and watch for a resume.

    A prolog relies on its node's last health check, and many may fail in the meantime.
    """
    is_reported = False
    while any(drain.is_young for drain in known_drains(call, requested)):
        time.sleep(FOLLOW_S if is_reported else POLL_S)
        try:
            ours = our_drains(call, requested)
            is_reported = bool(ours)
            for claim in ours:
                if claim.is_claim:
                    confirm_claim(call, claim)
        except SlurmError as problem:
            call.log(f"asks again: {problem}", WARNING)
    if not is_reported and any(not drain.is_reported for drain in known_drains(call, requested)):
        call.log(f"Slurm has not drained {call.node} within {EXPLAIN_S:.0f} s; its reason is not set", WARNING)


def drain(call: Call, wanted: Drain) -> bool:
    """Drain the node, unless it already is, or the limit is reached; whether that settles it. Raises SlurmError."""
    with _said_if_silent(call, wanted):
        node = control.node_state(call.node)
    if node.is_unavailable:
        return is_settled(call, node, wanted)
    if not call.settings.drains:
        call.log(f"would drain, but only observes: {wanted.reason}", ERROR)
        return True
    with _said_if_silent(call, wanted):
        full = full_before_claim(node.partitions, call.settings.health_check)
        node = node if full else control.node_state(call.node)  # again: during the delay an epilog may have drained it
    if full:
        call.log(f"NOT DRAINED, as {full}: {wanted.reason}", CRITICAL)
        return False
    if node.is_unavailable:
        return is_settled(call, node, wanted)
    claim = replace(wanted, at=since_boot_s(), is_claim=True)
    if not call.remember_drain(claim):
        return False
    with _said_if_silent(call, wanted):
        control.drain(call.node, wanted.reason)
    claim = replace(claim, is_reported=True)
    update_remembered(call.state, claim)
    return confirm_claim(call, claim)


@contextlib.contextmanager
def _said_if_silent(call: Call, wanted: Drain) -> Iterator[None]:
    """Log what the node would be drained for if Slurm does not answer. Raises SlurmError."""
    try:
        yield
    except SlurmError as problem:
        if call.settings.drains:
            call.log(f"NOT DRAINED, as {problem}: {wanted.reason}", CRITICAL)
        else:
            call.log(f"would drain, but {problem}: {wanted.reason}", ERROR)
        raise


def is_settled(call: Call, node: NodeState, wanted: Drain) -> bool:
    """Whether an administrator already handles a node that is out of use. Raises SlurmError."""
    call.log(f"fails, and is {'+'.join(sorted(node.flags))} already ({node.reason}): {wanted.reason}", ERROR)
    is_looked_at = node.is_taken_back_by_hand(control.config)
    if is_looked_at and not remembered_drains(call.state):  # otherwise it may be drained for one of ours
        forget(call, [wanted])
    return is_looked_at


def confirm_claim(call: Call, claim: Drain) -> bool:
    """Check a claim: the node stays drained, or exceeds the limit and is resumed. Raises SlurmError."""
    node = control.node_state(call.node)
    full = full_after_claim(call.node, node.partitions, call.settings.health_check)
    if not full:
        call.log(f"drains: {claim.reason}", ERROR)
        update_remembered(call.state, replace(claim, is_reported=True, is_claim=False))
        return True
    call.log(f"NOT DRAINED, as {full}: {claim.reason}", CRITICAL)
    last = drain_budget_of(call.state)
    record_full_partition(call, full, last.nodes if last else 0)
    node = control.node_state(call.node)
    if is_ours(node, (claim,)) and node.may_be_resumed:
        forget_ineffective(call, take_back(call, node, known_drains(call, claim)))
    else:
        forget_ineffective(call, (claim,))
    return False


def resume(call: Call, run: CheckRun, ours: tuple[Drain, ...]) -> None:
    """Resume the node after passing runs, if the drain is still ours. Raises SlurmError.

    Some checks depend on the occasion: findings of a prolog or an epilog must pass under its rules.
    """
    if not call.settings.drains or not call.settings.health_check.resume:
        return
    occasions = sorted({drain.occasion for drain in ours}.intersection(OF_JOBS))
    passes = run.is_passing
    while passes and occasions:
        occasion = occasions.pop()
        run = check((occasion,), call.settings, call.left_s, begin_of(ours), call.log)
        call.log_run(run)
        is_still_found = any(drain.is_still_found(run) for drain in ours if drain.occasion == occasion)
        passes = run.checked > 0 and not is_still_found and not run.of("incomplete")
    if not passes:
        call.log(f"stays drained: {len(run.of('fail'))} fail, {len(run.of('incomplete'))} incomplete", WARNING)
        return
    node = control.node_state(call.node)
    if is_ours(node, ours) and node.goes_down:
        call.log("passes, and stays drained until it is rebooted or powered down, as Slurm was asked to", WARNING)
    elif is_ours(node, ours) and node.may_be_resumed:
        ended = take_back(call, node, ours)
        call.log(f"resumes, as all pass: it was drained for {node.reason}", WARNING)
        release(call.state, ended)
        call.state.forget(VERDICT)  # a prolog would reuse it
        call.advance(begin_of(ours), run.ends)
