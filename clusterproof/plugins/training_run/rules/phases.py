"""How a run and its ranks spend their time: compute, communication, data, checkpoints, start, and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.result import NOT_RECORDED
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.training_run import (
    BUSY,
    CHECKPOINT,
    COMMUNICATION,
    COMPUTE,
    DATA,
    EXPOSED,
    EXPOSED_ALONE,
    INIT,
    KERNELS,
    OTHER,
    kind_of,
)
from clusterproof.plugins.training_run.rules.steps import LOG_STEPS
from clusterproof.plugins.training_run.rules.stragglers import MIN_PEERS, MIN_STEPS, WARM_UP
from clusterproof.plugins.training_run.run_data import RunData, Seconds

NO_PARTS = {
    EXPOSED: f"{NOT_RECORDED} how long collectives run alone; give traces of PyTorch's profiler",
    DATA: f"{NOT_RECORDED} how long steps wait for data; {LOG_STEPS} (a part called data)",
    CHECKPOINT: f"{NOT_RECORDED} how long checkpoints take; {LOG_STEPS} (a part called checkpoint)",
    INIT: f"{NOT_RECORDED} how long the job took to begin; {LOG_STEPS} (a part of the first step called init)",
}
START = "start"
PARTS, MIN_OF_A_PART = 10, 5  # steps
ORDER = (COMPUTE, COMMUNICATION, DATA, CHECKPOINT, START, OTHER)
_PHASE = {EXPOSED: COMMUNICATION, INIT: START, BUSY: COMPUTE} | {name: name for name in ORDER}


@record
class Phase:
    """A phase, its seconds on all ranks together, and its share of their time."""

    name: str
    seconds: float
    share: float


def phases(recorded: RunData) -> list[Phase]:
    """The phases that take any time, in order; none if only step durations are known."""
    total = sum(seconds_in(cells) for cells in recorded.steps.values())
    spent: dict[str, float] = {}
    for (_, kind), seconds in recorded.kinds.items():
        phase = _PHASE.get(kind, OTHER)
        spent[phase] = spent.get(phase, 0.0) + seconds
    if not sum(spent.values()):
        return []
    spent[OTHER] = spent.get(OTHER, 0.0) + max(0.0, total - sum(spent.values()))
    total_s = sum(spent.values())
    return [Phase(name, spent[name], spent[name] / total_s) for name in ORDER if spent.get(name)]


def seconds_in(cells: Seconds | Mapping[int, tuple[float, int]]) -> float:
    """Their total seconds."""
    return sum(mean * count for mean, count in cells.values())


@record
class TimeShare:
    """The part of a rank's time spent on something: seconds, of how many, in how many steps."""

    rank: int
    seconds: float
    of: float
    steps: int
    times: int  # steps in which it took any time; for checkpoints and starts their number
    longest: float = 0.0  # the seconds of the longest of them
    median_share: float = 0.0  # the median share over ten consecutive parts of these steps
    has_warm_up: bool = False  # whether some of these steps are warm-up; a profiler numbers those that it traces

    @property
    def share(self) -> float:
        """The share, from 0 to 1."""
        return self.seconds / self.of if self.of else 0.0


def shares(recorded: RunData, kind: str, *, is_steady: bool) -> list[TimeShare]:
    """For each rank that timed parts of this kind, the largest share first; `is_steady` excludes the warm-up.

    Raises Incomplete if nothing timed any.
    """
    parts: dict[int, list[str]] = {}
    for rank, name in recorded.parts:
        if kind_of(name) == kind:
            parts.setdefault(rank, []).append(name)
    time_shares = []
    for rank, names in parts.items():
        lasted = recorded.steps[rank]
        chosen = steady_lines(lasted) if is_steady else list(lasted)
        of_line = {step: sum(_seconds(recorded.parts[rank, name], step) for name in names) for step in chosen}
        total = sum(_seconds_of(kind, lasted, step, of_line[step]) for step in chosen)
        times, longest = sum(seconds > 0 for seconds in of_line.values()), max(of_line.values(), default=0.0)
        if kind == CHECKPOINT:
            times = max(times, recorded.saves.get(rank, 0))
        elif kind == INIT:
            times, longest = recorded.starts.get(rank, (times, longest))
        steps = sum(lasted[step][1] for step in chosen)
        middle = median(
            sum(of_line[step] for step in part)
            / (sum(_seconds_of(kind, lasted, step, of_line[step]) for step in part) or 1)
            for part in _one_behind_the_other(chosen)
        )
        is_traced = any((rank, name) in recorded.parts for name in (EXPOSED_ALONE, KERNELS))
        has_warm_up = bool(chosen) and chosen[0] < WARM_UP and not is_traced
        time_shares.append(TimeShare(rank, sum(of_line.values()), total, steps, times, longest, middle, has_warm_up))
    if not time_shares:
        raise Incomplete(NO_PARTS[kind], cause=NO_PARTS[kind])
    return sorted(time_shares, key=lambda share: -share.share)


def _one_behind_the_other(steps: Sequence[int]) -> list[Sequence[int]]:
    """Ten parts of at least five steps, or fewer parts."""
    count = max(1, min(PARTS, len(steps) // MIN_OF_A_PART))
    return [steps[len(steps) * at // count : len(steps) * (at + 1) // count] for at in range(count)]


def waited_for(shares: Sequence[TimeShare], far_less: float) -> TimeShare | None:
    """The rank that the others wait for in collectives: it waits for far less of its own time than they do.

    `found` has the largest share first. None for fewer than three ranks, or if all wait equally.
    """
    if len(shares) < MIN_PEERS:
        return None
    *others, least = shares
    return least if least.share < far_less * median(rank.share for rank in others) else None


def all_wait(shares: Sequence[TimeShare], least_ratio: float) -> bool:
    """Whether the median of at least three ranks waits for nearly the largest share."""
    return len(shares) >= MIN_PEERS and median(rank.share for rank in shares[1:]) > least_ratio * shares[0].share


def kernels_run(recorded: RunData) -> list[TimeShare]:
    """For each rank with traced kernels the part of its steps in which any runs, the smallest share first."""
    time_shares = []
    for (rank, name), exposed in recorded.parts.items():
        computing = recorded.compute.get((rank, COMPUTE)) or recorded.parts.get((rank, KERNELS))
        if name != EXPOSED_ALONE or not computing:
            continue
        lasted = recorded.steps[rank]
        busy = {step: _seconds(computing, step) + _seconds(exposed, step) for step in lasted}
        total_s = sum(max(_seconds(lasted, step), busy[step]) for step in lasted)
        time_shares.append(
            TimeShare(rank, sum(busy.values()), total_s, len(lasted), sum(seconds > 0 for seconds in busy.values()))
        )
    return sorted(time_shares, key=lambda share: share.share)


def steady_lines(cells: Seconds) -> list[int]:
    """The lines without warm-up steps, in order, if enough steps are left."""
    ordered = sorted(cells)
    begin = ordered[0] - cells[ordered[0]][1] if ordered else 0
    behind = [step for step in ordered if step - cells[step][1] >= begin + WARM_UP]
    return behind if sum(cells[step][1] for step in behind) >= MIN_STEPS else ordered[-MIN_STEPS:]


def _seconds_of(kind: str, lasted: Seconds, step: int, part: float) -> float:
    """The seconds of a line with this part, which is separate from the steps if it takes longer than they do: then the
    job's start precedes its first step.
    """
    step_s = _seconds(lasted, step)
    return step_s + max(0.0, part - lasted[step][0]) if kind == INIT else max(step_s, part)


def _seconds(cells: Seconds, step: int) -> float:
    mean, count = cells.get(step, (0.0, 0))
    return mean * count
