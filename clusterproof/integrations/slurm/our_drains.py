"""Our drains: giving Slurm their reasons, forgetting those that were ended, and limiting their number.

The limit holds although Slurm starts the health checks of all nodes at the same moment. A node waits a random time,
queries Slurm, drains itself as a claim, and queries again once slurmctld's clock is in another second. Claims are
ordered by the second in which slurmctld received them and by node name; a node with as many claims before it as are
allowed withdraws its own. The last claim in this order that stays was checked after all others were made, and has seen
them: so never more than allowed stay, and the first ones always do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterproof.integrations.slurm import control
from clusterproof.integrations.slurm.call import VERDICT, Call
from clusterproof.integrations.slurm.checking import evaluated_by_the_log
from clusterproof.integrations.slurm.control import NodeState, SlurmError
from clusterproof.integrations.slurm.drains import (
    FOLDER,
    IN_USE,
    LOOKED_AT,
    Drain,
    begin_after_looks,
    is_ours,
    is_unexplained,
    release,
    remembered_drains,
    since_looked_at,
    taken_back,
    unexplained,
    update_remembered,
)
from clusterproof.integrations.slurm.folder import boot_id
from clusterproof.integrations.slurm.records import WARNING
from clusterproof.integrations.slurm.settings import HealthCheck
from clusterproof.integrations.slurm.verdict import PREFIX, Cursor
from clusterproof.plugins.core.record import replace

CLAIMS = "%N|%T|%H|%E"  # for sinfo: node, state, time of its reason, the reason
DRAINED = ("drain", "reboot", "inval")  # prefixes of a drained node's states: sinfo shows the other two instead
RANDOM_WAIT_S = 0.025  # for each node of a partition; the duration of two Slurm commands
MAX_RANDOM_WAIT_S = 5.0
SECOND_S = 1.05  # a second on slurmctld's clock, plus tolerance between two clocks


def known_drains(call: Call, requested: Drain | None) -> tuple[Drain, ...]:
    """The remembered drains; the one that was `requested`, if there are none."""
    return remembered_drains(call.state) or (() if requested is None or call.state.has(FOLDER) else (requested,))


def our_drains(call: Call, requested: Drain | None = None) -> tuple[Drain, ...]:
    """Our drains, if the node is drained for them and Slurm has a reason. Raises SlurmError, OSError.

    `requested` is one that counts even if all records are lost.
    """
    drains = known_drains(call, requested)
    if not drains:
        return ()
    jobs = jobs_on_node(call, drains)
    node = control.node_state(call.node)  # after that: for a job gone by then the node has been drained
    if is_ours(node, drains):
        return not_ended(call, drains, [])  # a reason replaced by a claim has not ended
    unreported = unexplained(drains, requested, jobs)
    in_use_before = str(call.state.read(IN_USE).get("reason", ""))
    if unreported and is_unexplained(node, in_use_before, control.slurm_user):
        control.drain(call.node, unreported.reason)
        claim = replace(unreported, is_reported=True, is_claim=True)
        update_remembered(call.state, claim)
        drains = tuple(claim if drain is unreported else drain for drain in drains)
        return not_ended(call, drains, [drain for drain in drains if drain.is_reported and drain is not claim])
    if node.is_drained:
        forget(call, drains)  # drained by somebody else for another reason
    else:
        in_use(call, node, drains, jobs)
    return ()


def jobs_on_node(call: Call, drains: tuple[Drain, ...]) -> frozenset[str] | None:
    """The node's current jobs in Slurm, if relevant; None if unknown."""
    if all(drain.is_reported for drain in drains):
        return frozenset()
    try:
        return control.jobs_on(call.node)
    except SlurmError as problem:
        call.log(f"goes by the clock: {problem}", WARNING)
        return None


def not_ended(call: Call, drains: tuple[Drain, ...], ended: list[Drain]) -> tuple[Drain, ...]:
    """Those that may still keep the node drained; the others were ended meanwhile and are forgotten.

    Slurm keeps the existing reason of a drained node: one that was set and then replaced has ended.
    """
    looked = forget(call, ended)
    left = (drain for drain in drains if drain not in ended)
    return tuple(since_looked_at(drain, looked, call.cursor, evaluated_by_the_log) for drain in left)


def in_use(call: Call, node: NodeState, drains: tuple[Drain, ...], jobs: frozenset[str] | None) -> None:
    """Forget the drains that ended when a node was resumed, and remember the reason that Slurm may still show.

    Slurm drained it for those whose job is gone; drains that it never performed were not looked at by anybody.
    """
    call.remember(IN_USE, {"reason": node.stamped_reason})
    ended = [drain for drain in drains if drain.is_reported or (is_over(drain, jobs) and not drain.is_claim)]
    forget(call, ended)
    forget_ineffective(call, [drain for drain in drains if drain not in ended and not drain.is_pending])


def take_back(call: Call, node: NodeState, drains: tuple[Drain, ...]) -> list[Drain]:
    """Resume the node without an administrator having looked at it; returns the drains that this ends.

    Slurm may still drain it for a script whose job is not gone. Raises SlurmError, OSError.
    """
    jobs = jobs_on_node(call, drains)
    ended = [drain for drain in drains if is_over(drain, jobs) or not drain.is_pending]
    for drain in ended:  # until forgotten: reported ones would count as looked at
        update_remembered(call.state, replace(drain, is_reported=False, is_claim=True))
    call.remember(IN_USE, {"reason": node.stamped_reason})  # still shown since 24.11
    control.resume(call.node)
    return ended


def is_over(drain: Drain, jobs: frozenset[str] | None) -> bool:
    """Whether a drain's job is known to be gone from Slurm."""
    return jobs is not None and drain.job not in jobs


def forget(call: Call, drains: Sequence[Drain]) -> dict[str, Cursor]:
    """Forget drains that were ended; record how far the kernel log counts as seen for each check."""
    of_this_boot = [drain for drain in drains if drain.boot_id == boot_id()]
    with call.state.locked(f"{LOOKED_AT}.lock"):
        looked = taken_back(call.state, of_this_boot)
        if of_this_boot:
            call.remember(LOOKED_AT, dict(looked))
    if drains:
        call.state.forget(VERDICT)  # a prolog would reuse it
    for drain in of_this_boot:
        call.advance(None, drain.ends)
    release(call.state, drains)
    return looked


def forget_ineffective(call: Call, drains: Iterable[Drain]) -> None:
    """Forget drains that never took effect: their findings in this boot's log are evaluated again."""
    for drain in drains:
        release(call.state, (drain,))
        if drain.boot_id == boot_id():
            call.go_back(begin_after_looks(call.state, drain.begins))


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A node drained for our reason; `at` is the second in which slurmctld received it."""

    at: int
    node: str


def full_before_claim(partitions: Iterable[str], limits: HealthCheck) -> str:
    """Wait the random time; returns which partition has reached its limit, in words, else empty.

    Raises SlurmError.
    """
    sizes = [claims(partition)[1] for partition in partitions]
    wait_random_time(max(sizes, default=0))
    return full_partition(partitions, limits)[0]


def wait_random_time(nodes: int, most_s: float = MAX_RANDOM_WAIT_S) -> None:
    """Wait a random time, so that many nodes do not query at once."""
    time.sleep(random.uniform(0, min(MAX_RANDOM_WAIT_S, most_s, RANDOM_WAIT_S * nodes)))  # noqa: S311 - no secret


def full_after_claim(name: str, partitions: Iterable[str], limits: HealthCheck) -> str:
    """Check this node's claim; returns which partition has enough claims before it, in words, else empty.

    Raises SlurmError.
    """
    time.sleep(SECOND_S)
    return full_partition(partitions, limits, name)[0]


def full_partition(partitions: Iterable[str], limits: HealthCheck, name: str = "", but: str = "") -> tuple[str, int]:
    """Which partition has enough drained nodes, before this node if it is one, in words, else empty; and the size of
    the largest partition checked. The node `but` does not count.

    Raises SlurmError.
    """
    most = 0
    for partition in partitions:
        claimed, total = claims(partition)
        counted = [claim for claim in claimed if claim.node != but]
        count, most = ahead(counted, name), max(most, total)
        if count >= allowed(total, limits.max_drained_percent, limits.max_drained_nodes):
            return f"{count} of {total} nodes of partition {partition} are already drained by clusterproof", most
    return "", most


def claims(partition: str) -> tuple[tuple[Claim, ...], int]:
    """The nodes of a partition that we have drained, and its size. Raises SlurmError."""
    return parse_claims(control.output_of("sinfo", "-h", "-N", "-p", partition, "-o", CLAIMS))


def parse_claims(listing: str) -> tuple[tuple[Claim, ...], int]:
    """The nodes in `sinfo -N` that are drained for our reason, and the number listed.

    A reason alone is no drain: since 24.11 it stays after a resume, until the next job.
    """
    rows = {line.split("|", 1)[0]: line.split("|", 3) for line in listing.splitlines() if line.count("|") >= 3}
    ours = (row for row in rows.values() if row[1].lower().startswith(DRAINED) and row[3].startswith(PREFIX))
    return tuple(sorted(Claim(int(since) if since.isdecimal() else 0, name) for name, _, since, _ in ours)), len(rows)


def ahead(claims_of_all: Iterable[Claim], name: str) -> int:
    """How many of our drains come before this node's: all, if it has none."""
    ordered = sorted(claims_of_all)
    return next((rank for rank, claim in enumerate(ordered) if claim.node == name), len(ordered))


def allowed(total: int, percent: int, nodes: int) -> int:
    """How many nodes of a partition we may drain: the smaller of share and number; at least one."""
    return max(1, min(nodes, total * percent // 100))
