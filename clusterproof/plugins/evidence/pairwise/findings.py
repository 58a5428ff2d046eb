"""What a campaign's measurements come to: kinds of findings, and the numbers behind each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import exp

from clusterproof.plugins.evidence.pairwise.model import Pair


class Kind(str, Enum):
    """The kind of fault."""

    SLOW_NODE = "slow node"
    FAILING_NODE = "failing node"
    SLOW_LINK = "slow link"
    FAILING_LINK = "failing link"
    SLOW_GROUP = "slow group"
    CONTENTION = "contention"
    CONFIGURATION = "configuration"
    INTERMITTENT = "intermittent"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Estimate:
    """How much slower than normal (0.07 is 7 %), from how many measurements.

    `low` and `high` hold the truth 19 times in 20; `surely` is the chance that no healthy node of the run looks so.
    """

    slower: float
    low: float
    high: float
    measurements: int
    partners: int = 0
    surely: float = 0.0


def estimated(middle: float, error: float, count: int, partners: int = 0, surely: float = 0.0) -> Estimate:
    """The estimate that a difference of logarithms and its standard error make."""
    low, high = (1 - exp(middle + sign * 1.96 * error) for sign in (1, -1))
    return Estimate(1 - exp(middle), low, high, count, partners, surely)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. `nodes` are those it is about; `pairs` the measured pairs that it explains."""

    kind: Kind
    nodes: tuple[str, ...] = ()
    place: str = ""
    estimate: Estimate | None = None
    failures: int = 0  # of how many measurements there were
    attempts: int = 0
    words: str = ""
    pairs: tuple[Pair, ...] = ()
