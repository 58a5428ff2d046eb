"""Flight Recorder dumps at a job's end: mismatched collectives, and ranks that were waited for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.case import Event, Lead, Span, one_line
from clusterproof.plugins.training_run import Dump, rank_names
from clusterproof.plugins.training_run.rules.hang import CollectiveWait, Mismatch, last_call, mismatches, missing

LONGEST = 300  # characters of what ranks called


def recorder_events(dumps: Mapping[int, Dump], files: Mapping[int, str]) -> Iterator[Event]:
    """An event for each process group whose ranks called different collectives while some wait."""
    for mismatch in mismatches(dumps):
        if not mismatch.holds_up:
            continue
        first = min(mismatch.odd)
        rank = first if len(mismatch.odd) == 1 and mismatch.has_majority else None
        message = f"{mismatch.description}, at collective {mismatch.number} of {mismatch.group}"
        yield Event("desync", one_line(message, LONGEST), one_line(files.get(first, "")), _when(mismatch), "", rank)


def _when(mismatch: Mismatch) -> Span:
    times = [called.time for called in mismatch.odd.values() if called.time is not None]
    return Span(min(times), min(times)) if times else Span()


def recorder_leads(dumps: Mapping[int, Dump], nodes: Mapping[int, str], without_dump: bool) -> Iterator[Lead]:
    """Ranks that others waited for; those without a dump only on request."""
    for wait in missing(dumps).shown():
        for rank in wait.missing:
            if rank in dumps:
                last = last_call(dumps[rank])
                yield Lead(rank, _text(wait), nodes.get(rank, ""), line=f"{last.name} at {last.where}" if last else "")
            elif without_dump:
                yield Lead(rank, f"left no dump of the Flight Recorder, and {_waited(wait)}", nodes.get(rank, ""))


def _text(wait: CollectiveWait) -> str:
    what = one_line(f"{wait.collective.name} {wait.collective.number} of {wait.group}")
    if wait.is_called:
        return f"called {what}, but its GPU did not begin it, while {rank_names(wait.waiting)} waited in it"
    return f"did not come to {what}, in which {rank_names(wait.waiting)} waited"


def _waited(wait: CollectiveWait) -> str:
    what = one_line(f"{wait.collective.name} {wait.collective.number} of {wait.group}")
    return f"{rank_names(wait.waiting)} waited in {what}"
