"""Merges several files of one node: the highest rank wins, others fill gaps; numbers and matches GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from clusterproof.plugins.evidence.parsing import PLACE, is_error

# Keys that identify an entry of a list, the most reliable first; one must agree.
_KEYS = ("index", "pci", "uuid", "address", "name", "path", "port", "pid", PLACE)
_UUID = re.compile(r"GPU(?:-[0-9a-f]{4,12}){5}")  # one that nobody has scrubbed
_LOGS = ("lines", "logs")  # lists to which every file of the same rank adds entries that are missing
_MAX_COMPARED = 1_000_000  # pairs of entries: 1,000 processes compared with 1,000
_MAX_DEPTH = 12  # nesting depth; the evidence has 5
_MAX_NAMELESS = 256  # GPUs with an unknown number, in all files of a node
MAX_GPUS = 128  # maximum accepted for a node; none has more than 16


def merged(ranked: Iterable[tuple[int, object]]) -> object:
    """Merge several values with ranks. At equal rank, the first wins."""
    result: object = None
    result_rank = 0
    for rank, value in sorted(ranked, key=lambda entry: -entry[0]):
        result = both(result, value, same_rank=rank == result_rank)
        result_rank = rank
    return result


def latest(values: Iterable[object]) -> object:
    """Merge what one text has several times, of one rank: the last wins, others fill gaps. Logs keep their order."""
    values = list(values)
    are_logs = any(key in value for value in values if isinstance(value, dict) for key in _LOGS)
    return merged((0, value) for value in (values if are_logs else reversed(values)))


def both(first: object, second: object, *, same_rank: bool = False, key: str = "", depth: int = 0) -> object:
    """Merge two values of the same thing; `first` wins where they conflict."""
    if _has_less(first, second):
        return second
    if _has_less(second, first) or depth > _MAX_DEPTH:
        return first
    if isinstance(first, dict) and isinstance(second, dict):
        return _tables(first, second, same_rank, depth)
    if isinstance(first, list) and isinstance(second, list):
        return _lists(first, second, same_rank, key, depth)
    return first


def _has_less(value: object, than: object) -> bool:
    """Missing says less than an error, and an error less than a value."""
    return _weight(value) < _weight(than)


def _weight(value: object) -> int:
    return 0 if value is None else 1 if is_error(value) else 2


def _tables(first: Mapping[str, Any], second: Mapping[str, Any], same_rank: bool, depth: int) -> dict[str, object]:
    together = dict(first)
    for key, value in second.items():
        own = together.get(key)
        together[key] = both(own, value, same_rank=same_rank, key=key, depth=depth + 1)
    return together


def _lists(first: list[Any], second: list[Any], same_rank: bool, key: str, depth: int) -> list[Any]:
    if key in _LOGS:
        seen = {repr(entry) for entry in first}
        return first + [entry for entry in second if repr(entry) not in seen] if same_rank else first
    if len(first) * len(second) > _MAX_COMPARED or not all(isinstance(entry, dict) for entry in (*first, *second)):
        return first or second
    if key != "gpus" and not all(map(_has_name, (*first, *second))):
        return first or second
    if len(first) >= _MAX_NAMELESS:
        second = [entry for entry in second if _has_name(entry)]
    together = list(first)
    for entry in second:
        same: list[Any] = []  # more than one if this entry has the identifiers of both
        for other in together:
            if _is_same(other, entry):
                entry = both(other, entry, same_rank=same_rank, depth=depth + 1)
                same.append(other)
        index = together.index(same[0]) if same else len(together)
        together = [other for other in together if not any(other is known for known in same)]
        together.insert(index, entry)
    return together


def _has_name(entry: Mapping[str, Any]) -> bool:
    """Whether an entry has an identifier."""
    return any(entry.get(key) is not None for key in _KEYS)


def _is_same(entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two entries are of the same thing: decided by the best key that both have, else by their values."""
    shared = next((key for key in _KEYS if entry.get(key) is not None and other.get(key) is not None), None)
    if _are_two_gpus(entry, other):
        return False
    if shared is None:
        return entry == other
    return bool(entry[shared] == other[shared])


def _are_two_gpus(entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    uuids = {str(entry.get("uuid")), str(other.get("uuid"))}
    return len(uuids) > 1 and all(map(_UUID.fullmatch, uuids))


def of_two_machines(nvml: object) -> str:
    """Why this cannot be one machine at one time: a number or address that two GPUs have; else empty."""
    gpus = nvml.get("gpus") if isinstance(nvml, dict) else None
    known = [gpu for gpu in gpus if isinstance(gpu, dict)][:_MAX_NAMELESS] if isinstance(gpus, list) else []
    for gpu, other in combinations(known, 2):
        if _are_two_gpus(gpu, other) and gpu.get("index") is not None and gpu.get("index") == other.get("index"):
            return f"GPU {gpu['index']} is {gpu['uuid']} and {other['uuid']}; expected the outputs of one node and time"
    return ""


def completed(nvml: object) -> object:
    """The collector `nvml` with an entry for each GPU that was counted, in the order of their numbers.

    A GPU that is counted but not described gets an empty entry: facts about it are incomplete.
    """
    if not isinstance(nvml, dict) or ("gpus" not in nvml and "count" not in nvml):
        return nvml
    value = nvml.get("gpus", [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        return nvml
    count = nvml.get("count")
    value = _joined(_placed(value, count), count)
    missing = max(0, count - len(value)) if isinstance(count, int) and count <= MAX_GPUS else 0
    gpus = [*value, *({} for _ in range(missing))]
    if len(gpus) == count and (not missing or all("index" in entry for entry in value)):
        gpus = _numbered(gpus)
    return {**nvml, "gpus": sorted(gpus, key=_sort_key)} if gpus or "gpus" in nvml else nvml


def _placed(gpus: list[dict[str, Any]], count: object) -> list[dict[str, Any]]:
    """The GPUs numbered by position, if an output lists all known ones; otherwise without positions."""
    shown = [entry[PLACE].split("/") for entry in gpus if PLACE in entry]
    most = max([len({entry["index"] for entry in gpus if "index" in entry}), *(int(of) for _, of in shown)])
    known = str(count if isinstance(count, int) else most)
    placed: list[dict[str, Any]] = []
    for entry in gpus:
        position, _, of = entry.get(PLACE, "").partition("/")
        described = {key: word for key, word in entry.items() if key != PLACE}
        if of == known:
            placed = _lists(placed, [{"index": int(position), **described}], same_rank=False, key="gpus", depth=0)
        else:
            placed.append(described)
    return placed


def _joined(gpus: list[dict[str, Any]], count: object) -> list[dict[str, Any]]:
    """The GPUs, each unidentified one merged with the only GPU, or with one that has other values.

    An unidentified GPU whose values all match an identified one is dropped.
    """
    named = [entry for entry in gpus if _has_name(entry)]
    nameless: list[dict[str, Any]] = []
    for entry in (entry for entry in gpus if not _has_name(entry)):
        if count == 1 and len(named) == 1:
            named = [_tables(named[0], entry, same_rank=False, depth=0)]
        elif not any(entry.items() <= other.items() for other in named):
            other = next((other for other in nameless if _adds_nothing(other, entry)), {})
            nameless = [gpu for gpu in nameless if gpu is not other]
            nameless.append({**other, **entry})
    return [*named, *nameless]


def _adds_nothing(gpu: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether one has no value that the other has, except that both are lost or both are not."""
    return gpu.keys() & other.keys() <= {"lost"} and gpu.get("lost") == other.get("lost")


def _numbered(gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """If all GPUs are there: number the unnumbered ones in order of their PCI addresses."""
    taken = {entry.get("index") for entry in gpus}
    left = [number for number in range(len(gpus)) if number not in taken]
    named = [entry for entry in gpus if "index" in entry]
    nameless = sorted((entry for entry in gpus if "index" not in entry), key=_sort_key)
    numbered = [{"index": number, **entry} for number, entry in zip(left, nameless)]  # noqa: B905 - one may be twice
    return [*named, *numbered, *nameless[len(left) :]]


def _sort_key(entry: dict[str, Any]) -> tuple[bool, int, bool, str]:
    index, pci = entry.get("index"), entry.get("pci")
    return (not isinstance(index, int), index if isinstance(index, int) else 0, not pci, str(pci))
