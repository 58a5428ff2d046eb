"""Exchanges of a few bytes between RDMA devices of two nodes: each result, and overall findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from clusterproof.plugins.evidence.host.facts_hardware import in_ranges

MAX_RAILS = 128  # for two nodes with 64 ports each, without a common rail
_PLACE = re.compile(r"[0-9A-Za-z:._-]{0,40}/\d{1,3}|", re.ASCII)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The device of a pair's first node, `a`, with that of the same rail on the second, `b`.

    `rail` counts a node's devices in the order of the PCI bus, from 0. `problem` is empty where the bytes came back. A
    device is empty where that node has none on the rail: then nothing was exchanged. `apart` is why the programs of
    both ends did not meet: then nothing was either, and no device is to blame. `places` are where the devices are on
    the PCI bus ("0000:4f:00.0/1", with the port); empty where that is not known.
    """

    rail: int
    a: str
    b: str
    problem: str = ""
    apart: str = ""
    places: tuple[str, str] = ("", "")

    @property
    def has_devices(self) -> bool:
        """Whether both nodes have a device for it."""
        return bool(self.a and self.b)

    @property
    def is_made(self) -> bool:
        """Whether bytes were sent."""
        return self.has_devices and not self.apart

    @property
    def has_arrived(self) -> bool:
        """Whether the bytes came back."""
        return self.is_made and not self.problem


def exchange_of(record: Mapping[str, Any]) -> Exchange:
    """Parse an exchange of a recording. Raises KeyError, ValueError."""
    rail, texts = record["rail"], [record[name] for name in ("a", "b", "problem", "apart")]
    if type(rail) is not int or not 0 <= rail < MAX_RAILS or len(record) != 2 + len(texts):
        raise ValueError(f"{rail!r:.40} is not the rail of an exchange")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("expected texts of an exchange")
    a, b, problem, apart = texts
    return Exchange(rail, a, b, problem, apart, places_of(record["places"]))


def places_of(values: object) -> tuple[str, str]:
    """The devices of an exchange. Raises ValueError."""
    if isinstance(values, list) and len(values) == 2 and all(isinstance(entry, str) for entry in values):
        a, b = values
        if _PLACE.fullmatch(a) and _PLACE.fullmatch(b):
            return a, b
    raise ValueError(f"{values!r:.60} are not the places of two devices on the PCI bus")


def shown(exchanges: Iterable[Exchange], text: Callable[[str], str]) -> tuple[Exchange, ...]:
    """The same, redacted by `text`."""
    return tuple(
        replace(
            exchange, a=text(exchange.a), b=text(exchange.b), problem=text(exchange.problem), apart=text(exchange.apart)
        )
        for exchange in exchanges
    )


class MeshKind(str, Enum):
    """Which part of the network does not work."""

    DEVICE = "device"  # one of a node, whose others work
    NODE = "node"  # none of its devices works
    RAIL = "rail"  # no pair works on it, or hardly any
    SWITCH = "switch"  # devices of several nodes on one rail: what they share
    ALL = "all"  # no device of any node
    CUT = "cut"  # two sides, each of which works internally
    PARTLY = "partly"  # a device that reaches some partners but not others
    PATH = "path"  # between two devices that work with others
    ONCE = "once"  # an exchange that failed, and succeeded when repeated
    GAP = "gap"  # a node lacks a device that others have, or has one that nobody else has
    APART = "apart"  # the programs of two nodes did not connect
    OPEN = "open"  # too few partners to decide


@dataclass(frozen=True, slots=True)
class MeshFinding:
    """One fault, or an open question. `nodes` are those whose check reports it; `words` the observation.

    `links` are pairs of nodes to retry, of a path that failed.
    """

    kind: MeshKind
    nodes: tuple[str, ...]
    words: str
    rails: tuple[int, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


def describe_rails(rails: Sequence[int]) -> str:
    """`rail 3`, `rails 0-2,5`."""
    return f"rail{'' if len(rails) == 1 else 's'} {in_ranges(rails)}"


@dataclass(frozen=True, slots=True)
class MeshOfNode:
    """One node's exchanges: the number of partners, and each finding that names it."""

    partners: int
    findings: tuple[MeshFinding, ...] = ()
