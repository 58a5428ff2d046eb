"""How often something happened whose lines come in bursts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clusterproof.plugins.catalog import Catalog


def occurrences(times: Sequence[float | None], catalog: Catalog, lines: Sequence[int] = ()) -> tuple[float | None, ...]:
    """When each occurrence began: lines at most three minutes apart are one burst, and one occurrence.

    One fault writes many lines: of every channel that it ended, of every rank that used the GPU. A burst that
    goes on for an hour begins a new occurrence, so that a fault which never pauses does repeat. Lines without
    a time belong to the burst before them: nothing proves that they are another. `lines` is how many lines each time
    stands for: those that were left out before it lie evenly in the gap.
    """
    gap_s, longest_s = catalog.threshold("xid.burst_gap_s"), catalog.threshold("xid.burst_max_s")
    begun: list[float | None] = []
    last: float | None = None
    for time, stands_for in zip(times, lines or [1] * len(times), strict=True):
        if not begun:
            begun.append(time)
        elif time is not None and last is not None:
            start = begun[-1]
            if (time - last) / stands_for > gap_s or (start is not None and time - start > longest_s):
                begun.append(time)
        elif begun[-1] is None:
            begun[-1] = time
        last = time if time is not None else last
    return tuple(begun)


def is_repeated(begun: Iterable[float | None], catalog: Catalog) -> bool:
    """Whether two occurrences of one code on one GPU, or more, began within 24 hours."""
    needed, window_s = int(catalog.threshold("xid.repeat_count")), catalog.threshold("xid.repeat_window_s")
    times = sorted(time for time in begun if time is not None)
    return any(end - start <= window_s for start, end in zip(times, times[needed - 1 :], strict=False))
