"""Links that the kernel log reports lost, compared with the interfaces' current state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.evidence.kernel_log.logged import node, verdict


@pytest.mark.parametrize(
    ("flags", "times", "expected"),
    [(2, 1, Verdict.PASS), (3, 1, Verdict.CONCERN), (2, 99, Verdict.CONCERN), (None, 1, Verdict.CONCERN)],
)
def test_a_link_that_somebody_switched_off_is_no_lost_one(flags: int | None, times: int, expected: Verdict) -> None:
    lines = ["ice 0000:31:00.0 eno1: NIC Link is Up", "ice 0000:31:00.0 eno1: NIC Link is Down"] * times
    interface = {"name": "eno1", "driver": "ice", "mtu": 1500, "state": "down", "flags": flags, "carrier": None}
    interfaces = Collected(Status.READ, {"names": ["eno1"], "physical": [interface] if flags else []})
    of = node(*((float(at), line) for at, line in enumerate(lines)))
    evidence = replace(of.evidence, collectors={**of.evidence.collectors, "interfaces": interfaces})
    assert verdict("network.link_flaps", replace(of, evidence=evidence)) is expected
