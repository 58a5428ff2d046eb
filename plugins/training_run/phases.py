"""Where the time of a run goes: compute, communication, data, checkpoints, the start, and the rest."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.part_kinds import (
    BUSY,
    CHECKPOINT,
    COMMUNICATION,
    COMPUTE,
    DATA,
    EXPOSED,
    INIT,
    OTHER,
)
from clusterproof.plugins.training_run.run_data import RunData, Seconds

START = "start"
ORDER = (COMPUTE, COMMUNICATION, DATA, CHECKPOINT, START, OTHER)
_PHASE = {EXPOSED: COMMUNICATION, INIT: START, BUSY: COMPUTE} | {name: name for name in ORDER}


@record
class Phase:
    """A phase, its seconds in all ranks together, and its share of their time."""

    name: str
    seconds: float
    share: float


def phases(data: RunData) -> list[Phase]:
    """Those that take any time, in their order; none where nothing but the length of steps is known."""
    total = sum(seconds_in(cells) for cells in data.steps.values())
    spent: dict[str, float] = {}
    for (_, kind), seconds in data.kinds.items():
        phase = _PHASE.get(kind, OTHER)
        spent[phase] = spent.get(phase, 0.0) + seconds
    if not sum(spent.values()):
        return []
    spent[OTHER] = spent.get(OTHER, 0.0) + max(0.0, total - sum(spent.values()))
    whole = sum(spent.values())
    return [Phase(name, spent[name], spent[name] / whole) for name in ORDER if spent.get(name)]


def seconds_in(cells: Seconds | Mapping[int, tuple[float, int]]) -> float:
    """The sum of all their seconds."""
    return sum(mean * count for mean, count in cells.values())
