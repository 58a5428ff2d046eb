"""What is normal for a pair, and what healthy values are besides normal noise: how many of them, and how far off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OUTLIERS = 0.05  # of the values, at least: a healthy one is now and then anything slower,
LONGEST = 0.7  # up to so much
FASTER = 0.05  # the density above normal, before any was seen
BEYOND = 3.0  # standard deviations, from which on a value is seen to be no normal noise
VALUES_BEFORE = 40  # as many values as the share of outliers above weighs
_OUTLIERS_BEFORE = 4  # as many outliers as their even distribution weighs


@dataclass(frozen=True, slots=True)
class Tails:
    """The share of values that are no normal noise, and where those were that have been seen: in bins of a width."""

    share: float = OUTLIERS
    width: float = 1.0
    seen: Mapping[int, int] = field(default_factory=dict)
    count: int = 0

    def density(self, x: float) -> float:
        """How often a healthy value is no normal noise, and here."""
        if not self.count:
            return self.share * even(x)
        bin_ = int(x // self.width)
        near = self.seen.get(bin_ - 1, 0) + 2 * self.seen.get(bin_, 0) + self.seen.get(bin_ + 1, 0)
        return self.share * (near / (4 * self.width) + _OUTLIERS_BEFORE * even(x)) / (self.count + _OUTLIERS_BEFORE)


def even(x: float) -> float:
    """The density of outliers of which none was seen: as good as none is faster than normal."""
    return 1 / LONGEST if -LONGEST < x < 0 else FASTER


def tails(about: Sequence[float], sigma: float) -> Tails:
    """The tails of these values about their centre."""
    beyond = [x for x in about if abs(x) > BEYOND * sigma]
    share = (OUTLIERS * VALUES_BEFORE + len(beyond)) / (VALUES_BEFORE + len(about))
    return Tails(max(OUTLIERS, share), sigma, Counter(int(x // sigma) for x in beyond), len(beyond))


@dataclass(frozen=True, slots=True)
class Normal:
    """What is normal: the centre of log(busbw) inside places and across them, and its spread."""

    inside: float
    across: float
    sigma: float
    error: float = 0.0  # standard error of the centre
    sample: tuple[float, ...] = ()  # what it was taken from, about the centre; empty where there is plenty
    relief_inside: float = 0.0  # how much faster they are when at most half of them run at once; 0.0 where not sure
    relief_across: float = 0.0
    rounds: Mapping[int, float] = field(default_factory=dict)  # what all pairs of a round have in common beyond that
    tails: Tails = field(default_factory=Tails)

    def of(self, inside: bool) -> float:
        """The centre for such pairs."""
        return self.inside if inside else self.across

    def relief(self, inside: bool) -> float:
        """What fewer at once bring such pairs."""
        return self.relief_inside if inside else self.relief_across
