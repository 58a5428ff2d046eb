"""Room for another drain: the health check leaves it on the node for prologs and epilogs, which may not ask Slurm."""

from __future__ import annotations

import time

from clusterproof.integrations.slurm.moment import age_of
from clusterproof.integrations.slurm.state import State
from clusterproof.plugins.core.record import record

RECORD = "room"
VALID_S = 3600.0  # for so long it is valid; a health check is due far more often
NOBODY_SAYS = "no health check has said on this node how many nodes are drained"


@record
class Room:
    """What a health check found so long ago: which partition is full, in words, and how many nodes it has.

    The age is None where it was before this boot.
    """

    age_s: float | None
    full: str
    nodes: int


def room_of(state: State) -> Room | None:
    """What was left; None where nothing was that can be read."""
    data = state.read(RECORD)
    full, nodes = data.get("full"), data.get("nodes")
    if not isinstance(full, str) or type(nodes) is not int:
        return None
    if "boot_id" not in data:
        return Room(_age_by_clock(data.get("at")), full, nodes)
    return Room(age_of(data["boot_id"], data.get("at")), full, nodes)


def _age_by_clock(at: object) -> float | None:
    """As long ago as a version had it that kept seconds since 1970: after an upgrade, until the next health check."""
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= time.time() - at <= VALID_S:
        return None
    return time.time() - at


def why_no_drain(state: State) -> str:
    """Why a prolog drains nothing more, in words; empty where the last health check found room.

    Where it is not known how many are drained, there is none: nothing would then stop a mistake from draining all.
    """
    room = room_of(state)
    if room is None:
        return NOBODY_SAYS
    if room.age_s is None:
        return f"{NOBODY_SAYS} since it was booted"
    if room.age_s > VALID_S:
        return f"{NOBODY_SAYS} within {VALID_S / 60:.0f} minutes"
    return f"{room.full} (by the health check of {room.age_s:.0f} s ago)" if room.full else ""
