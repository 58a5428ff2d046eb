"""Copies between GPUs over PCIe: how near a GPU is to the others decides how fast they are, and is no fault of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import said
from tests.checks.perf.given import ran

PASS, CONCERN, FAIL, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.FAIL, Verdict.INCOMPLETE
NEAR, FAR = 26.34, 21.9  # GB/s that NVIDIA/nvbandwidth#50 has of A6000s at one socket, and of two


def node(
    sockets: Sequence[int], name: str = "gpu001", far: float = FAR, slow: int | None = None, is_placed: bool = True
) -> NodeEvidence:
    """GPUs at these sockets, which copy so fast to those at another; one of them at half of that to all."""
    head = "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) -> GPU(column)\n"
    rows = ["".join(f" {number}" for number in range(len(sockets)))]
    for one, here in enumerate(sockets):
        row = [
            "N/A" if one == other else f"{(NEAR if here == there else far) * (0.5 if slow in (one, other) else 1):.2f}"
            for other, there in enumerate(sockets)
        ]
        rows.append(f" {one} {' '.join(row)}")
    devices = [
        {
            "address": f"0000:{number:02x}:00.0",
            "vendor": "10de",
            "device": "2230",
            "class": "030200",
            **({"path": [f"pci{number}", f"g{number}"], "numa": socket, "function_of": ""} if is_placed else {}),
        }
        for number, socket in enumerate(sockets)
    ]
    copies = {"gpus": len(sockets), "by": "nvbandwidth", "runs": [ran(head + "\n".join(rows) + "\n")]}
    data = {"gpu_bandwidth": copies, "pci": {"devices": devices, "switches": []}}
    return NodeEvidence(name, collectors={key: Collected(Status.READ, value) for key, value in data.items()})


@pytest.mark.parametrize(
    ("sockets", "verdict", "words"),
    [
        ((0, 0, 1, 1), PASS, ""),
        ((0, 0, 0, 0, 1, 1), PASS, ""),
        ((0, 0, 1), INCOMPLETE, "GPU 2, GPU to GPU by nvbandwidth, others 2 SYS: 21.9 GB/s; expected further GPUs or"),
    ],
)
def test_a_healthy_gpu_that_is_farther_from_the_others_is_not_accused(
    sockets: tuple[int, ...], verdict: Verdict, words: str
) -> None:
    result = said("gpu.gpu_bandwidth", node(sockets), occasion="perf")
    assert (result.verdict, result.message[: len(words)]) == (verdict, words), result.message


@pytest.mark.parametrize("slow", [0, 2])
def test_nodes_built_alike_show_which_of_their_gpus_is_slow(slow: int) -> None:
    others = [node((0, 0, 1), f"gpu00{number}") for number in (2, 3, 4)]
    assert said("gpu.gpu_bandwidth", node((0, 0, 1)), *others, occasion="perf").verdict is PASS
    result = said("gpu.gpu_bandwidth", node((0, 0, 1), slow=slow), *others, occasion="perf")
    assert result.verdict is FAIL
    assert f"GPU {slow}, GPU to GPU" in result.message


@pytest.mark.parametrize(("sockets", "slow"), [((0, 0, 1, 1), 3), ((0, 0, 0, 0, 1, 1), 5), ((0, 0, 0, 0, 1, 1), 2)])
def test_a_slow_gpu_among_such_as_are_as_near_is_named(sockets: tuple[int, ...], slow: int) -> None:
    result = said("gpu.gpu_bandwidth", node(sockets, slow=slow), occasion="perf")
    assert result.verdict is FAIL
    assert f"GPU {slow}, GPU to GPU" in result.message


@pytest.mark.parametrize("is_placed", [True, False])
def test_where_all_are_as_fast_or_no_way_is_known_all_are_compared(is_placed: bool) -> None:
    assert said("gpu.gpu_bandwidth", node((0, 0, 1), far=NEAR, is_placed=is_placed), occasion="perf").verdict is PASS
