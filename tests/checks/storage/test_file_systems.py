"""Which file systems need free space, and how much; nodes whose Lustre client reports nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import result_of
from tests.captures.captured import evaluated, written

PASS, CONCERN, FAIL, INCOMPLETE = Verdict.PASS, Verdict.CONCERN, Verdict.FAIL, Verdict.INCOMPLETE
FULL = {
    "path": "/opt/sagemaker",
    "type": "ext4",
    "source": "/dev/nvme1n1",
    "options": "rw,relatime",
    "alive": "yes",
    "total_kib": 100_000,
    "free_kib": 0,
    "inodes": 1000,
    "inodes_free": 900,
}
NFS = {"path": "/home", "type": "nfs4", "source": "fs-1:/home"}
NONE = {"total_kib": None, "free_kib": None, "inodes": None, "inodes_free": None}


def verdict_of(*mounts: dict[str, Any], occasion: str = "preflight") -> Result:
    """The verdict on the free space of a node with these mounts."""
    collectors = {"mounts": Collected(Status.READ, {"mounts": list(mounts), "fstab": [], "passed_over": 0})}
    return result_of("storage.space", NodeEvidence("node0", collectors), occasion=occasion)


@pytest.mark.parametrize(
    ("mount", "verdict"),
    [
        ({}, FAIL),
        ({"path": "/opt/dlami/nvme", "type": "xfs"}, FAIL),
        ({"path": "/var/lib/docker"}, FAIL),
        (NFS, FAIL),
        ({**NFS, "type": "lustre"}, FAIL),
        ({"free_kib": 2_000}, FAIL),
        ({"free_kib": 2_001}, CONCERN),
        ({"free_kib": 10_001}, PASS),
        ({"free_kib": 50_000, "inodes_free": 0}, FAIL),
        ({"free_kib": 50_000, "inodes_free": 90}, CONCERN),
        ({"free_kib": 50_000, "inodes": 0, "inodes_free": 0}, PASS),  # it creates them as needed
        ({"total_kib": 0}, PASS),
        ({"options": "ro,relatime"}, PASS),  # nobody can write to it
        ({"path": "/boot/efi", "type": "vfat"}, PASS),  # jobs do not write to it
        ({"path": "/"}, PASS),  # evaluated by another check
        ({"path": "/dev/shm", "type": "tmpfs"}, PASS),
        ({"path": "/run/lock", "type": "tmpfs"}, PASS),  # 5 MiB on Debian and Ubuntu, for any user to fill
        ({**NFS, "alive": "hung", **NONE}, PASS),  # likewise
        ({"total_kib": {"error": "EIO", "text": ""}}, INCOMPLETE),
    ],
)
def test_a_file_system_that_jobs_write_to_has_room(mount: dict[str, Any], verdict: Verdict) -> None:
    result = verdict_of({**FULL, **mount})
    assert result.verdict is verdict, result.message


def test_a_full_file_system_outranks_an_unknown_one() -> None:
    assert verdict_of({**FULL, "path": "/a", "free_kib": {"error": "EIO", "text": ""}}, FULL).verdict is FAIL


def test_a_network_file_system_that_is_mounted_twice_is_one_finding() -> None:
    message = verdict_of({**FULL, **NFS}, {**FULL, **NFS, "path": "/fsx/home"}).message
    assert message == "/home (nfs4) has 100 % in use; expected less than 98 % in use"


@pytest.mark.parametrize("is_reversed", [False, True])
def test_two_file_systems_of_one_source_are_two_findings(is_reversed: bool) -> None:
    beegfs = {"type": "beegfs", "source": "beegfs_nodev", "options": "rw,relatime"}
    full = {**FULL, **beegfs, "path": "/scratch"}
    free = {**FULL, **beegfs, "path": "/home", "total_kib": 200_000, "free_kib": 180_000}
    result = verdict_of(*((free, full) if is_reversed else (full, free)))
    assert result.message == "/scratch (beegfs) has 100 % in use; expected less than 98 % in use"


@pytest.mark.parametrize(
    "kind", ["nfs4", "wekafs", "panfs", "pvfs2", "dvs", "gfs2", "ocfs2"]
)  # the last two of one disk
def test_before_a_job_only_what_is_the_nodes_own_has_to_have_room(kind: str) -> None:
    assert verdict_of({**FULL, **NFS, "type": kind}, occasion="prolog").verdict is PASS
    assert verdict_of(FULL, occasion="prolog").verdict is FAIL


DF = """\
Filesystem      Size  Used Avail Use% Mounted on
/dev/root        97G   25G   72G  26% /
gpfs-data       400T  400T     0 100% /gpfs
"""
MOUNTINFO = """\
29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard
97 29 0:51 / /gpfs rw,relatime shared:56 - gpfs gpfs-data rw
"""


@pytest.mark.parametrize(
    ("files", "full"),
    [
        ({"df-h.txt": DF}, "/gpfs has 100 % in use; expected less than 98 % in use"),
        ({"df-h.txt": DF, "mountinfo.txt": MOUNTINFO}, "/gpfs (gpfs) has 100 % in use; expected less than 98 % in use"),
    ],
)
def test_df_alone_shows_that_a_file_system_is_full(tmp_path: Path, files: dict[str, str], full: str) -> None:
    results = evaluated(written(tmp_path, **files))
    assert results["storage.space"].message == full
    alive = results["storage.mounts_alive"]
    assert (alive.verdict, alive.message) == (
        INCOMPLETE,
        "/dev/shm: whether it answers is not in what was captured",
    )
    assert not [result.check for result in results.values() if "UNCOLLECTED" in result.message]


WITHOUT_MODULE = Collected(Status.ABSENT, detail="no Lustre client: no module lustre is loaded")


def health(*mounts: dict[str, Any]) -> Result:
    """The result on a node without the module that mounts these."""
    collectors = {"lustre": WITHOUT_MODULE, "mounts": Collected(Status.READ, {"mounts": list(mounts)})}
    return result_of("storage.lustre_health", NodeEvidence("gpu001", collectors))


def mount(path: str, kind: str) -> dict[str, Any]:
    return {"path": path, "source": "fs", "type": kind, "options": "rw", "status": "ok"}


def test_a_node_that_mounts_no_lustre_needs_no_client() -> None:
    result = health(mount("/", "ext4"))
    assert (result.verdict, result.message) == (Verdict.NOT_APPLICABLE, "no Lustre file system is mounted")


def test_a_mount_without_a_client_that_reports_it_is_incomplete() -> None:
    result = health(mount("/fsx", "lustre"))
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message == "/fsx is Lustre; lustre: not on this node (no Lustre client: no module lustre is loaded)"


@pytest.mark.parametrize(
    "check", ["lustre_client_cache", "lustre_health", "lustre_clients", "lustre_ost_fill", "lustre_mdt_inodes"]
)
def test_nothing_is_called_lustre_of_a_node_that_reports_neither_mounts_nor_a_client(check: str) -> None:
    result = result_of(f"storage.{check}", NodeEvidence("gpu001", {}))
    assert result.verdict is Verdict.INCOMPLETE
    assert "is Lustre" not in result.message
