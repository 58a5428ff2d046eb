"""How many NVLinks join a node's GPUs, as nvidia-smi topo shows them."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.checks.gpu.given import GPU, evaluated

CUBE_MESH = ("- 1 1 1 1 0 0 0", "1 - 1 1 0 1 0 0", "1 1 - 1 0 0 1 0", "1 1 1 - 0 0 0 1")  # of a DGX-1 with P100s
RING = ("- 2 2 0", "2 - 0 2", "2 0 - 2", "0 2 2 -")
BRIDGES = ("- 12 0 0", "12 - 0 0", "0 0 - 12", "0 0 12 -")
BRIDGE = ("- 4 0", "4 - 0", "0 0 -")
ONE_APART = ("- 18 0 18", "18 - 0 18", "0 0 - 0", "18 18 0 -")
ONE_WITH_FEWER = ("- 18 17 18", "18 - 17 18", "17 17 - 17", "18 18 17 -")
A_MINORITY_ALIKE = ("- 1 2 3", "1 - 4 5", "2 4 - 6", "3 5 6 -")
HALF_APART = ("- 18 0 0 0", "18 - 18 18 18", "0 18 - 0 0", "0 18 0 - 0", "0 18 0 0 -")
APART = "GPU 2: 0 NVLinks to GPU 0, GPU 1, GPU 3; expected 18, as between most GPUs here"
MOST = {0: "NVIDIA H200", 1: "NVIDIA H200", 2: "NVIDIA H200", 3: "NVIDIA H200"}


@pytest.mark.parametrize(
    ("rows", "models", "verdict", "words"),
    [
        ((*CUBE_MESH, *(f"{row[8:]} {row[:7]}" for row in CUBE_MESH)), MOST, None, ""),
        (RING, MOST, None, ""),
        (BRIDGES, MOST, None, ""),
        (BRIDGE, MOST, None, ""),
        (HALF_APART, MOST, None, ""),
        (A_MINORITY_ALIKE, MOST, None, ""),
        (ONE_APART, MOST, Verdict.FAIL, APART),
        (ONE_APART, {}, Verdict.CONCERN, f"{APART}, unless it is of another model"),
        (ONE_APART, MOST | {2: "NVIDIA T1000"}, None, ""),  # a display card has no NVLink
        (ONE_WITH_FEWER, {}, Verdict.FAIL, "GPU 2: 17 NVLinks to GPU 0, GPU 1, GPU 3; expected 18, as between most"),
    ],
)
def test_a_gpu_that_fewer_nvlinks_join_than_most(
    rows: tuple[str, ...], models: dict[int, str], verdict: Verdict | None, words: str
) -> None:
    findings = findings_of(rows, models)
    assert [finding.verdict for finding in findings] == [verdict] * (verdict is not None), findings
    assert all(finding.message.startswith(words) for finding in findings), findings


def test_two_gpus_that_fewer_nvlinks_join_are_both_named() -> None:
    rows = tuple(
        " ".join("-" if to == of else "17" if {of, to} == {2, 5} else "18" for to in range(8)) for of in range(8)
    )
    lines = [line for finding in findings_of(rows, {}) for line in finding.message.splitlines()]
    assert lines == [
        f"GPU {number}: 17 NVLinks to GPU {to}; expected 18, as between most GPUs here"
        for number, to in ((2, 5), (5, 2))
    ]


def findings_of(rows: tuple[str, ...], models: dict[int, str]) -> list[Result]:
    """The finding on GPUs joined by this many NVLinks, on any machine."""
    gpus = [
        {
            **GPU,
            "index": number,
            "nvlinks_to": {f"GPU {to}": int(links) for to, links in enumerate(row.split()) if links != "-"},
            **({"name": models[number]} if number in models else {}),
        }
        for number, row in enumerate(rows)
    ]
    findings = evaluated("gpu.nvlink_active", "someone.else", gpus=gpus).by_verdict
    return [finding for finding in findings if finding.verdict in (Verdict.FAIL, Verdict.CONCERN)]
