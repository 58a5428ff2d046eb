"""Copies between GPUs over PCIe: a GPU is compared with GPUs of other nodes at the same distance from their peers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clusterproof.plugins.accept.verdicts import NodeVerdict
from clusterproof.plugins.core.evidence import NodeEvidence
from tests.accept.simulated import Nodes, outcomes_of, verdicts
from tests.checks.perf.given import FAR, NEAR, copying


@dataclass
class Copying(Nodes):
    """Nodes with GPUs at two sockets and these speeds of copies between them; on some nodes one GPU is slow."""

    far: float = NEAR
    slow: dict[str, int] = field(default_factory=dict)

    def _evidence(self, stage: str, node: str) -> NodeEvidence:
        made = super()._evidence(stage, node)
        copies = copying((0, 0, 1), node, self.far, self.slow.get(node)).collectors
        return NodeEvidence(node, collectors={**made.collectors, **copies}) if stage == "speed" else made


@pytest.mark.parametrize("far", [NEAR, FAR])
@pytest.mark.parametrize("limit", ["", "[limits]\nnodes_at_once = 1\n"])
@pytest.mark.parametrize("slow", [None, 0, 2])
def test_a_gpu_that_copies_slowly_is_found_wherever_it_is(
    slow: int | None, limit: str, far: float, tmp_path: Path
) -> None:
    outcomes = outcomes_of(tmp_path, Copying(far=far, slow={} if slow is None else {"n2": slow}), limit)
    assert verdicts(outcomes) == ({} if slow is None else {"n2": NodeVerdict.REJECTED})
    if slow is not None:
        name = f"GPU {slow}, GPU to GPU by nvbandwidth{': ' if far == NEAR else ', others'}"
        assert any(name in reason for reason in outcomes["n2"].reasons)
