"""What `zpool status` and `multipath -ll` show of disks that are used together."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import evaluated, output_of, written

POOL = """\
  pool: tank01
 state: {state}
status: One or more devices are faulted in response to persistent errors.
  scan: resilvered 10.9T in 1 days 11:05:07 with 0 errors on Mon Jan 10 11:34:02 2022
config:

\tNAME          STATE     READ WRITE CKSUM
\ttank01        {state:<8}     0     0     0
\t  raidz2-0    {state:<8}     0     0     0
\t    sda       ONLINE       0     0     0
{disk}
errors: No known data errors
"""
FAULTED = "\t    sdb       {}      0     3    12  too many errors"
MAP = """\
{name} dm-3 IBM,2810XIV
size=16G features='1 queue_if_no_path' hwhandler='0' wp=rw
`-+- policy='round-robin 0' prio=1 status=active
  |- 6:0:4:13  sdaq 66:160  {first} running
  `- 19:0:4:13 sdcm 69:160  {second} running
"""
GREPPED = """\
$ sudo multipath -ll | grep fault
  |- 6:0:4:13  sdaq 66:160  failed faulty running
  `- 6:0:0:34  sde  8:64    failed faulty running
"""
UP, DOWN = "active ready ", "failed faulty"


def found(folder: Path, text: str) -> list[tuple[Verdict, str]]:
    """What is found of disks, and not what is missing."""
    result = evaluated(written(folder, disks=text) / "disks")["storage.disk_errors"]
    return [
        (one.verdict, one.message.partition(";")[0])
        for one in result.by_verdict or (result,)
        if one.verdict in (Verdict.FAIL, Verdict.CONCERN)
    ]


@pytest.mark.parametrize(
    "text",
    [
        POOL.format(state="ONLINE", disk=""),
        "all pools are healthy\n",
        "pool 'tank01' is healthy\n",
        MAP.format(name="mpatha (3600144f0c7)", first=UP, second=UP),
    ],
)
def test_of_healthy_pools_nothing_is_said_and_nothing_is_unknown(text: str, tmp_path: Path) -> None:
    assert "nvme" in output_of(text)
    assert found(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        *(
            (
                POOL.format(state="DEGRADED", disk=FAULTED.format(state)),
                Verdict.CONCERN,
                "tank01 is degraded without sdb",
            )
            for state in ("FAULTED", "UNAVAIL", "REMOVED", "OFFLINE")
        ),
        (POOL.format(state="DEGRADED", disk=""), Verdict.CONCERN, "tank01 is degraded without a disk"),
        (
            POOL.format(state="DEGRADED", disk="").partition("status")[0],
            Verdict.CONCERN,
            "tank01 is degraded without a disk",
        ),
        (POOL.format(state="SUSPENDED", disk=FAULTED.format("FAULTED")), Verdict.FAIL, "tank01 has failed without sdb"),
        (POOL.format(state="UNAVAIL", disk=""), Verdict.FAIL, "tank01 has failed"),
        *(
            (MAP.format(name=name, first=DOWN, second=UP), Verdict.CONCERN, "mpatha is degraded without sdaq")
            for name in ("mpatha (3600144f0c7)", "mpatha")
        ),
        (MAP.format(name="mpatha", first=DOWN, second=DOWN), Verdict.FAIL, "mpatha has failed without sdaq, sdcm"),
        (
            GREPPED,
            Verdict.CONCERN,
            "multipath is degraded without sdaq, sde",
        ),
        ("| `- 3:0:1:1 sdf 8:80 active faulty running\n", Verdict.CONCERN, "multipath is degraded without sdf"),
    ],
)
def test_a_pool_without_a_disk_is_said(text: str, verdict: Verdict, words: str, tmp_path: Path) -> None:
    assert found(tmp_path, text) == [(verdict, words)]
