"""Results on packets beyond an instance's allowances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.checks.network.given import verdict

PASS, CONCERN, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.INCOMPLETE
COUNTERS = ("bw_in", "bw_out", "pps", "conntrack", "linklocal")
DAY_S = 86400.0  # 288 times 300 s
NONE = [0, 0]


def node(seconds: float = 0.4, uptime_s: float = DAY_S, **looks: Sequence[object]) -> dict[str, Any]:
    """A node with these counters of its only ENA interface in two samples, and zeros for the others."""
    counters = {f"{name}_allowance_exceeded": looks.get(name, NONE) for name in COUNTERS}
    return {
        "ena_counters": {"seconds": seconds, "interfaces": [{"name": "ens5", "counters": counters}]},
        "boot": {"uptime_s": uptime_s},
    }


@pytest.mark.parametrize(
    ("data", "says", "message"),
    [
        (node(), PASS, ""),
        (node(bw_in=[11072, 11072]), PASS, ""),  # as in a capture by AWS's own agent: bursts within a day
        (node(bw_in=[11072, 11252]), PASS, ""),
        (node(bw_in=[5, 186]), CONCERN, "ens5: bw_in_allowance_exceeded 181 in 0.4 s; expected at most 180 in 300 s"),
        (node(pps=[0, 320]), PASS, ""),
        (node(conntrack=[0, 101]), CONCERN, "conntrack_allowance_exceeded 101 in 0.4 s; expected at most 100"),
        (node(600.0, bw_out=[0, 200]), PASS, ""),  # the same number in twice the time
        (node(linklocal=[28_800, 28_800]), PASS, ""),
        (
            node(linklocal=[28_801, 28_801]),
            CONCERN,
            "linklocal_allowance_exceeded 28801 since boot, 100.003 in 300 s; expected at most 100 in 300 s",
        ),
        (node(uptime_s=60.0, linklocal=[100, 100]), PASS, ""),  # a node that has just booted has no average yet
        (node(uptime_s=60.0, linklocal=[101, 101]), CONCERN, "101 since boot"),
        (node(conntrack=[9, 3]), INCOMPLETE, "ens5: conntrack_allowance_exceeded went backwards, from 9 to 3"),
        (node(pps=[{"error": "EIO", "text": "x"}, 10**9]), INCOMPLETE, "exceeded 1000000000 since boot"),
        (node(pps=[10**9, 7]), INCOMPLETE, "went backwards"),
        (node(pps=[10**9, {"error": "ENODEV", "text": "x"}]), INCOMPLETE, "exceeded 1000000000 since boot"),
        (node(pps=[0, {"error": "ENODEV", "text": "x"}]), INCOMPLETE, "ens5: pps_allowance_exceeded"),
        (node(pps=[10**9]), INCOMPLETE, "exceeded 1000000000 since boot"),
        (node(pps=[0]), INCOMPLETE, "ens5: pps_allowance_exceeded was read only once"),
        (node(bw_in=[5, 186]) | {"boot": {}}, INCOMPLETE, "bw_in_allowance_exceeded 181 in 0.4 s"),
        (node(conntrack=[9, 3], pps=[0, 10_000]), INCOMPLETE, "went backwards"),
        (node(pps=["many", 3]), INCOMPLETE, "not understood"),
        (node(0.0), INCOMPLETE, "looked at 0 s apart"),
        (node() | {"ena_counters": {"seconds": 0.4, "interfaces": []}}, INCOMPLETE, "no interface of ENA was reported"),
        (node() | {"boot": {}}, INCOMPLETE, "uptime_s was not reported"),
    ],
)  # fmt: skip
def test_what_goes_over_an_allowance_at_once_or_on_average_is_a_concern(
    data: dict[str, Any], says: Verdict, message: str
) -> None:
    result = verdict("network.ena_allowance", data)
    assert result.verdict is says, result.message
    assert message in result.message


def test_a_recording_without_these_counters_is_no_pass() -> None:
    assert verdict("network.ena_allowance", {"boot": {"uptime_s": DAY_S}}).verdict is INCOMPLETE
