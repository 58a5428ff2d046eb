"""Which ranks a run waits for that hangs: those that others wait for, and that wait for nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.collectives import ends_apart
from clusterproof.plugins.training_run.records import Called, Dump, Pending, Status


@record
class Wait:
    """A collective in which some ranks wait for others, which have not come to it; or only their GPUs have not."""

    group: str  # what the process group is for
    collective: Pending
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    is_called: bool = False  # by those that are missing, too: work before it holds up their GPUs


@record
class Missing:
    """The ranks that are waited for, in which collectives, and which of all ranks left no dump."""

    ranks: tuple[int, ...]
    waits: tuple[Wait, ...]
    without_dump: tuple[int, ...]
    are_waiting: bool  # whether any rank waits at all

    def shown(self) -> list[Wait]:
        """As few of the collectives as have every rank that is missing."""
        left, found = set(self.ranks), []
        while left:
            most = max(self.waits, key=lambda wait: len(left.intersection(wait.missing)))
            found.append(most)
            left -= set(most.missing)
        return found


def missing(dumps: Mapping[int, Dump]) -> Missing:
    """Who is missing; nobody where no rank waits in a collective to which another has not come.

    A rank that waits is late elsewhere: only one that waits for none is at fault. Where all wait for others, all are.
    Sends and receives between two ranks are asked only where no collective waits.
    """
    named = {rank for dump in dumps.values() for ranks in dump.members.values() for rank in ranks}
    waits = tuple(_waits(dumps)) or tuple(_waits_of_pairs(dumps))
    waited_for = {rank for wait in waits for rank in wait.missing}
    at_fault = waited_for - {rank for wait in waits for rank in wait.waiting} or waited_for
    return Missing(
        tuple(sorted(at_fault)),
        tuple(wait for wait in waits if at_fault.intersection(wait.missing)),
        tuple(sorted(named - dumps.keys())),
        any(dump.pending or dump.exchanges for dump in dumps.values()),
    )


def _waits_of_pairs(dumps: Mapping[int, Dump]) -> Iterator[Wait]:
    """A rank that waits for another, which waits for nobody."""
    for rank, dump in sorted(dumps.items()):
        for one in dump.exchanges:
            peer = dumps.get(one.peer)
            if not peer or not (peer.pending or peer.exchanges):
                word = dump.words.get(one.group, one.group)
                yield Wait(word, Pending(one.number, one.name), (rank,), (one.peer,))


def _waits(dumps: Mapping[int, Dump]) -> Iterator[Wait]:
    members = _members(dumps)
    words = {group: word for dump in dumps.values() for group, word in dump.words.items()}
    for group, ranks in members.items():
        known = [dumps[rank] for rank in ranks if rank in dumps]
        reached = {rank: _reached(dumps.get(rank), group) for rank in ranks}
        pending: dict[int, tuple[Pending, list[int]]] = {}
        for dump in known:
            if group in dump.pending:
                first = dump.pending[group]
                pending.setdefault(first.number, (first, []))[1].append(dump.rank)
        for number, (first, waiting) in sorted(pending.items()):
            late = tuple(rank for rank, at in reached.items() if at and not _has_come(at, number))
            begun = tuple(rank for rank in waiting if dumps[rank].pending[group].has_begun)
            behind = tuple(rank for rank in waiting if dumps[rank].pending[group].has_begun is False)
            if late:
                yield Wait(words[group], first, tuple(waiting), late)
            elif begun and behind:
                yield Wait(words[group], first, begun, behind, is_called=True)


def _members(dumps: Mapping[int, Dump]) -> dict[str, tuple[int, ...]]:
    """The ranks of each group. A dump before 2.0 lists none: then all are of the first, and of others nothing."""
    members = {group: ranks for dump in dumps.values() for group, ranks in dump.members.items()}
    of_all = DEFAULT in {group for dump in dumps.values() for group in dump.enqueued}
    return members or ({DEFAULT: tuple(sorted(dumps))} if of_all else {})


def last_call(dump: Dump) -> Called | None:
    """The last collective that a rank called, where the dump has the line of its program; None where it has not."""
    known = [one for calls in dump.called.values() for one in calls.values() if one.time is not None]
    last = max(known, key=lambda one: one.time or 0.0, default=None)
    return last if last and last.where else None


DEFAULT = "0"  # the group of all ranks, which every rank makes first
NOWHERE = Status(-1, -1)


def _reached(dump: Dump | None, group: str) -> Status | None:
    """How far a rank has come in a group; None where it is unknown.

    What it has enqueued has ended where its ring keeps none that waits.
    """
    if dump is None:
        return NOWHERE
    data = dump.status.get(dump.local.get(group, ""))
    if data is None and group not in dump.enqueued:
        return None if dump.pending else NOWHERE  # who waits nowhere is waited for
    enqueued = max(dump.enqueued.get(group, -1), data.enqueued if data else -1)
    waits = dump.pending.get(group)
    if waits is None or ends_apart(waits.name):  # the others may have ended what it waits for rightly
        return Status(enqueued, enqueued)
    return Status(enqueued, waits.number - 1)


def _has_come(at: Status, number: int) -> bool:
    """Whether a rank has enqueued a collective, and ended all before it."""
    return at.enqueued >= number and at.ended >= number - 1
