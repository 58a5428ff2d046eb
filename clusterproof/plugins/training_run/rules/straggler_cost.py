"""Time that all ranks lose because one of them computes longer than any other: pauses, or slowness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import median

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import Position
from clusterproof.plugins.training_run.rules.stragglers import MIN_PEERS, PARTS, Computed, steady

MIN_STEPS = 50  # ten for each part
SEGMENTS = 2 * PARTS  # of a run, in most of which the same rank costs most


@record
class StragglerCost:
    """What one rank costs the others of its stage: seconds by which it computes longer than the second slowest.

    `segments` counts in how many of ten parts of the run no other rank costs more.
    """

    position: Position
    seconds: float
    of: float  # the total seconds of these steps
    longest: float
    longest_step: int
    times: int  # steps in which it computes longest
    steps: int
    segments: int
    ranks: int
    second: float  # the cost of the next rank

    @property
    def percent(self) -> float:
        """Its share of the time of the run, from 0 to 100."""
        return 100 * self.seconds / self.of if self.of else 0.0

    def is_certain(self, errors: float) -> bool:
        """Whether it costs most in half of the parts, and in significantly more than by chance."""
        chance = 1 / self.ranks
        expected, error = SEGMENTS * chance, sqrt(SEGMENTS * chance * (1 - chance))
        return 2 * self.segments >= SEGMENTS and self.segments >= expected + errors * error


def straggler_costs(computed: Mapping[Position, Computed], lasted: Mapping[int, float]) -> list[StragglerCost]:
    """For each stage the rank that costs most, the costliest first; none for stages with few ranks or steps."""
    stages: dict[int, dict[Position, Computed]] = {}
    for position, seconds in computed.items():
        stages.setdefault(position.stage, {})[position] = seconds
    costs = (_of_stage(stage, lasted) for stage in stages.values() if len(stage) >= MIN_PEERS)
    return sorted((cost for cost in costs if cost), key=lambda cost: -cost.percent)


MIN_HELD = 10  # steps held up by one rank
MIN_CAUSE = 0.5  # of a step's excess, from which on a rank's compute is its cause


@record
class HeldUp:
    """A rank that computes longer than any other in so many of some steps, and the largest excess."""

    position: Position
    times: int
    longest: float
    longest_step: int


def holds_up(computed: Mapping[Position, Computed], longer: Mapping[int, float], errors: float) -> HeldUp | None:
    """The rank that computes longest in half of the steps that are so many seconds too long, significantly often.

    Its usual excess in other steps does not explain these.

    None if there is none, or for several stages: ranks of one replica share its work.
    """
    if len({position.stage for position in computed}) != 1:
        return None
    held: dict[Position, dict[int, float]] = {}
    for step, seconds in longer.items():
        cost = _cost(computed, step)
        if cost and cost[1] > MIN_CAUSE * seconds:
            held.setdefault(cost[0], {})[step] = cost[1]
    position = max(held, key=lambda known: len(held[known]), default=None)
    if position is None:
        return None
    typical, chance = _typical_cost(computed, position, longer), 1 / len(computed)
    own = {step: cost for step, cost in held[position].items() if cost - typical > MIN_CAUSE * longer[step]}
    by_chance = len(longer) * chance + errors * sqrt(len(longer) * chance * (1 - chance))
    if len(own) < max(MIN_HELD, len(longer) / 2, by_chance):
        return None
    longest = max(own, key=own.__getitem__)
    return HeldUp(position, len(own), own[longest], longest)


def _typical_cost(computed: Mapping[Position, Computed], position: Position, longer: Mapping[int, float]) -> float:
    """By how much a rank computes longer than all others in most of the other steps."""
    ordinary = (cost for step in computed[position] if step not in longer and (cost := _cost(computed, step)))
    return median([cost if of == position else 0.0 for of, cost in ordinary] or [0.0])


def common_steps(computed: Mapping[Position, Computed], lasted: Mapping[int, float]) -> list[int]:
    """Steady steps with a known duration and the compute of some rank."""
    steps = {step for seconds in computed.values() for step in seconds if step in lasted}
    return steady(steps) if steps else []


def _of_stage(stage: Mapping[Position, Computed], lasted: Mapping[int, float]) -> StragglerCost | None:
    costs = {step: cost for step in common_steps(stage, lasted) if (cost := _cost(stage, step))}
    steps = list(costs)
    if len(steps) < MIN_STEPS:
        return None
    worst = _costs_most(list(costs.values()))
    own = {step: seconds for step, (position, seconds) in costs.items() if position == worst}
    longest = max(own, key=own.__getitem__)
    return StragglerCost(
        position=worst,
        seconds=sum(own.values()),
        of=sum(lasted[step] for step in steps),
        longest=own[longest],
        longest_step=longest,
        times=len(own),
        steps=len(steps),
        ranks=len(stage),
        second=max((_total(costs.values(), position) for position in stage if position != worst), default=0.0),
        segments=sum(_costs_most([costs[step] for step in part]) == worst for part in _segments(steps)),
    )


def _cost(stage: Mapping[Position, Computed], step: int) -> tuple[Position, float] | None:
    """The rank that computes longest in a step, and how much longer than the second; None if few ranks recorded it."""
    present = sorted(
        ((seconds[step], position) for position, seconds in stage.items() if step in seconds), key=_longest
    )
    if len(present) < MIN_PEERS:
        return None
    (most, position), (second, _) = present[:2]
    return position, most - second


def _longest(cost: tuple[float, Position]) -> tuple[float, int]:
    return -cost[0], cost[1].rank


def _segments(steps: Sequence[int]) -> list[Sequence[int]]:
    return [steps[len(steps) * at // SEGMENTS : len(steps) * (at + 1) // SEGMENTS] for at in range(SEGMENTS)]


def _total(costs: Iterable[tuple[Position, float]], of: Position) -> float:
    return sum(seconds for position, seconds in costs if position == of)


def _costs_most(costs: Sequence[tuple[Position, float]]) -> Position:
    total: dict[Position, float] = {}
    for position, seconds in costs:
        total[position] = total.get(position, 0.0) + seconds
    return max(total, key=total.__getitem__)
