"""The collective operations of a round in PyTorch, and the errors in their results."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from clusterproof.plugins.evidence.exact.on_node.operands import Kind
from clusterproof.plugins.evidence.exact.on_node.payload import (
    UNWRITTEN,
    BlockError,
    block,
    copied,
    key_of,
    most_of,
    summand,
    summed,
)

NCCL, GLOO = "nccl", "gloo"
MAX_WRONG = 16  # blocks per operation that one rank describes,
MAX_OF_RANK = 44  # and of all operations, except the first of each: more, of many ranks, would be cut by who reads it


class RankPlace(NamedTuple):
    """This rank among all: `length` is the number of elements in a block."""

    rank: int
    ranks: int
    device: str
    length: int
    seed: int


class Collectives(NamedTuple):
    """The PyTorch functions of the four operations."""

    all_reduce: Callable[[Any], Any]
    all_gather: Callable[[Any, Any], Any]
    reduce_scatter: Callable[[Any, Any], Any]
    all_to_all: Callable[[Any, Any], Any]


def _note(
    operations: dict[tuple[str, str], dict[str, Any]],
    name: str,
    kind: str,
    mistakes: list[dict[str, Any]],
    why: str = "",
) -> None:
    operation = operations.setdefault((name, kind), {"operation": name, "type": kind, "rounds": 0, "wrong": []})
    if why:
        operation["why"] = why
        return
    operation["rounds"] += 1
    left = MAX_OF_RANK - sum(len(one["wrong"]) for one in operations.values())
    least = 0 if operation["wrong"] else 1
    operation["wrong"] += mistakes[: max(least, min(left, MAX_WRONG - len(operation["wrong"])))]


def _described(number: int, sender: int | None, error: BlockError | None) -> list[dict[str, Any]]:
    return [{"round": number, "sender": sender, **error._asdict()}] if error else []


def sums(
    group: RankPlace,
    collectives: Collectives,
    kind: Kind,
    number: int,
    operations: dict[tuple[str, str], dict[str, Any]],
) -> float:
    """All-reduce and reduce-scatter in one type; returns the seconds of the all-reduce."""
    most = most_of(kind.significand, group.ranks)
    if not most:
        return 0.0

    def of(sender: int) -> Any:
        return summand(key_of(group.seed, number, sender), group.ranks * group.length, most, group.device)

    due = sum(map(of, range(group.ranks)))
    own = of(group.rank).to(getattr(torch, kind.name))
    mine = slice(group.rank * group.length, (group.rank + 1) * group.length)
    try:
        result = own.clone()
        began = _now(group)
        collectives.all_reduce(result)
        spent_s = _now(group) - began
        error = summed(result, due, of, group.ranks)
        _note(operations, "all_reduce", kind.name, _described(number, error.other if error else None, error))
        result = torch.full((group.length,), UNWRITTEN, dtype=own.dtype, device=group.device)
        collectives.reduce_scatter(result, own.clone())
        error = summed(result, due[mine], lambda sender: of(sender)[mine], group.ranks)
        _note(operations, "reduce_scatter", kind.name, _described(number, error.other if error else None, error))
    except (RuntimeError, ValueError) as refused:
        if "nvalid scalar type" not in str(refused) and "nsupported" not in str(refused):
            raise
        _note(operations, "all_reduce", kind.name, [], " ".join(str(refused).split())[:120])
        return 0.0
    return spent_s


def _now(group: RankPlace) -> float:
    if group.device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.monotonic()


def copies(
    group: RankPlace, collectives: Collectives, number: int, operations: dict[tuple[str, str], dict[str, Any]]
) -> None:
    """All-gather and all-to-all of random integers."""
    everyone, to_all = range(group.ranks), -1

    def sent(sender: int, receiver: int) -> Any:
        return block(key_of(group.seed, number, sender, receiver + 1), group.length, group.device)

    def instead(sender: int, receiver: int) -> list[tuple[str, int, Any]]:
        others = [("as sent by rank", rank, sent(rank, receiver)) for rank in everyone if rank != sender]
        if receiver == to_all:
            return others
        return [*others, *(("as meant for rank", to, sent(sender, to)) for to in everyone if to != receiver)]

    gathered = ("all_gather", collectives.all_gather, [to_all], to_all)
    for name, call, receivers, receiver in (gathered, ("all_to_all", collectives.all_to_all, everyone, group.rank)):
        result = torch.full((group.ranks * group.length,), UNWRITTEN, dtype=torch.int32, device=group.device)
        call(result, torch.cat([sent(group.rank, to) for to in receivers]))
        mistakes = []
        for sender, got in enumerate(result.chunk(group.ranks)):
            due = sent(sender, receiver)
            if bool((got != due).any()):
                mistakes += _described(number, sender, copied(got, due, instead(sender, receiver)))
        _note(operations, name, "int32", mistakes)


def collectives_for(backend: str, group: RankPlace) -> Collectives:
    """This PyTorch version's functions; gloo has no reduce-scatter: each block is reduced to its rank instead."""
    gather: Any = getattr(dist, "all_gather_into_tensor", None) or getattr(dist, "_all_gather_base", None)
    scatter: Any = getattr(dist, "reduce_scatter_tensor", None) or getattr(dist, "_reduce_scatter_base", None)

    def gathered(result: Any, contribution: Any) -> None:
        dist.all_gather(list(result.chunk(group.ranks)), contribution)

    def reduced(result: Any, contribution: Any) -> None:
        for rank, part in enumerate(contribution.chunk(group.ranks)):
            dist.reduce(part, rank)
            if rank == group.rank:
                result.copy_(part)

    on_gloo = backend == GLOO or gather is None or scatter is None
    return Collectives(
        dist.all_reduce,
        gathered if on_gloo else gather,
        reduced if on_gloo else scatter,
        dist.all_to_all_single,
    )
