"""What an acceptance skips, and what it does not prove."""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.accept.plan import SPEED
from clusterproof.plugins.accept.state import COLLECTIVES, AcceptanceState
from clusterproof.plugins.catalog import acceptance


def left_out(state: AcceptanceState) -> Iterator[str]:
    """The stages that this acceptance will not run, and why."""
    for name, row in acceptance.stages().items():
        if name not in {stage.name for stage in state.plan.stages}:
            yield f"{row.title}: the plan leaves it out"
        elif why := state.not_here(row):
            yield f"{row.title}: {why}"


def not_covered(state: AcceptanceState) -> Iterator[str]:
    """What this acceptance does not prove, in words."""
    yield from left_out(state)
    largest = state.plan.largest_group(len(state.nodes))
    if COLLECTIVES in {stage.name for stage in state.plan.stages} and 0 < largest < len(state.nodes):
        yield f"{acceptance.stages()[COLLECTIVES].title}: on {largest} nodes at most, as the plan loads no more at once"
    measured = {name for _, name, _ in state.populations.by_key}
    if SPEED in {stage.name for stage in state.plan.stages}:
        yield from (
            f"{row.title}: measured on no node" for name, row in acceptance.measures().items() if name not in measured
        )
    yield from acceptance.not_covered()
