"""How often `run.held_up` names a rank whose program pauses, and how often a rank when all pause alike.

Simulates runs of 4 and 8 ranks over 150 steps; each rank pauses in some steps, for an exponentially distributed time.
The table shows the check with several bounds: how many times its share a rank must cost, and by how many standard
errors it must cost most in more of ten parts than by chance. The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

from clusterproof.plugins.catalog import PACKAGED
from clusterproof.plugins.training_run import Position
from clusterproof.plugins.training_run.rules.straggler_cost import StragglerCost, straggler_costs
from scripts.arguments import share_asked

RANKS, STEPS, RUNS = (4, 8), 155, 300  # runs of each kind
OFTEN = (0.02, 0.1, 0.3)  # share of the steps in which each rank pauses
MORE = 0.4  # the same for the rank that should be named
NOISE, PAUSE_S, OTHER_S = 0.02, 0.6, 0.5  # for 1 s of compute in a step; OTHER_S: the rest of the step
TIMES, ERRORS = (1.0, 1.5, 2.0, 2.5), (0.0, 2.0, 3.0)


def costs(random: Random, ranks: int, often: float, pauses: float) -> StragglerCost:
    """The costliest rank in a run whose rank 0 pauses in the share `pauses` of its steps, others in `often`."""
    computed = {
        Position(rank): {
            step: random.gauss(1, NOISE) + (random.expovariate(1 / PAUSE_S) if random.random() < share else 0.0)
            for step in range(STEPS)
        }
        for rank in range(ranks)
        for share in (pauses if rank == 0 else often,)
    }
    lasted = {step: OTHER_S + max(seconds[step] for seconds in computed.values()) for step in range(STEPS)}
    return straggler_costs(computed, lasted)[0]


def is_named(cost: StragglerCost, times: float, errors: float) -> bool:
    """Whether the rank is named with these bounds."""
    is_large = cost.percent > PACKAGED.threshold("run.held_up_percent")
    return is_large and cost.seconds >= times * cost.second and cost.is_certain(errors)


def simulate(share: float) -> Counter[tuple[str, float, float]]:
    """How many runs name a rank, by kind and bounds."""
    random, counts = Random(11), Counter[tuple[str, float, float]]()
    for ranks in RANKS:
        for often in OFTEN:
            for _ in range(max(1, round(share * RUNS))):
                for kind, share_of_one in (("alike", often), ("one", MORE)):
                    cost = costs(random, ranks, often, share_of_one)
                    counts[kind, 0.0, 0.0] += 1
                    right = kind == "alike" or cost.position.rank == 0
                    counts.update(
                        (kind, times, errors)
                        for times in TIMES
                        for errors in ERRORS
                        if right and is_named(cost, times, errors)
                    )
    return counts


def table(counts: Counter[tuple[str, float, float]]) -> Iterator[str]:
    """The table, in Markdown."""
    yield "| times the next | standard errors | named where all pause alike | named where one pauses in 40 % |"
    yield "|---|---|---|---|"
    for times in TIMES:
        for errors in ERRORS:
            alike, single = (counts[kind, times, errors] / counts[kind, 0.0, 0.0] for kind in ("alike", "one"))
            yield f"| {times:g} | {errors:g} | {alike:.1%} | {single:.1%} |"


def main(arguments: Sequence[str]) -> None:
    """Print the table, and the figures for the catalogue's bounds as one JSON object."""
    counts = simulate(share_asked("scripts/simulate pauses", __doc__, arguments))
    print(*table(counts), sep="\n")
    times, errors = PACKAGED.threshold("run.held_up_times"), PACKAGED.threshold("run.held_up_errors")
    innocent, right = counts["alike", times, errors], counts["one", times, errors]
    print(json.dumps({"runs": counts["alike", 0.0, 0.0], "innocent_named": innocent, "named": right}))


if __name__ == "__main__":
    main(sys.argv[1:])
