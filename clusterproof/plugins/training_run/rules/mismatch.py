"""Ranks that call different collectives: at the same place of a process group one operation, or one size, for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Set

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.records import Called, Dump, rank_names


@record
class Mismatch:
    """The first place of a group at which ranks differ; `odd` are fewer than `others`, or nobody can say who is.

    A place in which nobody waits yet, as all wait before it, is not what `holds_up` the run.
    """

    group: str  # what the process group is for
    number: int
    odd: Mapping[int, Called]  # by rank
    others: Mapping[int, Called]
    holds_up: bool = True

    @property
    def words(self) -> str:
        """Which ranks called what, the odd ones first."""
        groups: dict[str, list[int]] = {}
        for rank, called in (*self.odd.items(), *self.others.items()):
            line = f" ({called.where})" if called.where else ""
            groups.setdefault(f"{called.words}{line}", []).append(rank)
        return ", ".join(f"{rank_names(ranks)} called {what}" for what, ranks in groups.items())

    @property
    def has_majority(self) -> bool:
        """Whether most ranks called the same, so that the odd ones are known."""
        return len(self.others) > len(self.odd)


def mismatches(dumps: Mapping[int, Dump]) -> tuple[Mismatch, ...]:
    """One for each process group in which ranks differ where some wait, or behind that; the earliest first.

    What every rank has ended was no mismatch, or did no harm that is to be seen.
    """
    return tuple(sorted(_mismatches(dumps), key=lambda one: min(map(_time, one.odd.values()))))


def is_comparable(dump: Dump, group: str) -> bool:
    """Whether a number stands for the same collective of a group in this dump as in others.

    Some versions of PyTorch count a batch of sends as a collective, and not every rank of a group has as many batches.
    """
    return group in dump.called and bool(dump.members.get(group)) and group not in dump.with_sends


def _time(called: Called) -> float:
    return float("inf") if called.time is None else called.time


def _mismatches(dumps: Mapping[int, Dump]) -> Iterator[Mismatch]:
    groups: dict[tuple[str, tuple[int, ...]], list[Dump]] = {}  # one of another rank may have the same name
    for _, dump in sorted(dumps.items()):
        for group in dump.called:
            if is_comparable(dump, group):
                groups.setdefault((group, dump.members[group]), []).append(dump)
    for (group, _), members in groups.items():
        waits = min((dump.pending[group].number for dump in members if group in dump.pending), default=math.inf)
        numbers = sorted({number for dump in members for number in dump.called[group] if number >= waits})
        found = (_at(group, number, members) for number in numbers)
        yield from (one for one in (next(filter(None, found), None),) if one)


def _at(group: str, number: int, members: list[Dump]) -> Mismatch | None:
    """What differs at a place."""
    there = {dump.rank: dump for dump in members if number in dump.called[group]}
    called = _of_one_wait({rank: dump.called[group][number] for rank, dump in there.items()})
    called = _with_size(_whole(called, {rank for rank, dump in there.items() if dump.enqueued[group] == number}))
    has_types = all(one.dtype for one in called.values())
    kinds = {rank: (one.name, one.elements, one.dtype if has_types else "") for rank, one in called.items()}
    if len(set(kinds.values())) < 2:
        return None
    waits = any(group in there[rank].pending and there[rank].pending[group].number == number for rank in called)
    usual, _ = Counter(kinds.values()).most_common(1)[0]
    odd = {rank: one for rank, one in called.items() if kinds[rank] != usual}
    others = {rank: one for rank, one in called.items() if kinds[rank] == usual}
    word = next(dump.words.get(group, group) for dump in members)
    return Mismatch(word, number, odd, others, waits)


def _of_one_wait(called: Mapping[int, Called]) -> dict[int, Called]:
    """Those within the timeout of the last: who called before that no longer waited, or is of an earlier attempt."""
    times = [one.time for one in called.values() if one.time is not None]
    last = max(times, default=0.0)
    return {rank: one for rank, one in called.items() if one.time is None or last - one.time <= one.timeout_s}


def _whole(called: Mapping[int, Called], last: Set[int]) -> dict[int, Called]:
    """Without ranks that had called but a part of the others' batch when they wrote their dumps: it was their last."""
    parts = {one.name: frozenset(one.name.split("+")) for one in called.values()}
    cut = {name for name, some in parts.items() if any(some < whole for whole in parts.values())}
    return {rank: one for rank, one in called.items() if rank not in last or one.name not in cut}


def _with_size(called: Mapping[int, Called]) -> dict[int, Called]:
    """Without ranks whose dumps do not have the size of what others called by the same name."""
    known = {one.name for one in called.values() if one.elements is not None}
    return {rank: one for rank, one in called.items() if one.elements is not None or one.name not in known}
