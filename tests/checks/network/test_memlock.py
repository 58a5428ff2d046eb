"""How much memory may be locked on nodes with EFA, or that should have EFA."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.checks.network.efa import evaluated, output_of

FAIL, NA, PASS, INCOMPLETE = Verdict.FAIL, Verdict.NOT_APPLICABLE, Verdict.PASS, Verdict.INCOMPLETE
P5 = "p5.48xlarge"


@pytest.mark.parametrize(
    ("count", "memlock", "expect", "verdict", "message"),
    [
        (2, None, 2, PASS, ""),
        (2, 65536, 2, FAIL, ""),
        (0, 65536, 2, FAIL, ""),  # expected by type
        (2, 65536, 0, FAIL, ""),
        (0, 65536, 0, NA, "no EFA, InfiniBand or RoCE device on this node"),
        (2, 16 * 2**30, 2, PASS, ""),
    ],
)
def test_memory_may_be_locked_where_there_is_efa(
    count: int, memlock: int | None, expect: int, verdict: Verdict, message: str
) -> None:
    limits = {"login": {"memlock": memlock}, "daemons": {}}
    result = evaluated("network.memlock", output_of(count=count, limits=limits), expect={"efa": expect})
    assert result.verdict is verdict, result.message
    assert message in result.message


def test_a_daemon_whose_limits_cannot_be_read_hides_nothing_of_a_login() -> None:
    limits = {"login": {"memlock": 65536}, "daemons": {"slurmd": {"error": "EACCES"}}}
    result = evaluated("network.memlock", output_of(count=2, limits=limits), expect={"efa": 2})
    assert result.verdict is FAIL
    assert "memlock is 64 KiB for a login" in result.message
    assert "could not be read (EACCES)" in result.message


def test_daemons_that_are_not_understood_hide_nothing_of_a_login() -> None:
    for daemons in ({"error": "EACCES"}, None, "slurmd"):
        limits = {"login": {"memlock": 65536}, "daemons": daemons}
        result = evaluated("network.memlock", output_of(count=2, limits=limits), expect={"efa": 2})
        assert result.verdict is FAIL
        assert "memlock is 64 KiB for a login" in result.message


@pytest.mark.parametrize(("expect", "verdict"), [({"efa": 2}, FAIL), ({"efa": 0}, INCOMPLETE), ({}, FAIL)])
def test_memory_may_be_locked_where_devices_are_due_that_were_not_captured(
    expect: dict[str, int], verdict: Verdict
) -> None:
    limits = Collected(Status.READ, {"login": {"memlock": 65536}, "daemons": {}})
    result = evaluated("network.memlock", NodeEvidence("n0", {"limits": limits}), expect=expect, instance_type=P5)
    assert result.verdict is verdict, result.message
