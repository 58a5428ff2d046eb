"""df's output about space and inodes, in any of its units."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import evaluated, output_of, written

INODES = """\
Filesystem     Inodes IUsed IFree IUse% Mounted on
devtmpfs         789K   419  788K    1% /dev
/dev/sda2        1.6M  200K  1.4M   13% /
{data}
"""
SPACE = """\
Filesystem      Size  Used Avail Use% Mounted on
/dev/sda2        97G   29G   69G  30% /
{data}
"""
MOUNTED = (
    "$ mount\n/dev/sda2 on / type ext4 (rw)\n/dev/nvme1n1 on /data type ext4 (rw)\nudev on /dev type devtmpfs (rw)\n"
)


def findings_in(folder: Path, text: str, check: str = "storage.space") -> list[tuple[Verdict, str]]:
    """A check's message about df and mount."""
    result = evaluated(written(folder, session=f"$ df\n{text}{MOUNTED}") / "session")[check]
    return [(finding.verdict, finding.message.partition(";")[0]) for finding in result.by_verdict or (result,)]


@pytest.mark.parametrize(
    ("rows", "data"),
    [
        (INODES, "/dev/nvme1n1     1.6M  1.6M     8  100% /data"),
        (INODES, "/dev/nvme1n1     1.6M  1.6M     0  100% /data"),
        (INODES, "/dev/nvme1n1     1,6M  1,6M   1,1K  100% /data"),
        (INODES, "/dev/nvme1n1      16G   16G     8  100% /data"),
        (INODES, "/dev/nvme1n1   1638400 1638392     8  100% /data"),
        (INODES, "/dev/nvme1n1\n                 1.6M  1.6M     8  100% /data"),
        (
            INODES.replace("IUsed IFree IUse%", "Used Available Use%"),
            "/dev/nvme1n1   1638400 1638392     8  100% /data",
        ),
    ],
)
def test_a_file_system_without_inodes_is_full_in_every_unit(rows: str, data: str, tmp_path: Path) -> None:
    findings = findings_in(tmp_path, rows.format(data=data))
    assert (Verdict.FAIL, "/data (ext4) has 100 % of its inodes in use") in findings


def test_the_root_volume_is_held_to_its_inodes_too(tmp_path: Path) -> None:
    rows = INODES.replace("200K  1.4M   13%", "1.6M     8  100%")
    findings = findings_in(tmp_path, rows.format(data=""), "host.root_volume")
    assert (Verdict.FAIL, "/ has 100.0 % of its 1677721 inodes in use") in findings


@pytest.mark.parametrize("data", ["/dev/nvme1n1 1,1T 1,1T 0 100% /data", "/dev/nvme1n1 1.1T 1.1T 0 100% /data"])
def test_space_is_read_in_every_language(data: str, tmp_path: Path) -> None:
    assert (Verdict.FAIL, "/data (ext4) has 100 % in use") in findings_in(tmp_path, SPACE.format(data=data))


@pytest.mark.parametrize(
    ("rows", "data"),
    [(INODES, "/dev/nvme1n1 1.6Q 1.6Q 0 100% /data"), (SPACE, "/dev/nvme1n1 1'048'576 1'048'576 0 100% /data")],
)
def test_a_number_that_cannot_be_read_is_not_passed_over(rows: str, data: str, tmp_path: Path) -> None:
    assert Verdict.PASS not in [verdict for verdict, _ in findings_in(tmp_path, rows.format(data=data))]


def test_a_file_system_that_has_no_inodes_has_none() -> None:
    mounts = output_of(INODES.format(data="/dev/sda1 0 0 0 - /boot\nfs:/x - - - - /fsx"))["mounts"]["mounts"]
    assert [(mount["path"], mount["inodes"]) for mount in mounts if mount["path"] in ("/boot", "/fsx")] == [
        ("/boot", 0),
        ("/fsx", None),
    ]


DF = "Filesystem Size Used Avail Use% Mounted on\n"
UDEV, RUN, ROOT = "udev 504G 0 504G 0% /dev\n", "tmpfs 101G 3M 101G 1% /run\n", "/dev/sda2 97G 29G 69G 30% /\n"
MOUNTS = "udev on /dev type devtmpfs (rw)\n/dev/sda2 on / type ext4 (rw)\n"


@pytest.mark.parametrize(
    "text",
    [
        f"$ df -h | grep -v tmpfs\n{DF}{UDEV}{ROOT}",
        f"$ df -h | head -4\n{DF}{UDEV}{RUN}{ROOT}",
        f"$ df -h -x tmpfs\n{DF}{UDEV}{RUN}{ROOT}",
        f"{DF}{UDEV}{ROOT}",
        f"$ mount | grep -E 'dev|nfs'\n{MOUNTS}",
        f"$ grep dev /proc/mounts\n{MOUNTS}tmpfs on /run/a type tmpfs (rw)\n",
        "$ findmnt -t ext4,devtmpfs\nTARGET SOURCE    FSTYPE OPTIONS\n/ /dev/sda2 ext4 rw\n/dev udev devtmpfs rw\n",
    ],
)
def test_what_a_list_was_asked_to_leave_out_is_not_missed_from_it(text: str, tmp_path: Path) -> None:
    assert evaluated(written(tmp_path, session=text) / "session")["host.dev_shm"].verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("command", ["df -hT", "df -P --total", ""])
def test_what_is_not_in_a_whole_list_is_not_mounted(command: str, tmp_path: Path) -> None:
    text = f"$ {command}\n{DF}{UDEV}{RUN}{ROOT}"
    result = evaluated(written(tmp_path, session=text) / "session")["host.dev_shm"]
    assert (result.verdict, result.message.partition(";")[0]) == (Verdict.FAIL, "nothing is mounted on /dev/shm")
