"""Which rank the others wait for, by what the processes of all do: the one that does otherwise than most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.training_run.rank_processes import ASLEEP, COMPUTING, STATES, Activity, RankProcesses
from clusterproof.plugins.training_run.records import rank_names

LATE_S = 45.0  # since a process was seen last, until it counts as ended: four looks
LEAST_RANKS = 3  # of two that wait in different places nothing says which is at fault


@record
class Awaited:
    """Ranks that others wait for, what each does, and what the others wait in, for how long together."""

    activities: Mapping[int, str]
    waiting: tuple[int, ...]
    wait: str
    seconds: float

    @property
    def words(self) -> str:
        """`rank 3 is in hrtimer_nanosleep, and others wait in futex_do_wait for 14.0 min (ranks 0, 1, 2 waiting)`."""
        doing = "; ".join(f"rank {rank} {said}" for rank, said in self.activities.items())
        others = "for their GPUs" if self.wait == COMPUTING else f"in {self.wait}"
        return f"{doing}, and others wait {others} for {self.seconds / 60:.1f} min ({rank_names(self.waiting)} waiting)"


def awaited(processes: RankProcesses, least_s: float, *, gpus_wait_s: float = 0.0) -> Awaited | None:
    """Whom most ranks wait for, all of this for so long; None where they do not wait.

    `gpus_wait_s`: for how long all GPUs in use only wait, as ranks of NCCL do, which use a CPU meanwhile. Raises
    Incomplete where they wait and nothing tells for whom. Several are named only where they have ended, or are all that
    runs on their node: else they may wait for each other.
    """
    ranks, size = processes.latest, processes.latest_size
    if not ranks:
        return None
    now = max(one.seen_s for one in ranks.values())
    alive = {rank: one for rank, one in sorted(ranks.items()) if now - one.seen_s <= LATE_S}
    [(most, count)] = Counter(one.name for one in alive.values()).most_common(1)
    same = {rank: one for rank, one in alive.items() if one.name == most}
    seconds = min(one.seconds for one in same.values())
    if len(alive) < 2 or 2 * count <= len(alive) or seconds < least_s or (most == COMPUTING and gpus_wait_s < least_s):
        return None
    seen = f"{rank_names(list(same))} wait in {most} for {seconds / 60:.1f} min"
    if len(ranks) < size:
        raise Incomplete(f"{seen}, and {len(ranks)} of {size} ranks were seen: watch all nodes of the job")
    odd = {rank: one for rank, one in sorted(ranks.items()) if rank not in same}
    if not odd or len(ranks) < LEAST_RANKS:
        raise Incomplete(f"{seen}, and no other rank does otherwise: look at their stacks (py-spy dump)")
    changing = [rank for rank, one in odd.items() if rank in alive and one.seconds < least_s]
    if changing:
        raise Incomplete(f"{seen}, and {rank_names(changing)} changed meanwhile: look at their stacks (py-spy dump)")
    if len(odd) > 1 and odd.keys() & alive.keys() and not _are_one_node(odd, same):
        raise Incomplete(f"{seen}, and {rank_names(list(odd))} elsewhere: look at their stacks (py-spy dump)")
    activities = {rank: doing(one) if rank in alive else "has ended" for rank, one in odd.items()}
    return Awaited(activities, tuple(same), most, seconds)


def _are_one_node(odd: Mapping[int, Activity], others: Mapping[int, Activity]) -> bool:
    nodes = {one.node for one in odd.values()}
    return len(nodes) == 1 and nodes.isdisjoint(one.node for one in others.values())


def doing(one: Activity) -> str:
    """`is in hrtimer_nanosleep`."""
    is_word = one.name in (COMPUTING, ASLEEP, *STATES.values())
    return f"is {one.name}" if is_word else f"is in {one.name}"
