"""The collectives of a Flight Recorder dump around the one in which its rank waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.training_run import CollectiveArguments

NEAR = 16  # places on either side of the last completed one, for each group
MAX_TENSORS, MAX_DIMENSIONS, MAX_FRAMES, MAX_WORDS = 1_000, 16, 64, 60
MAX_ELEMENTS = 2**63
TIMEOUT_S = 600.0  # NCCL's default timeout
# Every rank contributes the same amount. Parts of a gather, scatter or all-to-all may differ, as may sparse tensors.
_EVEN = re.compile(r"(all_?reduce|broadcast|reduce|all_gather|reduce_scatter)(_into_tensor|_tensor)?(_coalesced)?")
_VARIANT = re.compile(r"^_|_(?:base|oop)$")  # marks which PyTorch function called the same NCCL operation
_OF_PYTORCH = "/torch/"


@record
class RawCall:
    """A collective of the ring buffer, and its raw entry."""

    group: str
    number: int
    name: str
    entry: Mapping[str, Any]


def called(calls: Sequence[RawCall], ended: Mapping[str, int]) -> dict[str, dict[int, CollectiveArguments]]:
    """For each group, the calls at each place near the last one that has ended there.

    Only versions that count collectives separately are comparable between ranks. If a ring has lost its beginning, its
    first place may be incomplete.
    """
    by_group: dict[str, dict[int, CollectiveArguments]] = {}
    first: dict[str, int] = {}
    has_lost = bool(calls and calls[0].entry.get("record_id", 1))
    sizes: dict[int, int | None] = {}  # by identity, because a pickle may refer to one list any number of times
    for call in calls:
        if "collective_seq_id" not in call.entry:
            continue
        group = by_group.setdefault(call.group, {})
        begins = first.setdefault(call.group, call.number)
        is_cut = has_lost and call.number == begins
        if is_cut or abs(call.number - ended.get(call.group, begins)) > NEAR:
            continue
        before = group.get(call.number)
        group[call.number] = _batch(before, call.name) if before else _called(call, sizes)
    return by_group


def _batch(before: CollectiveArguments, name: str) -> CollectiveArguments:
    """Several operations at one place: identified by names only, as a batch may have any sizes."""
    names = sorted({*before.name.split("+"), _plain(name)})
    return replace(before, name="+".join(names)[:MAX_WORDS], elements=None, dtype="")


def _called(call: RawCall, sizes: dict[int, int | None]) -> CollectiveArguments:
    name, elements, dtype = _plain(call.name), None, ""
    given = call.entry.get("input_sizes")
    if _EVEN.fullmatch(name) and isinstance(given, list | tuple):
        if id(given) not in sizes:
            sizes[id(given)] = _elements(given)
        elements = sizes[id(given)]
        dtype = "" if elements is None else "+".join(_types(call.entry.get("input_dtypes")))
    created, timeout = call.entry.get("time_created_ns"), call.entry.get("timeout_ms")
    return CollectiveArguments(
        name,
        elements,
        dtype,
        _where(call.entry.get("frames")),
        created / 1e9 if isinstance(created, int) and 0 < created < MAX_ELEMENTS else None,
        timeout / 1e3 if isinstance(timeout, int) and 0 < timeout < MAX_ELEMENTS else TIMEOUT_S,
    )


def _plain(name: str) -> str:
    """The operation, whichever PyTorch function called it."""
    plain = _VARIANT.sub("", _VARIANT.sub("", name)).replace("allgather", "all_gather")
    return "barrier" if plain.endswith("barrier") else printable(plain[:MAX_WORDS])


def _elements(tensors: Any) -> int | None:
    """The number of elements in tensors of such sizes; None if unknown."""
    if not tensors or len(tensors) > MAX_TENSORS or not all(map(_is_shape, tensors)):
        return None
    count = sum(map(prod, tensors))
    return count if count < MAX_ELEMENTS else None


def _is_shape(sizes: object) -> bool:
    if not isinstance(sizes, list | tuple) or len(sizes) > MAX_DIMENSIONS:
        return False
    return all(isinstance(size, int) and 0 <= size < MAX_ELEMENTS for size in sizes)


def _types(names: Any) -> Iterator[str]:
    if isinstance(names, list | tuple) and len(names) <= MAX_TENSORS:
        yield from sorted({printable(str(name)[:20]) for name in names if isinstance(name, str)})


def _where(frames: Any) -> str:
    """The innermost line outside PyTorch, `train_step, train.py:120`; empty if there is none."""
    for frame in frames[:MAX_FRAMES] if isinstance(frames, list | tuple) else ():
        match frame:
            case {"name": str(name), "filename": str(file), "line": int(line)} if _OF_PYTORCH not in file:
                return printable(f"{name[:MAX_WORDS]}, {file.rpartition('/')[2][-MAX_WORDS:]}:{line % 10**9}")
    return ""
