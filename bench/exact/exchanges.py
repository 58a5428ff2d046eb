"""Faults in data that ranks exchange: real collectives between processes over gloo or NCCL, one fault per round."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from clusterproof.plugins.evidence.exact.on_node.exchanges import (
    GLOO,
    NCCL,
    Collectives,
    RankPlace,
    collectives_for,
    copies,
    sums,
)
from clusterproof.plugins.evidence.exact.on_node.operands import Kind, of_settings
from clusterproof.plugins.evidence.exact.on_node.processes import forked
from clusterproof.plugins.evidence.exact.on_node.products import AS_INTEGERS
from clusterproof.plugins.evidence.exact.suspects import Ranks, seen, suspects

RANKS, LENGTH, CHUNK = 4, 64, 16
TYPES = ("float32", "int8")  # for reductions
WITHIN_S = 3000.0
SUMS, COPIES = ("all_reduce", "reduce_scatter"), ("all_gather", "all_to_all")
SENT, RECEIVED = "sent", "received"
Cell = tuple[str, str, "int | None", int]


class Fault(NamedTuple):
    """What happens in one round on one rank: to the data it sends, or to the data it received."""

    name: str
    rank: int
    operation: str
    type: str
    side: str


def drawn(seed: int, number: int) -> tuple[Fault, Random]:
    """A round's fault, the same on all ranks, and the generator for further random numbers."""
    random = Random(f"{seed} {number}")
    operation = random.choice(SUMS + COPIES)
    kind = random.choice(TYPES) if operation in SUMS else "int32"
    side = random.choice((SENT, RECEIVED))
    return Fault(random.choice([*ALTER]), random.randrange(RANKS), operation, kind, side), random


def one_element(vector: Any, random: Random, side: str) -> None:
    """Change one number that is sent, or flip one bit of what was received."""
    index = random.randrange(vector.numel())
    if side == SENT:
        vector[index] += 1
    else:
        bits = vector.view(AS_INTEGERS[vector.element_size()])
        bits[index] ^= 1 << random.randrange(8 * vector.element_size() - 1)


def dropped(vector: Any, random: Random, _side: str) -> None:
    """A chunk is never written."""
    first = random.randrange(vector.numel() // CHUNK) * CHUNK
    vector[first : first + CHUNK] = 0


def duplicated(vector: Any, random: Random, _side: str) -> None:
    """A chunk arrives twice, also in place of another."""
    first, second = (CHUNK * place for place in random.sample(range(vector.numel() // CHUNK), 2))
    vector[first : first + CHUNK] = vector[second : second + CHUNK].clone()


def reordered(vector: Any, random: Random, _side: str) -> None:
    """Two chunks are swapped."""
    first, second = (CHUNK * place for place in random.sample(range(vector.numel() // CHUNK), 2))
    before = vector.clone()
    vector[first : first + CHUNK] = before[second : second + CHUNK]
    vector[second : second + CHUNK] = before[first : first + CHUNK]


ALTER: dict[str, Callable[[Any, Random, str], None]] = {
    "one wrong element in a collective": one_element,
    "a chunk of a collective dropped": dropped,
    "a chunk of a collective duplicated": duplicated,
    "chunks of a collective reordered": reordered,
}


def altered(way: Collectives, fault: Fault, random: Random) -> Collectives:
    """The operations of the rank that has the fault."""

    def call(result: Any, *given: Any) -> None:
        is_it = str(result.dtype) == f"torch.{fault.type}"
        if is_it and fault.side == SENT:
            ALTER[fault.name](given[0] if given else result, random, SENT)
        getattr(way, fault.operation)(result, *given)
        if is_it and fault.side == RECEIVED:
            ALTER[fault.name](result, random, RECEIVED)

    return way._replace(**{fault.operation: call})


def of_rank(
    rank: int, meeting: str, kinds: list[Kind], faults: int, clean: int, seed: int, device: str
) -> dict[str, Any]:
    """What one rank finds wrong in each round; clean rounds come last."""
    store = dist.FileStore(meeting, RANKS)
    backend, own = GLOO, device
    if device != "cpu":
        os.environ["NCCL_HOSTID"] = f"host {rank}"  # so that NCCL lets ranks share a GPU
        backend, own = NCCL, f"{device}:{rank % torch.cuda.device_count()}"
        torch.cuda.set_device(own)
    dist.init_process_group(backend, store=store, rank=rank, world_size=RANKS)
    group = RankPlace(rank, RANKS, own, LENGTH, seed)
    way = collectives_for(backend, group)
    cells: list[tuple[int, Cell]] = []
    made = 0
    for number in range(faults + clean):
        fault, random = drawn(seed, number)
        operations_here = altered(way, fault, random) if number < faults and fault.rank == rank else way
        operations: dict[tuple[str, str], dict[str, Any]] = {}
        for kind in kinds:
            sums(group, operations_here, kind, number, operations)
        copies(group, operations_here, number, operations)
        made += len(operations) if number >= faults else 0
        cells += [
            (number, (name, kind, wrong["sender"], rank))
            for (name, kind), operation in operations.items()
            for wrong in operation["wrong"]
        ]
    store.add("done", 1)
    while rank == 0 and store.add("done", 0) < RANKS:
        time.sleep(0.01)
    return {"cells": cells, "made": made}


def exchanges(text: str, faults: int, clean: int, seed: int, device: str) -> dict[str, Counter[str]]:
    """For each fault: how many were injected, found, and attributed to a rank; clean operations under ""."""
    kinds = [kind for kind in of_settings(text) if kind.name in TYPES]
    with tempfile.TemporaryDirectory() as folder:

        def job(rank: int) -> Callable[[], dict[str, Any]]:
            return lambda: of_rank(rank, f"{folder}/store", kinds, faults, clean, seed, device)

        answers = forked([job(rank) for rank in range(RANKS)], WITHIN_S)
    if problems := [answer["error"] for answer in answers if "error" in answer]:
        raise RuntimeError(f"collectives were not made: {problems[0]}")
    wrong: dict[int, list[Cell]] = defaultdict(list)
    for answer in answers:
        for number, (name, kind, sender, receiver) in answer["cells"]:
            wrong[number].append((name, kind, sender, receiver))
    made = sum(answer["made"] for answer in answers)
    false = len([number for number in wrong if number >= faults])
    counts: dict[str, Counter[str]] = {"": Counter(clean=made, false=false, collectives=made)}
    for number in range(faults):
        fault, _ = drawn(seed, number)
        likely = suspects(seen(wrong[number]), Ranks(["node"] * RANKS))
        is_of_it = len(likely) == 1 and fault.rank in likely[0].ranks
        counts.setdefault(fault.name, Counter()).update(
            faults=1,
            found=int(bool(wrong[number])),
            exchanged=1,
            named=int(is_of_it),
            misnamed=int(len(likely) == 1 and not is_of_it),
        )
    return counts
