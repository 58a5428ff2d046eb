"""Real gloo collectives between processes, with a fault in what one rank sends or receives; runs with PyTorch.

The arguments are the number of ranks and the fault; the last line printed is one JSON object.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clusterproof.plugins.evidence.exact.on_node.collectives import measured
from clusterproof.plugins.evidence.exact.on_node.exchanges import Collectives

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.exact.on_node.collectives import Change

KINDS = "float32:24:24,bfloat16:8:24,int8:7:31"
RANK, OTHER = 2, 1
BIT = 1 << 9
Alter = Callable[[Any, int], None]  # the data sent or received, and the elements per block


def of_one(rank: int, **calls: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Change:
    """Replace these operations on one rank."""

    def change(here: int, way: Collectives) -> Collectives:
        altered = {name: wrap(getattr(way, name)) for name, wrap in calls.items()}
        return way._replace(**altered) if here == rank else way

    return change


def sending(alter: Alter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Alter data before it is sent."""

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(result: Any, given: Any) -> None:
            alter(given, given.numel() // RANKS)
            call(result, given)

        return called

    return wrap


def receiving(alter: Alter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Alter data after it was received."""

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(result: Any, given: Any) -> None:
            call(result, given)
            alter(result, result.numel() // RANKS)

        return called

    return wrap


def reducing(alter: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Alter data before it is reduced."""

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(vector: Any) -> None:
            alter(vector)
            call(vector)

        return called

    return wrap


def flip(vector: Any, block: int) -> None:
    """Flip a bit in one element for one other rank."""
    vector[OTHER * block + 17] ^= BIT


def flip_all(vector: Any, block: int) -> None:
    """Flip a bit in one element for each rank."""
    for rank in range(RANKS):
        vector[rank * block + 17] ^= BIT


def flip_half(vector: Any, block: int) -> None:
    """Flip a bit in each element for half of the ranks."""
    vector[: RANKS // 2 * block] += 1


def reorder(vector: Any, block: int) -> None:
    """Swap two blocks."""
    last = RANKS - 1
    first, second = (vector[rank * block : (rank + 1) * block].clone() for rank in (0, last))
    vector[:block], vector[last * block :] = second, first


def duplicate(vector: Any, block: int) -> None:
    """Deliver one block twice."""
    vector[:block] = vector[(RANKS - 1) * block :]


def drop(vector: Any, block: int) -> None:
    """Lose one block."""
    vector[OTHER * block : (OTHER + 1) * block] = -1


def show_folder() -> None:
    """Fail unless ranks meet in a folder that only its owner may enter."""
    (folder,) = Path(tempfile.gettempdir()).glob("clusterproof-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "store").exists()


def silent() -> None:
    """GPUs that a driver never counts."""
    time.sleep(600)


def show_end() -> None:
    """Fail unless NCCL leaves alone what a rank waits for, whatever the site's settings."""
    assert {os.environ[f"{name}NCCL_ASYNC_ERROR_HANDLING"] for name in ("", "TORCH_")} == {"3"}


LOOKS = {"no GPU": torch.cuda.init, "GPUs that are not counted": silent, "fewer GPUs": lambda: None}
CASES: dict[str, Change] = {
    "clean": lambda _, way: way,
    "an element that one rank sends to another": of_one(RANK, all_to_all=sending(flip)),
    "an element that one rank sends to each": of_one(RANK, all_to_all=sending(flip_all)),
    "an element that one rank receives of each": of_one(RANK, all_to_all=receiving(flip_all)),
    "an element of what is gathered": of_one(RANK, all_gather=sending(lambda vector, _: flip(vector, 0))),
    "a block that one rank does not receive": of_one(RANK, all_to_all=receiving(drop)),
    "a block that one rank sends twice": of_one(RANK, all_to_all=sending(duplicate)),
    "blocks that one rank sends in another order": of_one(RANK, all_to_all=sending(reorder)),
    "a part that is not added": of_one(RANK, all_reduce=reducing(lambda vector: vector[100:200].zero_())),
    "a part that is added twice": of_one(RANK, all_reduce=reducing(lambda vector: vector[100:200].mul_(2))),
    "an element of a sum": of_one(RANK, all_reduce=reducing(lambda vector: vector[100:101].add_(1))),
    "all that each rank receives": lambda _, way: way._replace(
        all_reduce=reducing(lambda vector: vector.add_(1))(way.all_reduce),
        **{name: receiving(flip_half)(getattr(way, name)) for name in ("all_gather", "all_to_all", "reduce_scatter")},
    ),
    "a rank that dies after a wrong sum": of_one(
        RANK,
        all_reduce=reducing(lambda vector: vector[100:200].zero_()),
        all_gather=lambda _: lambda *_: sys.exit(3),
    ),
    "a rank that hangs": lambda rank, way: time.sleep(600) or way if rank == RANK else way,
    "where ranks meet": lambda _, way: show_folder() or way,
    "how ranks end": lambda _, way: show_end() or way,
    "a rank that dies": of_one(RANK, all_gather=lambda _: lambda *_: sys.exit(3)),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    RANKS, case = int(sys.argv[1]), sys.argv[2]
    request = {
        "ranks": RANKS,
        "kinds": KINDS,
        "budget_s": float(sys.argv[3]),
        "within_s": float(sys.argv[4]),
        "seed": 11,
    }
    if case in LOOKS:
        torch.cuda.init, torch.cuda.device_count = LOOKS[case], lambda: 2
    else:
        request["backend"] = "gloo"
    sys.stdout.write(json.dumps(measured(request, CASES.get(case, CASES["clean"]))))
