"""Training steps on a CPU with a bit flip in one of them; runs with PyTorch and prints one JSON object."""

from __future__ import annotations

import json
import sys
from ctypes import CDLL
from typing import TYPE_CHECKING, Any

import torch

from clusterproof.plugins.evidence.exact.on_node.processes import forked
from clusterproof.plugins.evidence.exact.on_node.steps import Size, digest_of, repeated, software

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.exact.on_node.steps import Change

SMALL = Size(2, 8, 32)
STEP = 5


def flipped(what: str, passes: range, bit: int) -> Change:
    """Flip one bit of one element of the gradients or weights in that step of these passes."""

    def change(number: int, step: int, name: str, matrices: list[Any]) -> None:
        if (name, step) == (what, STEP) and number in passes:
            with torch.no_grad():
                matrices[3].view(torch.int32)[1, 2] ^= 1 << bit

    return change


def whole_digests() -> list[str]:
    """Digests of one matrix, and of the same matrix with each bit of one element flipped in turn."""
    matrix = torch.arange(64, dtype=torch.float32).reshape(8, 8)
    hashes = [digest_of([matrix])]
    for bit in range(32):
        other = matrix.clone()
        other.view(torch.int32)[3, 4] ^= (1 << bit) - (1 << 32 if bit == 31 else 0)
        hashes.append(digest_of([other]))
    return [*hashes, digest_of([matrix.flip(0)]), digest_of([matrix, matrix]), digest_of([matrix * 0, matrix])]


def lost(number: int, step: int, name: str, matrices: list[Any]) -> None:
    """A bit flips in the first type; in the second type the device is lost."""
    begun[0] += (number, step, name) == (0, 0, "gradients")
    flipped("weights", LATER, 12)(number, step, name, matrices)
    if begun[0] == 2 and number == 1:
        raise RuntimeError("CUDA error: unspecified launch failure")


begun = [0]  # types
ALWAYS, FIRST, LATER = range(1 << 30), range(1), range(1, 2)
CASES: dict[str, Change] = {
    "clean": lambda *_: None,
    "a bit of a gradient": flipped("gradients", ALWAYS, 0),
    "a bit of a weight": flipped("weights", ALWAYS, 3),
    "once in the first pass": flipped("weights", FIRST, 12),
    "once in a later pass": flipped("gradients", LATER, 22),
    "lost after a bit has flipped": lost,
}


def trained(change: Change) -> dict[str, Any]:
    """The answer of a process that takes the steps."""
    (result,) = forked([lambda: ({"types": types} for types in repeated("cpu", SMALL, 0.0, change))], 600.0)
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    case = sys.argv[1]
    digests = {"digests": whole_digests()}
    if case == "software":
        loaded = [CDLL(path) for path in sys.argv[2:]]
        report: dict[str, Any] = {"software": software()}
    else:
        report = digests if case == "digests" else trained(CASES[case])
    sys.stdout.write(json.dumps(report))
