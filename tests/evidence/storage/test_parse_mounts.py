"""Mounted file systems listed by commands, parsed into the probe's collector."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.storage import parse as fstab
from clusterproof.plugins.evidence.storage import parse_findmnt as findmnt
from clusterproof.plugins.evidence.storage import parse_mounts as mounts
from tests.builders.evaluated import expect
from tests.builders.samples import sample
from tests.faults.captured_fault import evaluated
from tests.testbed.outputs import DF


def mounted(collected: Any) -> dict[str, dict[str, Any]]:
    return {mount["path"]: mount for mount in collected["mounts"]["mounts"]}


def test_df_shows_sizes_without_what_is_reserved_for_root() -> None:
    root = mounted(mounts.read_df(DF))["/"]
    assert (root["total_kib"], root["free_kib"]) == (59000000 + 144056560, 144056560)
    assert (root["type"], root["source"], root["alive"]) == ("ext4", "/dev/root", "yes")


@pytest.mark.parametrize("size", ["146G  59G  87G", "149504M 60416M 89088M", "153092096K 61865984K 91226112K"])
def test_sizes_with_a_unit_are_the_same_in_each(size: str) -> None:
    text = f"Filesystem  Size Used Avail Use% Mounted on\n/dev/root {size} 41% /\ntmpfs 1G 0 1G 0% /run\n"
    root = mounted(mounts.read_df(text))["/"]
    assert (root["total_kib"], root["free_kib"]) == (146 * 2**20, 87 * 2**20)


def test_a_long_name_alone_in_its_line_belongs_to_the_next() -> None:
    assert mounted(mounts.read_df(sample("host/insights-df-L8.txt").text))["/"]["inodes_free"] == 6150117


def test_df_of_one_path_says_nothing_of_others() -> None:
    by_path = mounted(mounts.read_df("Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/root 10 5 5 50% /\n"))
    assert by_path["/"]["total_kib"] == 10
    assert by_path["/dev/shm"]["type"] == mounts.UNKNOWN


@pytest.mark.parametrize("path", ["/media/me/IMAGE", "/run/media/me/IMAGE", f"/data/docker/containers/{'0b' * 32}/shm"])
def test_df_shows_nothing_of_what_a_user_or_a_container_has_mounted(path: str) -> None:
    assert path not in mounted(mounts.read_df(f"{DF}/dev/loop3 ext4 1000 1000 0 100% {path}\n"))


def test_df_shows_what_root_has_mounted_below_media() -> None:
    shown = mounted(mounts.read_df("df: /media/nas: Stale file handle\n"))
    assert shown["/media/nas"]["alive"] == "ESTALE"


@pytest.mark.parametrize(
    "line",
    [
        "10.1.2.3@tcp:/abcde on /fsx type lustre (rw,noatime,flock)",
        "10.1.2.3@tcp:/abcde /fsx lustre rw,noatime,flock 0 0",
        "36 25 0:31 / /fsx rw,noatime,flock shared:1 - lustre 10.1.2.3@tcp:/abcde rw",
        "TARGET SOURCE FSTYPE OPTIONS\n├─/fsx 10.1.2.3@tcp:/abcde lustre rw,noatime,flock",
    ],
)
def test_a_mount_is_the_same_in_every_list(line: str) -> None:
    (form,) = [form for form in (*mounts.FORMS, *findmnt.FORMS, *fstab.FORMS) if form.recognises(line)]
    fsx = mounted(form.read(line))["/fsx"]
    assert fsx == {"path": "/fsx", "type": "lustre", "source": "10.1.2.3@tcp:/abcde", "options": "rw,noatime,flock"}


def test_what_fstab_asks_for_is_mounted_where_a_list_of_all_mounts_says_so() -> None:
    wanted: Any = fstab.read_fstab(
        "LABEL=root / ext4 defaults 0 1\n10.1.2.3@tcp:/abcde /fsx lustre noatime,_netdev 0 0\n"
    )
    everything: Any = mounts.read_df(DF)
    completed: Any = fstab.completed({**everything["mounts"], **wanted["mounts"]})
    assert {entry["path"]: entry["mounted"] for entry in completed["fstab"]} == {"/": True, "/fsx": False}
    assert "paths" not in completed


@pytest.mark.parametrize("title", ["# /etc/fstab: static file system information.\n", ""])
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("beegfs_nodev", "beegfs"),
        ("10.1.2.3,10.1.2.4/default", "wekafs"),
        ("gpfs0", "gpfs"),
        ("//nas/share", "cifs"),
        ("admin@b3acfc0d.cephfs=/", "ceph"),
        ("sshfs#me@box:", "fuse"),
        ("tank/scratch", "zfs"),
        ("/data/scratch", "none"),  # bind
        ("hostshare", "9p"),
        ("[fd00::1]:/export", "nfs4"),
    ],
)
def test_fstab_has_each_file_system_whatever_its_source_looks_like(title: str, source: str, kind: str) -> None:
    text = f"{title}LABEL=root / ext4 defaults 0 1\n{source} /scratch {kind} noatime,_netdev 0 0\n"
    collected: Any = fstab.read_fstab(text)
    assert [(row["path"], row["type"]) for row in collected["mounts"]["fstab"]] == [("/", "ext4"), ("/scratch", kind)]


@pytest.mark.parametrize("branch", ["├─", ""])
def test_a_folder_that_somebody_mounts_elsewhere_is_no_entry_of_fstab(branch: str) -> None:
    text = f"""\
TARGET SOURCE FSTYPE OPTIONS
/ /dev/nvme0n1p1 ext4 rw,relatime
{branch}/home/me/clear /home/me/cipher fuse.gocryptfs rw,nosuid,nodev
"""
    values, problems = read_text(text)
    collected: Any = values["mounts"]
    assert not problems
    assert "fstab" not in collected


def test_beside_a_part_of_the_mounts_nobody_knows_what_fstab_lacks() -> None:
    wanted: Any = fstab.read_fstab("LABEL=root / ext4 defaults 0 1\n")
    part: Any = mounts.read_mount("/dev/root on / type ext4 (rw)\n")
    completed: Any = fstab.completed({**part["mounts"], **wanted["mounts"]})
    assert "mounted" not in completed["fstab"][0]


LISTED = "36 25 259:1 / / rw - ext4 /dev/root rw\n"
OF_ROOT, OF_A_USER = (
    f"37 36 0:31 / /fsx rw - {kind} rw" for kind in ("lustre 10.1.2.3@tcp:/abcde", "fuse.sshfs me@box:/x")
)


@pytest.mark.parametrize(
    ("beside", "verdict", "message"),
    [
        (LISTED + OF_ROOT, Verdict.FAIL, "/fsx: lustre from 10.1.2.3@tcp:/abcde says ESTALE; expected an answer"),
        ("10.1.2.3@tcp:/abcde /fsx lustre noatime,_netdev 0 0\n", Verdict.FAIL, "says ESTALE; expected an answer"),
        (LISTED + OF_A_USER + ",user_id=1000", Verdict.PASS, ""),
        ("", Verdict.INCOMPLETE, "/fsx: whether it answers could not be read (ESTALE)"),
    ],
    ids=["a list of mounts has it", "fstab has it", "a user has mounted it", "df alone names it"],
)
def test_a_file_system_that_df_cannot_ask_does_not_answer(beside: str, verdict: Verdict, message: str) -> None:
    capture = sample("host/hyperpod-df-h-lustre.txt").text
    lines = ["df: /fsx: Stale file handle" if line.endswith(" /fsx") else line for line in capture.split("\n")]
    expect(evaluated({"df.txt": "\n".join(lines), "mounts.txt": beside})["storage.mounts_alive"], verdict, message)


ROOT = "/dev/nvme0n1p1 on / type ext4 (ro,relatime{})\nproc on /proc type proc (rw)\ntmpfs on /run type tmpfs (rw)\n"
FSTAB = "/dev/nvme0n1p1 / ext4 {} 0 1\n/dev/nvme1n1 /scratch ext4 defaults,nofail 0 2\n"


@pytest.mark.parametrize(
    ("errors", "fstab", "verdict", "message"),
    [
        (
            ",errors=remount-ro",
            "",
            Verdict.CONCERN,
            "/: ext4 read-only, which errors=remount-ro makes it after an error",
        ),
        ("", "", Verdict.INCOMPLETE, "/: ext4 read-only, and mounts: fstab was not reported; expected"),
        (",errors=remount-ro", FSTAB.format("defaults"), Verdict.FAIL, "ext4 read-only; expected read-write, as in"),
        (",errors=remount-ro", FSTAB.format("ro"), Verdict.PASS, ""),
    ],
)
def test_a_root_that_is_read_only_is_said_with_and_without_fstab(
    errors: str, fstab: str, verdict: Verdict, message: str
) -> None:
    files = {"mount.txt": ROOT.format(errors), **({"fstab": fstab} if fstab else {})}
    expect(evaluated(files)["storage.mounts_writable"], verdict, message)
