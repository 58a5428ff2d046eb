"""What the dumps of the Flight Recorder say together: who called another collective, and for whom others waited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.case.records import Event, Lead, Span, one_line
from clusterproof.plugins.training_run.records import Dump, rank_names
from clusterproof.plugins.training_run.rules.mismatch import Mismatch, mismatches
from clusterproof.plugins.training_run.rules.missing_ranks import Wait, last_call, missing

LONGEST = 300  # characters of what ranks called


def events(dumps: Mapping[int, Dump], files: Mapping[int, str]) -> Iterator[Event]:
    """One for each process group in which ranks called different collectives, and some wait there."""
    for one in (each for each in mismatches(dumps) if each.holds_up):
        first = min(one.odd)
        rank = first if len(one.odd) == 1 and one.has_majority else None
        words = f"{one.words}, at collective {one.number} of {one.group}"
        yield Event("desync", one_line(words, LONGEST), one_line(files.get(first, "")), _when(one), "", rank)


def _when(one: Mismatch) -> Span:
    times = [called.time for called in one.odd.values() if called.time is not None]
    return Span(min(times), min(times)) if times else Span()


def leads(dumps: Mapping[int, Dump], nodes: Mapping[int, str], without_dump: bool = True) -> Iterator[Lead]:
    """Ranks that others waited for; those that left no dump only where they are asked for."""
    for wait in missing(dumps).shown():
        for rank in wait.missing:
            if rank in dumps:
                last = last_call(dumps[rank])
                yield Lead(rank, _words(wait), nodes.get(rank, ""), line=f"{last.name} at {last.where}" if last else "")
            elif without_dump:
                yield Lead(rank, f"left no dump of the Flight Recorder, and {_waited(wait)}", nodes.get(rank, ""))


def _words(wait: Wait) -> str:
    what = one_line(f"{wait.collective.name} {wait.collective.number} of {wait.group}")
    if wait.is_called:
        return f"called {what}, but its GPU did not begin it, while {rank_names(wait.waiting)} waited in it"
    return f"did not come to {what}, in which {rank_names(wait.waiting)} waited"


def _waited(wait: Wait) -> str:
    what = one_line(f"{wait.collective.name} {wait.collective.number} of {wait.group}")
    return f"{rank_names(wait.waiting)} waited in {what}"
