"""Of all operations those that are a rank's own compute, and how long they take in each step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from clusterproof.plugins.training_run.part_kinds import COMPUTE, kind_of
from clusterproof.plugins.training_run.records import Place
from clusterproof.plugins.training_run.run_data import RunData

Computed = Mapping[int, float]


def computed(data: RunData) -> dict[Place, Computed]:
    """By rank the seconds of its compute by step: one of each operation, however often a step repeats it.

    The mean of forward and of backward is that of a micro-batch: rows that are missing or there twice change nothing. A
    step in which a rank lacks an operation that its stage has is left out for that rank.
    """
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank, name in data.compute:
        ranks_of[name].append(rank)
    named = {name for name in ranks_of if kind_of(name) == COMPUTE} or set(ranks_of)
    names = _names_of_stages(data, {name: ranks_of[name] for name in named})
    found: dict[Place, Computed] = {}
    for rank, place in data.places.items():
        cells = [data.compute.get((rank, name), {}) for name in names.get(place.stage, ())]
        common = set.intersection(*(set(cell) for cell in cells)) if cells else set()
        if common:
            found[place] = {step: sum(cell[step][0] for cell in cells) for step in common}
    return found


def _names_of_stages(data: RunData, ranks_of: Mapping[str, list[int]]) -> dict[int, list[str]]:
    """The operations that most of the ranks of a stage have, which have any."""
    stages: dict[int, Counter[str]] = defaultdict(Counter)
    members: dict[int, set[int]] = defaultdict(set)
    for name, ranks in ranks_of.items():
        for rank in ranks:
            stage = data.places[rank].stage
            stages[stage][name] += 1
            members[stage].add(rank)
    return {
        stage: sorted(name for name, count in counts.items() if 2 * count > len(members[stage]))
        for stage, counts in stages.items()
    }


def sizes_of_stages(found: Iterable[Place]) -> dict[int, int]:
    """How many ranks each stage has."""
    sizes: dict[int, int] = {}
    for place in found:
        sizes[place.stage] = sizes.get(place.stage, 0) + 1
    return sizes
