"""What InfiniBand and RoCE ports count, against the time in which they counted it."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.checks.network.given import mlx5, port, rdma, verdict

CONCERN, PASS, INCOMPLETE, NA = Verdict.CONCERN, Verdict.PASS, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
UNREAD = {"error": "EIO", "text": ""}


@pytest.mark.parametrize(
    ("counters", "uptime_s", "says"),
    [
        ({}, 86400.0, NA),
        ({"link_downed": 4}, 600.0, PASS),
        ({"link_downed": 5}, 600.0, CONCERN),
        ({"link_downed": 5}, 30 * 86400.0, PASS),
        ({"symbol_errors": 120}, 60.0, PASS),
        ({"symbol_errors": 121}, 60.0, CONCERN),
        ({"symbol_errors": 2880}, 86400.0, PASS),
    ],
)
def test_link_errors_are_held_against_the_time_since_boot(
    counters: dict[str, int], uptime_s: float, says: Verdict
) -> None:
    collectors = rdma(mlx5(0, port(**counters))) | {"boot": {"uptime_s": uptime_s}}
    assert verdict("network.ib_errors", collectors).verdict is says


@pytest.mark.parametrize(
    ("check", "counters", "uptime_s", "says"),
    [
        ("ib_errors", {"port_rcv_errors": 14, "excessive_buffer_overrun_errors": 15}, 86400.0, PASS),
        ("ib_errors", {"excessive_buffer_overrun_errors": 3000}, 86400.0, CONCERN),
        ("ib_errors", {"port_rcv_errors": UNREAD, "link_error_recovery": 300}, 60.0, INCOMPLETE),
        ("ib_errors", {"roce_adp_retrans": 10**9}, 60.0, NA),
        ("ib_lost_packets", {"roce_adp_retrans": 3, "local_ack_timeout_err": 0}, 86400.0, PASS),
        ("ib_lost_packets", {"local_ack_timeout_err": 3601}, 60.0, CONCERN),
        ("ib_lost_packets", {"rp_cnp_ignored": 2 * 86400}, 86400.0, CONCERN),
        ("ib_lost_packets", {"port_xmit_discards": 360_000}, 60.0, PASS),
        ("ib_lost_packets", {"out_of_sequence": 10**12, "packet_seq_err": 0}, 86400.0, PASS),
        ("ib_lost_packets", {}, 86400.0, NA),
        ("ib_lost_packets", None, 86400.0, INCOMPLETE),
    ],
)
def test_what_a_port_counts_is_held_against_the_time_since_boot(
    check: str, counters: dict[str, Any] | None, uptime_s: float, says: Verdict
) -> None:
    collectors = rdma(mlx5(0, port(counters=counters))) | {"boot": {"uptime_s": uptime_s}}
    assert verdict(f"network.{check}", collectors).verdict is says


def test_each_counter_that_grew_too_fast_is_said() -> None:
    fast = {"packet_seq_err": 9_000_000, "roce_slow_restart": 90_000_000}
    unread = {"local_ack_timeout_err": UNREAD}
    result = verdict("network.ib_lost_packets", rdma(mlx5(0, port(counters=unread | fast))))
    message = " ".join(finding.message for finding in result.by_verdict if finding.verdict is CONCERN)
    assert "counted 9000000 reports of lost packets (packet_seq_err) since boot" in message
    assert "90000000 slow restarts after losses" in message
