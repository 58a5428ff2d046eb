"""Disks in lsblk's listings, and used together in those of `zpool status` and `multipath -ll`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import evaluated, observed_in, output_of, written

CHECK = "storage.disk_errors"
TABLE = """\
NAME        MODEL                              SIZE TYPE MOUNTPOINT
nvme0n1     Amazon Elastic Block Store         500G disk
├─nvme0n1p1                                  499.9G part /
└─nvme0n1p15                                    99M part /boot/efi
nvme1n1     Amazon EC2 NVMe Instance Storage   3.5T disk
└─md0                                            7T raid0 /scratch
nvme2n1     Amazon EC2 NVMe Instance Storage   3.5T disk {mount}
"""
PLAIN = """\
NAME         MAJ:MIN RM   SIZE RO TYPE  MOUNTPOINTS
loop0          7:0    0  63.9M  1 loop  /snap/core20/2318
nvme0n1      259:0    0   500G  0 disk
├─nvme0n1p1  259:1    0 499.9G  0 part  /snap
│                                       /
└─nvme0n1p15 259:2    0    99M  0 part  /boot/efi
nvme1n1      259:3    0     0B  0 disk
"""
PAIRS = """\
NAME="nvme0n1" TYPE="disk" SIZE="500G" MODEL="Amazon Elastic Block Store" MOUNTPOINT="" PKNAME=""
NAME="nvme0n1p1" TYPE="part" SIZE="499G" MODEL="" MOUNTPOINT="/" PKNAME="nvme0n1"
NAME="nvme1n1" TYPE="disk" SIZE="3.5T" MODEL="Amazon EC2 NVMe Instance Storage" MOUNTPOINT="" PKNAME=""
"""
JSON = {
    "blockdevices": [
        {
            "name": "nvme0n1",
            "size": "500G",
            "model": "Amazon Elastic Block Store",
            "mountpoints": [None],
            "children": [{"name": "nvme0n1p1", "size": "499G", "mountpoints": ["/"]}],
        },
        {"name": "nvme1n1", "size": "3.5T", "model": "Amazon EC2 NVMe Instance Storage", "mountpoints": [None]},
    ]
}


def disks(text: str) -> dict[str, Any]:
    return {disk["name"]: disk for controller in output_of(text)["nvme"]["controllers"] for disk in controller["disks"]}


def verdicts_of(file: Path) -> list[Verdict]:
    """Findings about local disks, ignoring missing evidence."""
    result = evaluated(file)["storage.nvme_scratch"]
    return [finding.verdict for finding in result.by_verdict if finding.verdict in (Verdict.FAIL, Verdict.CONCERN)]


def test_a_table_shows_where_a_disk_and_what_is_made_of_it_are_mounted() -> None:
    by_name = disks(TABLE.format(mount="/data"))
    assert by_name["nvme0n1"]["mounted"] == ["/", "/boot/efi"]
    assert by_name["nvme0n1"]["used_by"] == ["nvme0n1p1", "nvme0n1p15"]
    assert (by_name["nvme1n1"]["used_by"], by_name["nvme1n1"]["mounted"]) == (["md0"], ["/scratch"])
    assert by_name["nvme2n1"] == {"name": "nvme2n1", "kib": 3758096384, "mounted": ["/data"], "used_by": []}


def test_a_table_without_models_shows_sizes_and_each_of_several_mounts() -> None:
    by_name = disks(PLAIN)
    assert by_name["nvme0n1"]["mounted"] == ["/", "/boot/efi", "/snap"]
    assert by_name["nvme1n1"]["kib"] == 0


@pytest.mark.parametrize("text", [TABLE.format(mount=""), PAIRS, json.dumps(JSON, indent=3)])
def test_a_local_disk_that_nothing_is_mounted_on_is_a_concern(text: str, tmp_path: Path) -> None:
    assert verdicts_of(written(tmp_path, lsblk=text) / "lsblk") == [Verdict.CONCERN]


def test_where_all_local_disks_are_mounted_nothing_is_said(tmp_path: Path) -> None:
    assert verdicts_of(written(tmp_path, lsblk=TABLE.format(mount="/data")) / "lsblk") == []


def test_a_disk_that_is_missing_among_all_devices_is_missing(tmp_path: Path) -> None:
    file = written(tmp_path, lsblk=TABLE.format(mount="/data")) / "lsblk"
    result = evaluated(file, "p5.48xlarge")["storage.nvme_scratch"]
    assert (result.verdict, "2 local NVMe disks; expected 8" in result.message) == (Verdict.FAIL, True)


def test_a_list_of_some_disks_says_nothing_of_the_others() -> None:
    text = TABLE.format(mount="/data").replace("part /\n", "part /mnt\n")
    assert read_text(text)[0] == {}
    assert "expected it of all devices" in read_text(text)[1][0]


def test_domains_that_grep_leaves_of_fi_info_are_those_of_its_command() -> None:
    text = "$ fi_info -p efa -t FI_EP_RDM | grep domain | sort -u\n    domain: rdmap79s0-rdm\n"
    assert "domain: rdmap79s0-rdm" in output_of(text)["libfabric"]["output"]
    assert "libfabric" not in read_text("$ fi_info | grep domain\n    domain: eth0\n")[0]


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


@pytest.mark.parametrize(
    "text",
    [
        POOL.format(state="ONLINE", disk=""),
        "all pools are healthy\n",
        "pool 'tank01' is healthy\n",
        MAP.format(name="mpatha (3600144f0c7)", first=UP, second=UP),
        MAP.format(name="mpatha", first=UP, second="active i/o pending"),  # its checker waits for the first answer
    ],
)
def test_healthy_pools_have_no_findings_and_no_gaps(text: str, tmp_path: Path) -> None:
    assert "nvme" in output_of(text)
    assert observed_in(tmp_path, text, CHECK) == []


@pytest.mark.parametrize(
    ("text", "verdict", "message"),
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
            (
                POOL.format(state="ONLINE", disk="").replace("No known data errors", errors),
                Verdict.CONCERN,
                f"tank01: it says {errors}",
            )
            for errors in (
                "Permanent errors have been detected in the following files:",
                "3 data errors, use '-v' for a list",
            )
        ),
        *(
            (
                POOL.format(state=state, disk=f"\t    sdb       {state:<8}     0     3  1.2K{notes}"),
                Verdict.CONCERN,
                "sdb: it says 0 read, 3 write and 1.2K checksum errors",
            )
            for state, notes in (("ONLINE", ""), ("ONLINE", "  (repairing)"), ("DEGRADED", "  too many errors"))
        ),
        *(
            (MAP.format(name=name, first=DOWN, second=UP), Verdict.CONCERN, "mpatha is degraded without sdaq")
            for name in ("mpatha (3600144f0c7)", "mpatha")
        ),
        (MAP.format(name="mpatha", first=DOWN, second=DOWN), Verdict.FAIL, "mpatha has failed without sdaq, sdcm"),
        *(
            (MAP.format(name="mpatha", first=first, second=UP), Verdict.CONCERN, "mpatha is degraded without sdaq")
            for first in ("failed i/o timeout", "active i/o timeout", "failed i/o pending", "failed undef")
        ),
        (
            GREPPED,
            Verdict.CONCERN,
            "multipath is degraded without sdaq, sde",
        ),
        ("| `- 3:0:1:1 sdf 8:80 active faulty running\n", Verdict.CONCERN, "multipath is degraded without sdf"),
    ],
)
def test_a_pool_without_a_disk_or_with_lost_data_is_said(
    text: str, verdict: Verdict, message: str, tmp_path: Path
) -> None:
    assert observed_in(tmp_path, text, CHECK) == [(verdict, message)]
