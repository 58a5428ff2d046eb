"""How long each rank computes, compared with the other ranks of its pipeline stage.

Durations are compared within a step and a stage only: clocks, units and step lengths do not matter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import median

from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.robust import MAX_VALUES, location, location_error, spread
from clusterproof.plugins.training_run import COMPUTE, Position, kind_of
from clusterproof.plugins.training_run.run_data import RunData

Computed = Mapping[int, float]  # seconds, by step
MIN_STEPS = 20  # with 3 steps of uneven sequence lengths a healthy rank seemed 1.19 times slower
WARM_UP = 5  # steps, if twenty others are left
MIN_PEERS = 3  # ranks of a stage, so that one can be the odd one
SLOW_STEPS = 0.1  # quantile over steps: slow in nine of ten
PARTS = 5  # of a run with uneven steps
MIN_EXPLAINED = 0.25  # of a rank's excess by its replica's work: uneven sequences cost stages differently
_LARGER = 1.5  # threshold relative to twenty steps of the same noise
_OF_A_MEDIAN = 1.2533 / 1.05  # the standard error of a median on normal noise, relative to that of `location`


@record
class RankPace:
    """How long a rank computes, relative to the median of its peers in the same step.

    `ratio` is the median over all steps and `error` the standard error of its logarithm; `low` is its tenth percentile
    over steps, and `low_of_parts` the lowest median of five parts of the run; `swing` is how far its ninetieth
    percentile is above its median, `median_swing` the same for most ranks of the stage; `mates` the ratio of the ranks
    of other stages with the same replica.
    """

    position: Position
    steps: int
    peers: int
    ratio: float
    error: float
    low: float
    low_of_parts: float
    swing: float
    median_swing: float
    mates: float | None = None

    def slower(self, uneven: float) -> float:
        """The figure that is evaluated: if work varies between steps, the one that holds in each part."""
        return self.low_of_parts if self.median_swing >= uneven else self.ratio

    def at_least(self, uneven: float) -> tuple[float, str]:
        """How much slower it is nearly always, with a description: if work varies, single steps show nothing."""
        swings = self.median_swing >= uneven
        return (self.low_of_parts, f"each of {PARTS} parts") if swings else (self.low, "nine of ten steps")

    def is_certain(self, errors: float, work: float = 1.0) -> bool:
        """Whether it takes significantly more than `work` times the peers' time, by so many standard errors."""
        return log(self.ratio / work) > errors * self.error

    def is_far_below(self, times: float, errors: float) -> bool:
        """Whether the peers take significantly more than so many times as long as it."""
        return self.ratio * times < 1 and -log(self.ratio) > errors * self.error

    def excludes(self, slower: float, errors: float) -> bool:
        """Whether it is significantly below so many times the peers' time."""
        return log(self.ratio) + errors * self.error < log(slower)

    def work(self, concern: float) -> float:
        """How many times as much work its replica has, by its other stages: they share the work, but no GPU."""
        return self.mates if self.mates is not None and self.mates >= concern else 1.0

    def is_work(self, concern: float) -> bool:
        """Whether its replica has more work, which explains enough of its own time above the peers'."""
        work = self.work(concern)
        return work > 1 and log(work) >= MIN_EXPLAINED * log(self.ratio)

    def steps_for(self, errors: float, threshold: float = 1.0) -> int:
        """How many steps would decide on which side of `threshold` times as long it is."""
        away = log(self.ratio / threshold)
        return max(self.steps + 1, round(self.steps * (errors * self.error / away) ** 2 * 1.5))


def steady(steps: Iterable[int]) -> list[int]:
    """Steps after the warm-up, in order, if enough are left."""
    ordered = sorted(steps)
    behind = [step for step in ordered if step >= ordered[0] + WARM_UP]
    return behind if len(behind) >= MIN_STEPS else ordered[-MIN_STEPS:]


def later_half(computed: Mapping[Position, Computed]) -> dict[Position, Computed]:
    """The later half of their steady steps, in which a rank that became slow is slow."""
    steps = {step for seconds in computed.values() for step in seconds}
    behind = steady(steps)[len(steady(steps)) // 2 :] if steps else []
    kept = set(behind)
    return {
        position: {step: lasted for step, lasted in seconds.items() if step in kept}
        for position, seconds in computed.items()
    }


def paces(computed: Mapping[Position, Computed]) -> tuple[RankPace, ...]:
    """Each rank relative to the others of its stage; none for a rank that is alone there, or has no steady steps."""
    stages: dict[int, dict[Position, Computed]] = {}
    for position, seconds in computed.items():
        stages.setdefault(position.stage, {})[position] = seconds
    rank_paces = [pace for stage in stages.values() for pace in _of_stage(stage)]
    return tuple(replace(pace, mates=mates) for pace, mates in zip(rank_paces, _mates(rank_paces), strict=True))


def _of_stage(stage: Mapping[Position, Computed]) -> list[RankPace]:
    effects: dict[Position, list[float]] = {position: [] for position in stage}
    steps = [step for seconds in stage.values() for step in seconds]
    for step in steady(set(steps)) if steps else ():
        present = [position for position, seconds in stage.items() if seconds.get(step, 0.0) > 0.0]
        if len(present) < min(MIN_PEERS, len(stage)) or len(present) < 2:
            continue
        seconds = [stage[position][step] for position in present]
        for position, own, others in zip(present, seconds, medians_of_others(seconds), strict=True):
            effects[position].append(log(own / others))
    compared = {position: values for position, values in effects.items() if values}
    if not compared:
        return []
    _leave_out_a_fast_one(compared)
    noise = median(spread(values) for values in compared.values())
    swings = {position: exp(quantile(values, 1 - SLOW_STEPS) - median(values)) for position, values in compared.items()}
    middle = median(swings.values())
    return [
        RankPace(
            position=position,
            steps=len(values),
            peers=len(stage) - 1,
            ratio=exp(location(values)),
            error=_error(len(values), noise, spread(values)),
            low=exp(quantile(values, SLOW_STEPS)),
            low_of_parts=exp(min(_middles_of_parts(values))),
            swing=swings[position],
            median_swing=middle,
        )
        for position, values in compared.items()
    ]


def _leave_out_a_fast_one(effects: Mapping[Position, list[float]]) -> None:
    """Among few ranks a fast one makes the others look slow: then each is compared only with the rest."""
    positions = list(effects)
    if len(positions) < 2:
        return
    of_others = medians_of_others([median(effects[other]) for other in positions])
    for position, typical in zip(positions, of_others, strict=True):
        if typical > 0:
            effects[position][:] = [effect - typical for effect in effects[position]]


def _middles_of_parts(values: Sequence[float]) -> list[float]:
    """The median of each part, in order: work that is uneven by chance is above the others' in about half of them."""
    count, parts = len(values), min(PARTS, len(values))
    return [median(values[count * at // parts : count * (at + 1) // parts]) for at in range(parts)]


def _error(count: int, typical: float, own: float) -> float:
    """From the noise of most ranks, which is known better than one rank's own; from its own if clearly larger."""
    sigma = own if own > _LARGER * typical else typical
    return location_error(count, sigma) * (1.0 if count <= MAX_VALUES else _OF_A_MEDIAN)


def _mates(rank_paces: Sequence[RankPace]) -> list[float | None]:
    """For each the ratio of its replica in the median of all other stages."""
    replicas: dict[int, list[RankPace]] = {}
    for pace in rank_paces:
        if pace.position.replica is not None:
            replicas.setdefault(pace.position.replica, []).append(pace)
    mates: list[float | None] = []
    for pace in rank_paces:
        others = replicas.get(pace.position.replica, ()) if pace.position.replica is not None else ()
        ratios = [other.ratio for other in others if other.position.stage != pace.position.stage]
        mates.append(median(ratios) if ratios else None)
    return mates


def seconds_of_stages(computed: Mapping[Position, Computed]) -> dict[int, float]:
    """How long each stage computes: the median over ranks of their medians over steady steps."""
    stages: dict[int, list[float]] = {}
    for position, seconds in computed.items():
        if seconds:
            stages.setdefault(position.stage, []).append(median(seconds[step] for step in steady(seconds)))
    return {stage: median(values) for stage, values in sorted(stages.items())}


def medians_of_others(values: Sequence[float]) -> list[float]:
    """For each of at least two values the median of all others."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ordered = [values[index] for index in order]
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2
    medians = [0.0] * len(values)
    for rank, index in enumerate(order):
        medians[index] = (ordered[low + (low >= rank)] + ordered[high + (high >= rank)]) / 2
    return medians


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile, interpolated linearly."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def computed(recorded: RunData) -> dict[Position, Computed]:
    """By rank, the seconds of its compute in each step: one of each operation, however often a step repeats it.

    Forward and backward are means per micro-batch: missing or duplicate rows change nothing. A step in which a rank
    lacks an operation of its stage is left out for that rank.
    """
    names = _names_of_stages(recorded)
    computed_by_position: dict[Position, Computed] = {}
    for rank, position in recorded.positions.items():
        cells = [recorded.compute.get((rank, name), {}) for name in names.get(position.stage, ())]
        common = set.intersection(*(set(cell) for cell in cells)) if cells else set()
        if common:
            computed_by_position[position] = {step: sum(cell[step][0] for cell in cells) for step in common}
    return computed_by_position


def lacking(recorded: RunData, computed: Mapping[Position, Computed]) -> dict[int, str]:
    """The ranks of which no step has all operations of their stage: `rank 5 logs no step with backward, forward`."""
    names = _names_of_stages(recorded)
    return {
        rank: f"rank {rank} logs no step with {', '.join(of_stage)}"
        for rank, position in sorted(recorded.positions.items())
        if position not in computed
        and (of_stage := names.get(position.stage, []))
        and any((rank, name) in recorded.compute for name in of_stage)
    }


def _names_of_stages(recorded: RunData) -> dict[int, list[str]]:
    """The operations that most of the ranks of a stage have, if they have any."""
    every: dict[str, list[int]] = defaultdict(list)
    for rank, name in recorded.compute:
        every[name].append(rank)
    named = {name for name in every if kind_of(name) == COMPUTE} or set(every)
    ranks_of = {name: every[name] for name in named}
    stages: dict[int, Counter[str]] = defaultdict(Counter)
    members: dict[int, set[int]] = defaultdict(set)
    for name, ranks in ranks_of.items():
        for rank in ranks:
            stage = recorded.positions[rank].stage
            stages[stage][name] += 1
            members[stage].add(rank)
    return {
        stage: sorted(name for name, count in counts.items() if 2 * count > len(members[stage]))
        for stage, counts in stages.items()
    }


def sizes_of_stages(positions: Iterable[Position]) -> dict[int, int]:
    """How many ranks each stage has."""
    sizes: dict[int, int] = {}
    for position in positions:
        sizes[position.stage] = sizes.get(position.stage, 0) + 1
    return sizes
