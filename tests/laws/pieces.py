"""Pieces of evidence: which of them a check reads, which a fault changed, and the evidence without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.record import replace

Path = tuple[str, ...]  # a collector and keys in its value; EACH stands for every entry of a list
EACH = "[]"
WHOLLY = True
Difference = bool | dict[Any, Any] | None  # WHOLLY, differences by key or index, or None if there is none


class _TakenForDict(type):
    """A metaclass that passes for `dict`, even for code that compares an object's type."""

    def __eq__(cls, other: object) -> bool:
        return other is dict or other is cls

    def __hash__(cls) -> int:
        return hash(dict)


class Read(dict[str, Any], metaclass=_TakenForDict):
    """An object of the evidence that records which of its keys are read."""

    def __init__(self, mapping: Mapping[str, Any], path: Path, reads: set[Path]) -> None:
        super().__init__({key: noting(value, (*path, key), reads) for key, value in mapping.items()})
        self.path = path
        self.reads = reads

    def __getitem__(self, key: str) -> Any:
        self.reads.add((*self.path, key))
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.reads.add((*self.path, key))
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.reads.add((*self.path, str(key)))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._note_all()
        return super().__iter__()

    def keys(self) -> Any:
        self._note_all()
        return super().keys()

    def values(self) -> Any:
        self._note_all()
        return super().values()

    def items(self) -> Any:
        self._note_all()
        return super().items()

    def _note_all(self) -> None:
        self.reads.update((*self.path, key) for key in dict.keys(self))


def noting(value: Any, path: Path, reads: set[Path]) -> Any:
    """The same value, with objects that record their reads."""
    if isinstance(value, dict):
        return Read(value, path, reads)
    if isinstance(value, list):
        return [noting(entry, (*path, EACH), reads) for entry in value]
    if isinstance(value, Collected):
        return replace(value, value=noting(value.value, path, reads))
    return value


def noted(evidence: NodeEvidence, reads: set[Path]) -> NodeEvidence:
    """The same evidence, recording its reads."""
    return replace(evidence, collectors=Read(evidence.collectors, (), reads))


def difference(value: Any, healthy: Any) -> Difference:
    """What a fault changed in a value."""
    if isinstance(value, Collected) and isinstance(healthy, Collected):
        same = value.status is healthy.status and value.detail == healthy.detail
        return difference(value.value, healthy.value) if same else WHOLLY
    if value == healthy:
        return None
    if isinstance(value, Mapping) and isinstance(healthy, Mapping):
        differences = {key: difference(entry, healthy.get(key)) for key, entry in value.items()}
    elif isinstance(value, list) and isinstance(healthy, list):
        differences = {place: difference(entry, nearest(entry, place, healthy)) for place, entry in enumerate(value)}
    else:
        return WHOLLY
    return {key: within for key, within in differences.items() if within is not None}


def nearest(entry: Any, place: int, healthy: list[Any]) -> Any:
    """The healthy list's entry that a faulty one derives from: an equal one, or the most similar."""
    if entry in healthy or not healthy:
        return entry if healthy else None
    if not isinstance(entry, dict):
        return None
    alike = {at: _alike(entry, other) for at, other in enumerate(healthy)}
    return healthy[max(alike, key=lambda at: (alike[at], at == place))]


def _alike(entry: dict[str, Any], other: Any) -> int:
    return sum(other.get(key) == value for key, value in entry.items()) if isinstance(other, dict) else -1


def taken_away(evidence: NodeEvidence, path: Path, changed: Difference) -> tuple[NodeEvidence, list[Any]]:
    """The evidence without the values at a path, except those the fault changed; also the removed values."""
    gone: list[Any] = []
    if len(path) == 1:
        collector = evidence.collectors[path[0]]
        if collector.status is Status.NOT_ASKED or (isinstance(changed, dict) and path[0] in changed):
            return evidence, gone
        return replace(evidence, collectors={**evidence.collectors, path[0]: Collected(Status.NOT_ASKED)}), [collector]
    collectors = _without(dict(evidence.collectors), path, changed, gone)
    return replace(evidence, collectors=collectors), gone


def _without(value: Any, path: Path, changed: Difference, gone: list[Any]) -> Any:
    if changed is WHOLLY:
        return value
    key, *rest = path
    within = changed if isinstance(changed, dict) else {}
    if isinstance(value, Collected):
        return replace(value, value=_without(value.value, path, changed, gone))
    if key == EACH:
        if not isinstance(value, list):
            return value
        return [_without(entry, tuple(rest), within.get(at), gone) for at, entry in enumerate(value)]
    if not isinstance(value, dict) or key not in value:
        return value
    if rest:
        return {**value, key: _without(value[key], tuple(rest), within.get(key), gone)}
    if key in within:
        return value
    gone.append(value[key])
    return {name: entry for name, entry in value.items() if name != key}


def leaves(value: Any) -> Iterator[Any]:
    """Every value in it that is no object or list, with its names."""
    if isinstance(value, Collected):
        yield value.detail
        yield from leaves(value.value)
    elif isinstance(value, Mapping):
        yield from value
        yield from (leaf for entry in value.values() for leaf in leaves(entry))
    elif isinstance(value, list | tuple):
        yield from (leaf for entry in value for leaf in leaves(entry))
    else:
        yield value


def changed_leaves(value: Any, changed: Difference) -> Iterator[Any]:
    """Those leaves that a fault changed."""
    if changed is WHOLLY:
        yield from leaves(value)
    elif isinstance(changed, dict):
        content = value.value if isinstance(value, Collected) else value
        yield from (leaf for key, within in changed.items() for leaf in changed_leaves(content[key], within))


def in_words(path: Path) -> str:
    """`nvml.gpus[].uuid`."""
    return ".".join(path).replace(f".{EACH}", EACH)
