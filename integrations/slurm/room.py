"""Room for another drain: the health check leaves it on the node for prologs and epilogs, which may not ask Slurm."""

from __future__ import annotations

import time

from clusterproof.integrations.slurm.state import State
from clusterproof.plugins.core.record import record

RECORD = "room"
VALID_S = 3600.0  # for so long it is valid; a health check is due far more often
NOBODY_SAYS = "no health check has said on this node how many nodes are drained"


@record
class Room:
    """What a health check found: which partition is full, in words, and how many nodes it has. `at` is since 1970."""

    at: float
    full: str
    nodes: int


def room_of(state: State) -> Room | None:
    """What was left; None where nothing was that can be read."""
    data = state.read(RECORD)
    at, full, nodes = (data.get(key) for key in ("at", "full", "nodes"))
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not isinstance(full, str) or type(nodes) is not int:
        return None
    return Room(float(at), full, nodes)


def why_no_drain(state: State) -> str:
    """Why a prolog drains nothing more, in words; empty where the last health check found room.

    Where it is not known how many are drained, there is none: nothing would then stop a mistake from draining all.
    """
    room = room_of(state)
    if room is None:
        return NOBODY_SAYS
    age_s = time.time() - room.at
    if not 0 <= age_s <= VALID_S:
        return f"{NOBODY_SAYS} within {VALID_S / 60:.0f} minutes"
    return f"{room.full} (by the health check of {age_s:.0f} s ago)" if room.full else ""
