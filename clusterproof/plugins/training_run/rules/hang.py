"""Why a run hangs: ranks that call different collectives, ranks that others wait for, and ranks unlike most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Set

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.training_run import CollectiveArguments, Dump, GroupProgress, PendingCollective, rank_names
from clusterproof.plugins.training_run.collectives import has_root_or_peer
from clusterproof.plugins.training_run.rank_processes import ASLEEP, COMPUTING, LATE_S, STATES, Activity, RankProcesses


@record
class Mismatch:
    """The first collective of a group on which ranks differ; `odd` are fewer than `others`, unless that is undecided.

    A place that no rank has reached, because all wait earlier, does not hold up the run.
    """

    group: str  # purpose of the process group
    number: int
    odd: Mapping[int, CollectiveArguments]  # by rank
    others: Mapping[int, CollectiveArguments]
    holds_up: bool = True

    @property
    def description(self) -> str:
        """Which ranks called what, the minority first."""
        groups: dict[str, list[int]] = {}
        for rank, called in (*self.odd.items(), *self.others.items()):
            line = f" ({called.where})" if called.where else ""
            groups.setdefault(f"{called.description}{line}", []).append(rank)
        return ", ".join(f"{rank_names(ranks)} called {what}" for what, ranks in groups.items())

    @property
    def has_majority(self) -> bool:
        """Whether most ranks called the same, so that the odd ones are known."""
        return len(self.others) > len(self.odd)


def mismatches(dumps: Mapping[int, Dump]) -> tuple[Mismatch, ...]:
    """One for each process group whose ranks differ at a place where some wait, or later; the earliest first.

    Calls that every rank has completed were no mismatch, or had no visible effect.
    """
    return tuple(sorted(_mismatches(dumps), key=lambda mismatch: min(map(_time, mismatch.odd.values()))))


def is_comparable(dump: Dump, group: str) -> bool:
    """Whether numbers identify the same collective of a group in this dump as in others.

    Some versions of PyTorch count a batch of sends as a collective, and ranks may have different numbers of batches.
    """
    return group in dump.called and bool(dump.members.get(group)) and group not in dump.with_sends


def _time(called: CollectiveArguments) -> float:
    return float("inf") if called.time is None else called.time


def _mismatches(dumps: Mapping[int, Dump]) -> Iterator[Mismatch]:
    groups: dict[tuple[str, tuple[int, ...]], list[Dump]] = {}  # another rank's group may have the same name
    for _, dump in sorted(dumps.items()):
        for group in dump.called:
            if is_comparable(dump, group):
                groups.setdefault((group, dump.members[group]), []).append(dump)
    for (group, _), members in groups.items():
        waits = min((dump.pending[group].number for dump in members if group in dump.pending), default=math.inf)
        numbers = sorted({number for dump in members for number in dump.called[group] if number >= waits})
        mismatches = (_at(group, number, members) for number in numbers)
        yield from (mismatch for mismatch in (next(filter(None, mismatches), None),) if mismatch)


def _at(group: str, number: int, members: list[Dump]) -> Mismatch | None:
    """The differences at a place."""
    there = {dump.rank: dump for dump in members if number in dump.called[group]}
    called = _of_one_wait({rank: dump.called[group][number] for rank, dump in there.items()})
    called = _with_size(
        _without_partial_batches(called, {rank for rank, dump in there.items() if dump.enqueued[group] == number})
    )
    has_types = all(call.dtype for call in called.values())
    kinds = {rank: (call.name, call.elements, call.dtype if has_types else "") for rank, call in called.items()}
    if len(set(kinds.values())) < 2:
        return None
    waits = any(group in there[rank].pending and there[rank].pending[group].number == number for rank in called)
    most_common, _ = Counter(kinds.values()).most_common(1)[0]
    odd = {rank: call for rank, call in called.items() if kinds[rank] != most_common}
    others = {rank: call for rank, call in called.items() if kinds[rank] == most_common}
    word = next(dump.purposes.get(group, group) for dump in members)
    return Mismatch(word, number, odd, others, waits)


def _of_one_wait(called: Mapping[int, CollectiveArguments]) -> dict[int, CollectiveArguments]:
    """Only calls within the timeout before the last one: earlier callers no longer waited, or were of another
    attempt.
    """
    times = [call.time for call in called.values() if call.time is not None]
    last = max(times, default=0.0)
    return {rank: call for rank, call in called.items() if call.time is None or last - call.time <= call.timeout_s}


def _without_partial_batches(
    called: Mapping[int, CollectiveArguments], last: Set[int]
) -> dict[int, CollectiveArguments]:
    """Without ranks whose last call was a part of the others' batch, as they wrote their dumps meanwhile."""
    parts = {call.name: frozenset(call.name.split("+")) for call in called.values()}
    cut = {name for name, some in parts.items() if any(some < whole for whole in parts.values())}
    return {rank: call for rank, call in called.items() if rank not in last or call.name not in cut}


def _with_size(called: Mapping[int, CollectiveArguments]) -> dict[int, CollectiveArguments]:
    """Without ranks whose dumps lack the size of a call that others made under the same name."""
    known = {call.name for call in called.values() if call.elements is not None}
    return {rank: call for rank, call in called.items() if call.elements is not None or call.name not in known}


@record
class CollectiveWait:
    """A collective in which some ranks wait for others, which have not called it, or whose GPUs have not begun it."""

    group: str  # what the process group is for
    collective: PendingCollective
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    is_called: bool = False  # also called by the missing ones, if earlier work holds up their GPUs


@record
class Missing:
    """The ranks that others wait for, the collectives, and ranks without a dump."""

    ranks: tuple[int, ...]
    waits: tuple[CollectiveWait, ...]
    without_dump: tuple[int, ...]
    are_waiting: bool  # whether any rank waits at all

    def shown(self) -> list[CollectiveWait]:
        """The fewest of the collectives that include every missing rank."""
        left, waits = set(self.ranks), []
        while left:
            most = max(self.waits, key=lambda wait: len(left.intersection(wait.missing)))
            waits.append(most)
            left -= set(most.missing)
        return waits


def missing(dumps: Mapping[int, Dump]) -> Missing:
    """The missing ranks; none if no rank waits in a collective that another has not reached.

    A rank that itself waits is only late: the one that waits for none is at fault. If all wait for others, all are.
    Sends and receives between two ranks only count if no collective waits, or for a rank that others wait for in one.
    """
    named = {rank for dump in dumps.values() for ranks in dump.members.values() for rank in ranks}
    waits = tuple(_waits(dumps))
    late = {rank for wait in waits for rank in wait.missing}
    waits += tuple(_waits_of_pairs(dumps, late or dumps.keys()))
    waited_for = {rank for wait in waits for rank in wait.missing}
    not_waiting = waited_for - {rank for wait in waits for rank in wait.waiting}
    exchanging = {rank for rank, dump in dumps.items() if any(pair.peer in waited_for for pair in dump.exchanges)}
    at_fault = not_waiting - exchanging or not_waiting or waited_for
    return Missing(
        tuple(sorted(at_fault)),
        tuple(wait for wait in waits if at_fault.intersection(wait.missing)),
        tuple(sorted(named - dumps.keys())),
        any(dump.pending or dump.exchanges for dump in dumps.values()),
    )


def _waits_of_pairs(dumps: Mapping[int, Dump], of: Set[int]) -> Iterator[CollectiveWait]:
    """One of these ranks that waits for another, which waits for nobody."""
    for rank in sorted(of & dumps.keys()):
        dump = dumps[rank]
        for exchange in dump.exchanges:
            peer = dumps.get(exchange.peer)
            if not peer or not (peer.pending or peer.exchanges):
                word = dump.purposes.get(exchange.group, exchange.group)
                yield CollectiveWait(word, PendingCollective(exchange.number, exchange.name), (rank,), (exchange.peer,))


def _waits(dumps: Mapping[int, Dump]) -> Iterator[CollectiveWait]:
    purposes = {group: purpose for dump in dumps.values() for group, purpose in dump.purposes.items()}
    for group, ranks in _groups(dumps):
        known = [dumps[rank] for rank in ranks if rank in dumps and dumps[rank].members.get(group, ranks) == ranks]
        reached = {rank: _reached(dumps.get(rank), group) for rank in ranks}
        pending: dict[int, tuple[PendingCollective, list[int]]] = {}
        for dump in known:
            if group in dump.pending:
                first = dump.pending[group]
                pending.setdefault(first.number, (first, []))[1].append(dump.rank)
        for number, (first, waiting) in sorted(pending.items()):
            late = tuple(rank for rank, at in reached.items() if at and not at.has_arrived(number))
            begun = tuple(rank for rank in waiting if dumps[rank].pending[group].has_begun)
            behind = tuple(rank for rank in waiting if dumps[rank].pending[group].has_begun is False)
            if late:
                yield CollectiveWait(purposes[group], first, tuple(waiting), late)
            elif begun and behind:
                yield CollectiveWait(purposes[group], first, begun, behind, is_called=True)


def _groups(dumps: Mapping[int, Dump]) -> list[tuple[str, tuple[int, ...]]]:
    """Each group and its ranks; others may have its name. A dump before 2.0 lists none: the first has all ranks."""
    groups = dict.fromkeys((group, ranks) for dump in dumps.values() for group, ranks in dump.members.items())
    of_all = DEFAULT in {group for dump in dumps.values() for group in dump.enqueued}
    return list(groups) or ([(DEFAULT, tuple(sorted(dumps)))] if of_all else [])


def last_call(dump: Dump) -> CollectiveArguments | None:
    """The last collective that a rank called, if the dump has the line of its program; otherwise None."""
    known = [call for calls in dump.called.values() for call in calls.values() if call.time is not None]
    last = max(known, key=lambda call: call.time or 0.0, default=None)
    return last if last and last.where else None


DEFAULT = "0"  # the group of all ranks, which every rank makes first
NOWHERE = GroupProgress(-1, -1)


def _reached(dump: Dump | None, group: str) -> GroupProgress | None:
    """How far a rank has come in a group; None if unknown.

    What it has enqueued is completed if its ring contains nothing that waits.
    """
    if dump is None:
        return NOWHERE
    status = dump.status.get(dump.local.get(group, ""))
    if status is None and group not in dump.enqueued:
        return None if dump.pending else NOWHERE  # a rank that waits nowhere is waited for
    enqueued = max(dump.enqueued.get(group, -1), status.enqueued if status else -1)
    waits = dump.pending.get(group)
    if waits is None or has_root_or_peer(waits.name):  # others may have correctly ended the collective
        return GroupProgress(enqueued, enqueued)
    return GroupProgress(enqueued, waits.number - 1)


MIN_RANKS = 3  # with two that wait in different places, neither can be blamed


@record
class AwaitedRanks:
    """Ranks that others wait for by their processes: what each does, what the others wait in, and for how long."""

    activities: Mapping[int, str]
    waiting: tuple[int, ...]
    wait: str
    seconds: float

    @property
    def description(self) -> str:
        """`rank 3 is in hrtimer_nanosleep, and others wait in futex_do_wait for 14.0 min (ranks 0, 1, 2 waiting)`."""
        doing = "; ".join(f"rank {rank} {activity}" for rank, activity in self.activities.items())
        others = "for their GPUs" if self.wait == COMPUTING else f"in {self.wait}"
        return f"{doing}, and others wait {others} for {self.seconds / 60:.1f} min ({rank_names(self.waiting)} waiting)"


def awaited(processes: RankProcesses, least_s: float, *, gpus_wait_s: float = 0.0) -> AwaitedRanks | None:
    """The ranks that most others have been waiting for, for so long; None if nobody waits.

    `gpus_wait_s`: how long all GPUs in use only wait, as NCCL's ranks do, which use CPU meanwhile. Raises Incomplete
    if they wait for an unknown rank. Several are only named if they have ended, or are all the ranks of their node:
    otherwise they may be waiting for each other.
    """
    ranks, size = processes.latest, processes.latest_size
    if not ranks:
        return None
    now = max(activity.seen_s for activity in ranks.values())
    alive = {rank: activity for rank, activity in sorted(ranks.items()) if now - activity.seen_s <= LATE_S}
    [(most, count)] = Counter(activity.name for activity in alive.values()).most_common(1)
    same = {rank: activity for rank, activity in alive.items() if activity.name == most}
    seconds = min(activity.seconds for activity in same.values())
    if len(alive) < 2 or 2 * count <= len(alive) or seconds < least_s or (most == COMPUTING and gpus_wait_s < least_s):
        return None
    seen = f"{rank_names(list(same))} wait in {most} for {seconds / 60:.1f} min"
    if len(ranks) < size:
        raise Incomplete(f"{seen}, and {len(ranks)} of {size} ranks were seen: watch all nodes of the job")
    odd = {rank: activity for rank, activity in sorted(ranks.items()) if rank not in same}
    if not odd or len(ranks) < MIN_RANKS:
        raise Incomplete(f"{seen}, and no other rank does otherwise: look at their stacks (py-spy dump)")
    changing = [rank for rank, activity in odd.items() if rank in alive and activity.seconds < least_s]
    if changing:
        raise Incomplete(f"{seen}, and {rank_names(changing)} changed meanwhile: look at their stacks (py-spy dump)")
    if len(odd) > 1 and odd.keys() & alive.keys() and not _are_one_node(odd, same):
        raise Incomplete(f"{seen}, and {rank_names(list(odd))} elsewhere: look at their stacks (py-spy dump)")
    activities = {rank: doing(activity) if rank in alive else "has ended" for rank, activity in odd.items()}
    return AwaitedRanks(activities, tuple(same), most, seconds)


def _are_one_node(odd: Mapping[int, Activity], others: Mapping[int, Activity]) -> bool:
    nodes = {activity.node for activity in odd.values()}
    return len(nodes) == 1 and nodes.isdisjoint(activity.node for activity in others.values())


def doing(activity: Activity) -> str:
    """`is in hrtimer_nanosleep`."""
    is_word = activity.name in (COMPUTING, ASLEEP, *STATES.values())
    return f"is {activity.name}" if is_word else f"is in {activity.name}"
