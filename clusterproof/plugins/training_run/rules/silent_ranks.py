"""Ranks that log no more while most of them do, or of whom there is nothing: what they do is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low

from clusterproof.plugins.core.verdict import incomplete, part
from clusterproof.plugins.training_run.run_data import RunData

LEAST_LEFT, LEFT_SHARE = 20, 0.1  # steps, of all, that may be in a buffer when a run is stopped
MAX_NAMED = 5  # ranks
ABSENT_SHARE = 0.25  # of ranks at most: where more are absent, only some were to log


def silent_ranks(recorded: RunData) -> Mapping[int, str]:
    """These ranks, each with what is known of it: `rank 5 logs nothing after step 200 of 400`."""
    lasts = _lasts(recorded)
    if len(lasts) < 2 or len(recorded.unranked) > 1:
        return {}
    end = median_low(lasts.values())  # that half of them reach at least
    room = max(LEAST_LEFT, LEFT_SHARE * end)
    silent = {
        rank: f"rank {rank} logs nothing after step {last:,} of {end:,}"
        for rank, last in sorted(lasts.items())
        if end - last > room and rank not in recorded.unnamed
    }
    absent = [rank for rank in range(max(lasts)) if rank not in lasts] if max(lasts) < 2 * len(lasts) else []
    if len(absent) <= ABSENT_SHARE * (max(lasts) + 1):
        silent |= {rank: f"rank {rank} logs nothing" for rank in absent}
    return silent


def require_all(silent: Mapping[int, str]) -> None:
    """Say that a check is incomplete where ranks are silent, and go on."""
    if silent:
        names = list(silent.values())
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        seen = f"{'; '.join(names[:MAX_NAMED])}{more}"
        with part:
            incomplete(f"{seen}; expected the steps of every rank: give its whole file, or look whether it was lost")


def _lasts(recorded: RunData) -> dict[int, int]:
    """The last step of each rank."""
    lasts = {rank: max(cells) for rank, cells in recorded.steps.items() if cells}
    for (rank, _), cells in recorded.compute.items():
        if cells:
            lasts[rank] = max(lasts.get(rank, 0), max(cells))
    return lasts
