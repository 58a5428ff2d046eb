"""What no two probes of one node report alike: it is no part of a fault where it differs by chance."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.record import replace
from tests.laws.pieces import nearest

BY_CHANCE = {  # by key, the largest share of the healthy node's value, or number, by which a value differs by chance
    "init_s": (0.0, 1.0),
    "read_s": (0.0, 0.4),
    "now": (0.0, 86_400.0),
    "free_kib": (0.2, 0.0),
    "available_kib": (0.2, 0.0),
    "inodes_free": (0.2, 0.0),
}
COUNTED_S = {"efa_counters", "ena_counters"}  # whose `seconds` passed between two looks
TALLIES = ("read", "cursor")  # of the kernel log: how many records it has
BUSY = "times"  # of processors, by what they did; they do the same at another pace


def without_chance(evidence: NodeEvidence, healthy: NodeEvidence) -> NodeEvidence:
    """The evidence of a faulty node, with the healthy one's values where they differ by chance."""
    collectors = {
        name: _collected(name, data, healthy.collectors[name]) if name in healthy.collectors else data
        for name, data in evidence.collectors.items()
    }
    return replace(evidence, collectors=collectors)


def _collected(name: str, data: Collected, healthy: Collected) -> Collected:
    value = _settled(data.value, healthy.value)
    if name in COUNTED_S and isinstance(value, dict) and isinstance(healthy.value, dict):
        value = {**value, "seconds": healthy.value["seconds"]}
    return replace(data, value=value)


def _settled(value: Any, healthy: Any, key: str = "") -> Any:
    if value == healthy or (key in TALLIES and healthy is not None):
        return healthy
    if isinstance(value, dict) and isinstance(healthy, dict):
        return {name: _settled(entry, healthy.get(name), name) for name, entry in value.items()}
    if isinstance(value, list) and isinstance(healthy, list):
        if key == BUSY:
            return healthy if _what_was_done(value) == _what_was_done(healthy) else value
        return [_settled(entry, nearest(entry, place, healthy)) for place, entry in enumerate(value)]
    return healthy if _is_near(key, value, healthy) else value


def _what_was_done(times: list[list[int]]) -> list[list[bool]]:
    return [[bool(time) for time in looked] for looked in times]


def _is_near(key: str, value: Any, healthy: Any) -> bool:
    if key not in BY_CHANCE or not isinstance(value, int | float) or not isinstance(healthy, int | float):
        return False
    share, number = BY_CHANCE[key]
    return abs(value - healthy) <= max(share * abs(healthy), number)
