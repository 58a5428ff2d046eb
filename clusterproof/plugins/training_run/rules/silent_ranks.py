"""Ranks that stop logging while most continue, or that have no data: their activity is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_high

from clusterproof.plugins.core.verdict import incomplete, part
from clusterproof.plugins.training_run.run_data import RunData

MIN_LEFT, LEFT_SHARE = 20, 0.1  # steps, of all, that may be in a buffer when a run is stopped
MIN_LINES = 2  # of the rank's that are missing
MAX_NAMED = 5  # ranks
ABSENT_SHARE = 0.25  # maximum share of ranks: if more are missing, only some were meant to log


def silent_ranks(recorded: RunData) -> Mapping[int, str]:
    """The silent ranks, each with what is known: `rank 5 logs nothing after step 200 of 400`."""
    logged = _logged(recorded)
    lasts = {rank: max(steps) for rank, steps in logged.items()}
    if len(lasts) < 2 or len(recorded.unranked) > 1:
        return {}
    end = median_high(lasts.values())  # reached by at least half of them
    silent = {
        rank: f"{recorded.rank_words(rank)} logs nothing after step {last:,} of {end:,}"
        for rank, last in sorted(lasts.items())
        if end - last > max(MIN_LEFT, LEFT_SHARE * end, MIN_LINES * _interval(logged[rank]))
        and rank not in recorded.of_run
    }
    absent = [rank for rank in range(max(lasts)) if rank not in lasts] if max(lasts) < 2 * len(lasts) else []
    if len(absent) <= ABSENT_SHARE * (max(lasts) + 1):
        silent |= {rank: f"rank {rank} logs nothing" for rank in absent}
    return silent


def require_all(silent: Mapping[int, str]) -> None:
    """Report a check as incomplete if ranks are silent, and continue."""
    if silent:
        names = list(silent.values())
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        seen = f"{'; '.join(names[:MAX_NAMED])}{more}"
        with part:
            incomplete(f"{seen}; expected the steps of every rank: give its whole file, or look whether it was lost")


def _logged(recorded: RunData) -> dict[int, set[int]]:
    """The steps that each rank logs."""
    logged = {rank: set(cells) for rank, cells in recorded.steps.items() if cells}
    for (rank, _), cells in recorded.compute.items():
        if cells:
            logged.setdefault(rank, set()).update(cells)
    return logged


def _interval(steps: set[int]) -> float:
    """How many steps a rank's line stands for."""
    return (max(steps) - min(steps)) / max(1, len(steps) - 1)
