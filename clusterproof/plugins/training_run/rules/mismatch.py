"""Ranks that call different collectives: at the same place of a process group one operation, or one size, for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.records import Called, Dump, rank_names

LEAST_RANKS = 2


@record
class Mismatch:
    """The first place of a group at which ranks differ; `odd` are fewer than `others`, or nobody can say who is."""

    group: str  # what the process group is for
    number: int
    odd: Mapping[int, Called]  # by rank
    others: Mapping[int, Called]

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
    """One for each process group in which ranks differ and some still wait, the earliest first.

    What every rank has ended was no mismatch, or did no harm that is to be seen.
    """
    return tuple(sorted(_mismatches(dumps), key=lambda one: min(map(_time, one.odd.values()))))


def _time(called: Called) -> float:
    return float("inf") if called.time is None else called.time


def _mismatches(dumps: Mapping[int, Dump]) -> Iterator[Mismatch]:
    groups: dict[tuple[str, tuple[int, ...]], list[Dump]] = {}  # one of another rank may have the same name
    for _, dump in sorted(dumps.items()):
        for group in dump.called:
            groups.setdefault((group, dump.members.get(group, ())), []).append(dump)
    for (group, _), members in groups.items():
        numbers = sorted({number for dump in members for number in dump.called[group]})
        found = (_at(group, number, members) for number in numbers)
        yield from (one for one in (next(filter(None, found), None),) if one)


def _at(group: str, number: int, members: list[Dump]) -> Mismatch | None:
    """What differs at one place of a group."""
    called = {dump.rank: dump.called[group][number] for dump in members if number in dump.called[group]}
    waits = [dump for dump in members if group in dump.pending and dump.pending[group].number <= number]
    kinds = Counter(map(_kind, called.values()))
    if len(called) < LEAST_RANKS or len(kinds) < 2 or not called.keys() & {dump.rank for dump in waits}:
        return None
    usual, _ = kinds.most_common(1)[0]
    odd = {rank: one for rank, one in called.items() if _kind(one) != usual}
    others = {rank: one for rank, one in called.items() if _kind(one) == usual}
    word = next(dump.words.get(group, group) for dump in members)
    return Mismatch(word, number, odd, others)


def _kind(called: Called) -> tuple[str, int, str]:
    return called.name, called.elements, called.dtype
