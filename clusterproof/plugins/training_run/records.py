"""One thing that a training run recorded: an operation of a rank, or a step."""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.record import field, record


class RunError(ClusterproofError, ValueError):
    """A file of a run that cannot be understood; the message says file, line, what was observed and expected."""


@record
class Place:
    """Where a rank stands: its pipeline stage, and its replica, which is its data-parallel rank."""

    rank: int
    stage: int = 0
    replica: int | None = None


@record
class Operation:
    """What a rank did for so many seconds of a step: `forward-compute`, `grads-reduce-scatter`."""

    place: Place
    step: int
    name: str
    seconds: float


@record
class Step:
    """One step of a rank, and the seconds of its parts as far as they were timed: `forward`, `data`, `checkpoint`.

    A line of a log stands for all `times` steps since the one before it: then `step` is the last of them, and all
    seconds are means of one step.
    """

    place: Place
    step: int
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)
    times: int = 1
    saves: int = 0  # checkpoints that were saved in them, as far as that was counted


KERNEL, OPERATOR = "kernel", "operator"
REST = "all others"


@record
class Spent:
    """How long, and how often, a kernel ran on a rank's GPU, or an operator on its CPU with all that it calls."""

    rank: int
    kind: str
    name: str
    seconds: float
    times: int


@record
class Cut:
    """That a file ends in the middle of something: what stands there is left out."""
