"""A pair of nodes, and what one measurement of it brought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from clusterproof.plugins.evidence.pairwise.reading import Reading


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Two nodes, in the order of their names: use `pair`."""

    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.a}~{self.b}"

    def __iter__(self) -> Iterator[str]:
        """Both ends, one after the other."""
        return iter((self.a, self.b))

    @property
    def nodes(self) -> tuple[str, str]:
        """Both ends."""
        return self.a, self.b

    def other(self, node: str) -> str:
        """The other end."""
        return self.b if node == self.a else self.a


def pair(one: str, other: str) -> Pair:
    """The pair of two nodes, whichever is named first."""
    return Pair(*sorted((one, other)))


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of one pair; `at_once` pairs were measured at the same time, in this round."""

    pair: Pair
    round: int
    at_once: int
    reading: Reading
