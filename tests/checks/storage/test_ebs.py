"""Results on EBS volumes that were driven beyond their limits."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.index import make_index, of_occasions
from tests.checks.network.given import verdict

PASS, CONCERN, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.INCOMPLETE
NAMES = ("volume_iops_us", "volume_throughput_us", "instance_iops_us", "instance_throughput_us")
HOUR_S = 3600.0  # six times 600 s


def volume(name: str = "nvme0", **changed: object) -> dict[str, Any]:
    """A volume that no limit throttled, or with these changes."""
    return {"name": name, "serial": "vol0546d3c3b0af0bf6d", **dict.fromkeys(NAMES, 0), **changed}


def with_volumes(*volumes: dict[str, Any], uptime_s: float = HOUR_S) -> dict[str, Any]:
    """A node with these EBS volumes."""
    return {"ebs": {"volumes": list(volumes)}, "boot": {"uptime_s": uptime_s}}


@pytest.mark.parametrize(
    ("data", "says", "words"),
    [
        (with_volumes(volume()), PASS, ""),
        (with_volumes(volume(volume_iops_us=300_000_000)), PASS, ""),
        (
            with_volumes(volume(volume_iops_us=300_600_000)),
            CONCERN,
            "nvme0 (vol-0546d3c3b0af0bf6d): above the volume's IOPS for 301 s, 50.1 s in 600 s; expected at most 50 s",
        ),
        (
            with_volumes(volume(), volume("nvme1", instance_iops_us=10**9)),
            CONCERN,
            "nvme1 (vol-0546d3c3b0af0bf6d): above the",
        ),
        (with_volumes(volume(volume_throughput_us=50_000_000), uptime_s=60.0), PASS, ""),  # too short for an average
        (
            with_volumes(volume(volume_throughput_us=51_000_000), uptime_s=60.0),
            CONCERN,
            "the volume's throughput for 51 s",
        ),
        (with_volumes(volume(instance_iops_us={"error": "ENOTSUP", "text": ""})), INCOMPLETE, "ENOTSUP"),
        (with_volumes(volume(volume_iops_us="many")), INCOMPLETE, "not understood"),
        (with_volumes(), INCOMPLETE, "no volume of EBS was reported"),
        ({"boot": {"uptime_s": HOUR_S}}, INCOMPLETE, "ebs: was not requested"),
    ],
)
def test_time_above_a_limit_is_a_concern_where_there_is_much_of_it(
    data: dict[str, Any], says: Verdict, words: str
) -> None:
    result = verdict("storage.ebs_limits", data)
    assert result.verdict is says, result.message
    assert words in result.message


def test_what_jobs_read_and_write_keeps_no_node_from_a_job() -> None:
    assert "storage.ebs_limits" not in of_occasions(make_index(), ("prolog", "epilog"))
