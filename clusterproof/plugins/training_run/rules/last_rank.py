"""Which rank is last in collectives: all ranks end one together, so the last to begin has the shortest kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import NOT_RECORDED
from clusterproof.plugins.core.verdict import Incomplete, incomplete, part
from clusterproof.plugins.training_run.collectives import MIN_STEPS, TOGETHER, Arrivals
from clusterproof.plugins.training_run.run_data import RunData

LATE = 0.1  # by which the last one's duration must be shorter than the second shortest
MAX_NAMED = 5  # communicators
MIN_CALLS = 100  # of NCCL's Inspector
MIN_TRACED = 20  # of traces, which have at least five steps
NO_LATENESS = "no collective says who comes last"
NO_CALLS = (
    f"{NOT_RECORDED} how long collectives of three ranks or more take; give traces of PyTorch's profiler of all ranks, "
    "or run with NCCL's Inspector (NCCL_PROFILER_PLUGIN, NCCL_INSPECTOR_ENABLE=1)"
)


@record
class LastRank:
    """The rank that is most often last in a communicator's collectives: how often, and how long others wait."""

    communicator: str
    ranks: int
    rank: int
    host: str
    calls: int
    times: int
    seconds: float

    @property
    def percent(self) -> float:
        """The share of its collectives at which it arrives last."""
        return 100 * self.times / self.calls

    def is_certain(self, errors: float) -> bool:
        """Whether that is so many standard errors more than if each rank were last equally often."""
        chance = 1 / self.ranks
        return self.times - self.calls * chance > errors * sqrt(self.calls * chance * (1 - chance))


def last_of_each(arrivals: Arrivals, least: int) -> Iterator[LastRank]:
    """For each communicator with enough collectives, the rank that is last most often; none if no rank is ever late."""
    for communicator, every in sorted(arrivals.complete().items()):
        if len(every) < least:
            continue
        late: dict[int, list[float]] = {}
        for collective in every:
            if collective.first < (1 - LATE) * collective.second:
                late.setdefault(collective.rank, []).append(collective.second - collective.first)
        if late:
            rank = max(late, key=lambda rank: len(late[rank]))
            host = arrivals.hosts[communicator][rank]
            waits = late[rank]
            yield LastRank(communicator, every[0].ranks, rank, host, len(every), len(waits), sum(waits))


def usually_last(recorded: Sequence[tuple[Arrivals, int]], errors: float) -> LastRank | None:
    """Who comes last to the largest share of a communicator's collectives, of records of which each needs so many.

    Significant ones, by so many standard errors, come first. None if no rank is late. Raises Incomplete.
    """
    seen = [(arrivals, least) for arrivals, least in recorded if arrivals.seen]
    if not seen:
        short = [last for arrivals, _ in recorded if arrivals.unfit for last in last_of_each(arrivals.unfit, 1)]
        if short:
            raise Incomplete(_of_few(max(short, key=lambda last: (last.times, last.calls))), cause=NO_LATENESS)
        others = [f"{n:,} of {kind}" for arrivals, _ in recorded for kind, n in sorted(arrivals.others.items())]
        message = f"{NO_LATENESS}: {', '.join(others)}; expected {TOGETHER} of three ranks or more, timed by the GPU"
        raise Incomplete(message if others else NO_CALLS, cause=NO_LATENESS if others else NO_CALLS)
    counts = [(max(map(len, arrivals.complete().values()), default=0), least) for arrivals, least in seen]
    if all(calls < least for calls, least in counts):
        calls, least = max(counts)
        few = f"{calls} collectives that every rank recorded; expected at least {least}: give more, of all ranks"
        raise Incomplete(few, cause=few)
    last_ranks = [last for arrivals, least in seen for last in last_of_each(arrivals, least)]
    return max(last_ranks, key=lambda last: (last.is_certain(errors), last.percent, last.calls), default=None)


def recorded_by(recorded: RunData) -> Sequence[tuple[Arrivals, int]]:
    """What records arrivals, and how many collectives of each are needed."""
    return (recorded.arrivals, MIN_CALLS), (recorded.traced, MIN_TRACED)


def require_every_rank(recorded: Sequence[tuple[Arrivals, int]]) -> None:
    """Report a check as incomplete if a communicator lacks ranks, which may be the last ones, and continue."""
    lacking = [
        f"{communicator}, of {seen} of its {number_of(ranks, 'rank')}"
        for arrivals, least in recorded
        for communicator, (seen, ranks) in sorted(arrivals.lacking_ranks(least).items())
    ]
    with part:
        if lacking:
            more = f" and {len(lacking) - MAX_NAMED} more" if len(lacking) > MAX_NAMED else ""
            seen = f"{'; '.join(lacking[:MAX_NAMED])}{more}"
            incomplete(f"communicators were not recorded whole: {seen}; expected the collectives of every rank")


def _of_few(last: LastRank) -> str:
    """What was seen in a trace of few steps, which names no rank as slow."""
    seen = f"rank {last.rank} comes last to {last.times} of {last.calls} collectives of {last.ranks} ranks"
    few = f"in fewer than {MIN_STEPS} steps of a trace: too few to tell"
    return f"{seen} {few}; expected at least {MIN_TRACED}: trace more steps, on all ranks"
