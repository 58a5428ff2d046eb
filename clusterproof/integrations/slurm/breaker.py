"""Keeps the limit of drained nodes although Slurm starts the health checks of all nodes at the same moment.

A node waits a random time, looks, drains itself as a claim, and looks back once slurmctld's clock is in another second.
Claims are ordered by the second in which slurmctld was given them and by the node's name; who has as many claims ahead
of it as are allowed takes its own back. Of all that stay the last in this order has looked back after all others had
claimed, and has seen them: so no more than are allowed stay, and the first so many always do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable

from clusterproof.integrations.slurm import control
from clusterproof.integrations.slurm.settings import HealthCheck

DRAW_S = 0.025  # for each node of a partition; what two commands of Slurm's take
MAX_DRAWN_S = 5.0
SECOND_S = 1.05  # a second of slurmctld's, and what two clocks may differ in measuring it


def stand_in_line(partitions: Iterable[str], limits: HealthCheck) -> str:
    """Wait the random time; which partition has as many drained as are allowed, in words, else empty.

    Raises SlurmError.
    """
    sizes = [control.claims(partition)[1] for partition in partitions]
    draw_apart(max(sizes, default=0))
    return who_is_full(partitions, limits)[0]


def draw_apart(nodes: int, most_s: float = MAX_DRAWN_S) -> None:
    """Wait a random time, so that as many nodes as begin at once do not all ask at once."""
    time.sleep(random.uniform(0, min(MAX_DRAWN_S, most_s, DRAW_S * nodes)))  # noqa: S311 - no secret


def look_back(name: str, partitions: Iterable[str], limits: HealthCheck) -> str:
    """Look back at this node's claim; which partition has enough ahead of it, in words, else empty.

    Raises SlurmError.
    """
    time.sleep(SECOND_S)
    return who_is_full(partitions, limits, name)[0]


def who_is_full(partitions: Iterable[str], limits: HealthCheck, name: str = "", but: str = "") -> tuple[str, int]:
    """Which partition has enough drained, ahead of the node of that name if it is, in words, else empty; and the most
    nodes that one of those looked at has. The node `but` does not count.

    Raises SlurmError.
    """
    most = 0
    for partition in partitions:
        found, total = control.claims(partition)
        counted = [claim for claim in found if claim.node != but]
        count, most = control.ahead(counted, name), max(most, total)
        if count >= control.allowed(total, limits.max_drained_percent, limits.max_drained_nodes):
            return f"{count} of {total} nodes of partition {partition} are already drained by clusterproof", most
    return "", most
