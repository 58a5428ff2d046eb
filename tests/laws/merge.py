"""Two faults in one node: the evidence of both, unless they change the same value."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.record import replace
from tests.laws.pieces import EACH, Path

_NOTHING = object()  # no value


class Conflict(Exception):  # noqa: N818 - an outcome
    """Both faults change the same value."""


def merged(first: NodeEvidence, second: NodeEvidence, healthy: NodeEvidence) -> NodeEvidence:
    """The evidence of a node with two faults. Raises Conflict."""
    names = dict.fromkeys((*first.collectors, *second.collectors))
    collectors = {
        name: _of_collector(*(evidence.collectors.get(name) for evidence in (first, second, healthy))) for name in names
    }
    return replace(healthy, collectors={name: collected for name, collected in collectors.items() if collected})


def _of_collector(first: Collected | None, second: Collected | None, healthy: Collected | None) -> Collected | None:
    if first is None or second is None or healthy is None:
        return _one_of(first, second, healthy)
    if _is_same(first, healthy):
        return second
    if _is_same(second, healthy):
        return first
    if all(_ended(collected) == _ended(healthy) for collected in (first, second)):
        return replace(healthy, value=_value(first.value, second.value, healthy.value))
    raise Conflict


def _is_same(collected: Collected, other: Collected) -> bool:
    return _ended(collected) == _ended(other) and (collected.value is other.value or collected.value == other.value)


def _ended(collected: Collected) -> tuple[object, ...]:
    return collected.status, collected.detail


def _one_of(first: Any, second: Any, healthy: Any) -> Any:
    """The value that one of them changed. Raises Conflict if both did."""
    if first in (healthy, second):
        return second
    if second == healthy:
        return first
    raise Conflict


def _value(first: Any, second: Any, healthy: Any) -> Any:
    three = first, second, healthy
    if all(isinstance(each, dict) for each in three):
        by_key = {
            key: _value(*(each.get(key, _NOTHING) for each in three))
            for key in dict.fromkeys((*healthy, *first, *second))
        }
        return {key: value for key, value in by_key.items() if value is not _NOTHING}
    if all(isinstance(each, list) for each in three) and first != healthy != second:
        return _list(*three)
    return _one_of(*three)


def _list(first: list[Any], second: list[Any], healthy: list[Any]) -> list[Any]:
    """Merge entry by entry; if one list is longer or shorter, the remaining healthy entries and both's additions."""
    if len(first) == len(second) == len(healthy):
        return [_value(*entries) for entries in zip(first, second, healthy, strict=True)]
    is_of_equals = any(healthy.count(entry) > 1 for entry in healthy)  # of equal entries it is unknown which one went
    if is_of_equals or any(entry not in first and entry not in second for entry in healthy):
        raise Conflict
    kept = [entry for entry in healthy if entry in first and entry in second]
    added = [entry for changed in (first, second) for entry in changed if entry not in healthy]
    return _in_order([*kept, *added])


def _in_order(entries: list[Any]) -> list[Any]:
    """Lines of a log by time; otherwise unchanged."""
    is_log = all(isinstance(entry, list) and isinstance(entry[0], int | float) for entry in entries)
    return sorted(entries, key=lambda entry: float(entry[0])) if is_log else entries


def changed_keys(value: Any, healthy: Any, path: Path = ()) -> frozenset[Path]:
    """The differing keys, in the same form as noted reads."""
    if isinstance(value, Collected) and isinstance(healthy, Collected) and _ended(value) == _ended(healthy):
        return changed_keys(value.value, healthy.value, path)
    if value == healthy:
        return frozenset()
    if isinstance(value, dict) and isinstance(healthy, dict):
        keys = {*value, *healthy}
        return frozenset().union(*(changed_keys(value.get(key), healthy.get(key), (*path, key)) for key in keys))
    if isinstance(value, list) and isinstance(healthy, list) and len(value) == len(healthy):
        both = zip(value, healthy, strict=True)
        within = frozenset().union(*(changed_keys(entry, other, (*path, EACH)) for entry, other in both))
        return frozenset(path if key[-1] == EACH else key for key in within)
    return frozenset({path})
