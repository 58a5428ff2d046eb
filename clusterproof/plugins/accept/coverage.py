"""What an acceptance leaves out, and what it does not prove."""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.accept.state import NO_PLACES, SPEED, AcceptanceState
from clusterproof.plugins.benchmarks.pairwise.groups import FEWEST_NODES, FIRST_SIZE
from clusterproof.plugins.catalog import acceptance

COLLECTIVES = "collectives"


def left_out(state: AcceptanceState) -> Iterator[str]:
    """The stages that no run of this acceptance is to have, and why."""
    for name, row in acceptance.stages().items():
        if name not in {stage.name for stage in state.plan.stages}:
            yield f"{row.title}: the plan leaves it out"
        elif row.scope == "places" and not any(map(state.is_in_a_place, state.nodes)):
            yield f"{row.title}: {NO_PLACES}"
        elif name == COLLECTIVES and not _largest_group(state):
            yield f"{row.title}: there are not {FEWEST_NODES} nodes, or not {FIRST_SIZE} may be loaded at once"


def _largest_group(state: AcceptanceState) -> int:
    """How many nodes collectives are measured on at most; 0 where there is no group."""
    count, at_once = len(state.nodes), 2 * state.plan.pairs_limit
    if not at_once or count <= at_once:
        return count if count >= FEWEST_NODES else 0
    return 1 << at_once.bit_length() - 1 if at_once >= FIRST_SIZE else 0


def not_covered(state: AcceptanceState) -> Iterator[str]:
    """What this acceptance does not prove, in words."""
    yield from left_out(state)
    largest = _largest_group(state)
    if COLLECTIVES in {stage.name for stage in state.plan.stages} and 0 < largest < len(state.nodes):
        yield f"{acceptance.stages()[COLLECTIVES].title}: on {largest} nodes at most, as the plan loads no more at once"
    measured = {name for _, name, _ in state.populations.by_key}
    if SPEED in {stage.name for stage in state.plan.stages}:
        yield from (
            f"{row.title}: measured on no node" for name, row in acceptance.measures().items() if name not in measured
        )
    yield from acceptance.not_covered()
