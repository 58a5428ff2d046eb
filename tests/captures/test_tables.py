"""Host tables that omit facts, or need the command line above them: free, findmnt, numactl, …."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import evaluated, findings_in, output_of, written

FREE = """\
               total        used        free      shared  buff/cache   available
Mem:         {total:>7} {used:>11} {free:>11}          44        4000 {free:>11}
Swap:           {swap}           0        {swap}
"""
MIB = FREE.format(total=2063611, used=63611, free=1990001, swap=0)
GIB = FREE.format(total=2015, used=62, free=1943, swap=0)
NUMACTL = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3
node 0 size: 1031784 MB
node 0 free: 1012000 MB
node 1 cpus: 4 5 6 7
node 1 size: {size} MB
node 1 free: 800000 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""
SOURCES = """\
MS Name/IP address         Stratum Poll Reach LastRx Last sample
===============================================================================
^{first} 169.254.169.123               3   4   377    12    +11us[  +15us] +/-  306us
^- time.example.net              2   6   377    43   +102us[ +102us] +/-   30ms
"""
SWAPON = "NAME      TYPE SIZE USED PRIO\n/swapfile file   8G 7.9G   -2\n"
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/swapfile     file\t\t8388608\t\t8283750\t\t-2\n"
MOUNTED = """\
TARGET     SOURCE                 FSTYPE   OPTIONS
/          /dev/nvme0n1p1         ext4     rw,relatime
├─/dev     udev                   devtmpfs rw,nosuid
│ └─/dev/shm tmpfs                tmpfs    rw,nosuid
└─/fsx     10.1.2.3@tcp:/abcdefgh lustre   rw,noatime,flock
"""
OF_FSTAB = """\
TARGET SOURCE                 FSTYPE OPTIONS
/      LABEL=cloudimg-rootfs  ext4   discard,errors=remount-ro
/fsx   10.1.2.3@tcp:/abcdefgh lustre defaults,noatime,flock,_netdev
"""
LUSTRE = "TARGET SOURCE                 OPTIONS\n/fsx   10.1.2.3@tcp:/abcdefgh rw,lazystatfs\n"


@pytest.mark.parametrize("text", [SWAPON, SWAPS])
def test_the_swap_of_a_node_is_no_list_of_its_disks(text: str) -> None:
    assert [*output_of(text)] == ["memory"]


def memory_of(text: str) -> Any:
    return output_of(text)["memory"]


@pytest.mark.parametrize(
    ("command", "table", "total_gib"),
    [
        ("free -m", MIB, 2015),
        ("free -wm", MIB, 2015),
        ("free -g", GIB, 2015),
        ("free -l -g | head -3", GIB, 2015),
        ("free -b", FREE.format(total=4 * 2**30, used=2**30, free=2**30, swap=0), 4),
        ("free", FREE.format(total=4 * 2**20, used=2**20, free=2**20, swap=0), 4),
    ],
)
def test_free_is_in_the_unit_that_its_command_names(command: str, table: str, total_gib: int) -> None:
    assert memory_of(f"$ {command}\n{table}")["total_kib"] // 2**20 == total_gib


def test_free_in_bytes_is_not_taken_for_kib() -> None:
    _, problems = read_text(FREE.format(total=2**41, used=2**30, free=2**30, swap=0))
    assert "does not say its unit" in problems[0]


def test_no_gib_of_swap_may_be_some() -> None:
    assert "swap_total_kib" not in memory_of(f"$ free -g\n{GIB}")
    assert memory_of(f"$ free -m\n{MIB}")["swap_total_kib"] == 0


@pytest.mark.parametrize("text", [SWAPON, SWAPS, f"$ free -g\n{GIB.replace('Swap:           0', 'Swap:           8')}"])
def test_swap_that_a_table_shows_is_found(text: str, tmp_path: Path) -> None:
    assert [verdict for verdict, _ in findings_in(tmp_path, text, "host.swap")] == [Verdict.CONCERN]


ARCSTATS = "$ grep -wE 'size|c_min' /proc/spl/kstat/zfs/arcstats\nc_min    4    33554432\nsize     4    858993459200\n"


@pytest.mark.parametrize(("arcstats", "finds"), [(ARCSTATS, 0), ("", 1)])
def test_memory_that_zfs_caches_is_not_missing_from_that_of_free(arcstats: str, finds: int, tmp_path: Path) -> None:
    text = f"$ free -m\n{FREE.format(total=2063611, used=2000001, free=63611, swap=0)}{arcstats}"
    assert len(findings_in(tmp_path, text, "host.memory_available")) == finds


@pytest.mark.parametrize(("size", "words"), [(1032161, []), (903121, ["node 1 has 882 GiB"])])
def test_numactl_shows_a_socket_with_less_memory(size: int, words: list[str], tmp_path: Path) -> None:
    seen = findings_in(tmp_path, NUMACTL.format(size=size), "host.numa")
    assert [message.partition(";")[0] for _, message in seen] == words


@pytest.mark.parametrize(("first", "finds"), [("*", 0), ("?", 1), ("-", 1)])
def test_chronyc_sources_show_whether_one_is_followed(first: str, finds: int, tmp_path: Path) -> None:
    seen = findings_in(tmp_path, SOURCES.format(first=first), "host.clock_sync")
    assert [message for _, message in seen] == [
        "the clock is not synchronised; expected chrony or another NTP client to correct it"
    ] * finds


@pytest.mark.parametrize("text", [f"$ findmnt --fstab\n{OF_FSTAB}", OF_FSTAB, f"$ findmnt -s\n{OF_FSTAB}"])
def test_what_findmnt_has_of_fstab_is_not_mounted_for_that(text: str) -> None:
    assert output_of(text)["mounts"] == {
        "fstab": [
            {
                "path": "/",
                "source": "LABEL=cloudimg-rootfs",
                "type": "ext4",
                "options": "discard,errors=remount-ro",
            },
            {
                "path": "/fsx",
                "source": "10.1.2.3@tcp:/abcdefgh",
                "type": "lustre",
                "options": "defaults,noatime,flock,_netdev",
            },
        ]
    }


@pytest.mark.parametrize("options", ["rw,noatime,_netdev", "ro,_netdev"])
def test_findmnt_of_fstab_is_told_by_one_entry_whose_options_no_mount_has(options: str) -> None:
    mounts = output_of(OF_FSTAB.replace("defaults,noatime,flock,_netdev", options))["mounts"]
    assert [entry["options"] for entry in mounts["fstab"]] == ["discard,errors=remount-ro", options]


@pytest.mark.parametrize("user", ["me too", "me too too"])
def test_findmnt_shows_a_mount_also_where_its_options_have_blanks(user: str) -> None:
    share = f"/nas   //nas/share            cifs   rw,vers=3.0,username={user},uid=0\n"
    mounts = output_of(f"TARGET SOURCE FSTYPE OPTIONS\n/ /dev/nvme0n1p1 ext4 ro,relatime\n{share}")["mounts"]
    assert "fstab" not in mounts  # as if an entry had neither ro nor rw
    assert mounts["mounts"][-1] == {
        "path": "/nas",
        "source": "//nas/share",
        "type": "cifs",
        "options": f"rw,vers=3.0,username={user},uid=0",
    }


def test_a_users_words_for_the_source_of_a_mount_are_neither_its_type_nor_its_options() -> None:
    row = "/home/me/mnt x ext4 ro,errors=remount-ro z fuse.me rw,nosuid,nodev\n"
    mounts = output_of(f"TARGET SOURCE FSTYPE OPTIONS\n/ /dev/nvme0n1p1 ext4 ro,relatime\n{row}")["mounts"]
    assert (mounts["mounts"][-1]["type"], mounts["mounts"][-1]["options"]) == ("fuse.me", "rw,nosuid,nodev")


def test_what_fstab_wants_and_is_not_mounted_is_missing(tmp_path: Path) -> None:
    folder = written(tmp_path, **{"a.txt": OF_FSTAB, "b.txt": MOUNTED.rpartition("└")[0]})
    result = evaluated(folder)["storage.mounts_expected"]
    assert result.verdict is Verdict.FAIL
    assert "/fsx (lustre, in /etc/fstab)" in result.message


def test_findmnt_of_some_types_is_read_by_its_titles() -> None:
    mounts = {
        mount["path"]: mount
        for mount in output_of(f"$ findmnt -t lustre -o TARGET,SOURCE,OPTIONS\n{LUSTRE}")["mounts"]["mounts"]
    }
    assert mounts["/fsx"] == {"path": "/fsx", "source": "10.1.2.3@tcp:/abcdefgh", "options": "rw,lazystatfs"}
    assert "error" in mounts["/"]["type"]


def test_what_grep_leaves_of_findmnt_is_read_by_the_columns_of_its_command(tmp_path: Path) -> None:
    text = "$ findmnt -o TARGET,FSTYPE,OPTIONS | grep -w ro\n/scratch ext4 rw,relatime,ro\n"
    assert [verdict for verdict, _ in findings_in(tmp_path, text, "storage.mounts_writable")] == [Verdict.FAIL]


def test_the_whole_tree_of_findmnt_is_read_as_before() -> None:
    mounts = output_of(MOUNTED)["mounts"]["mounts"]
    assert [mount["path"] for mount in mounts] == ["/", "/dev/shm", "/fsx"]


@pytest.mark.parametrize("command", ["", "$ findmnt --json\n", "$ findmnt -J -o TARGET,SOURCE,FSTYPE,OPTIONS\n"])
def test_findmnt_in_json_is_read_below_its_command(command: str) -> None:
    text = '{"filesystems": [{"target": "/", "source": "/dev/root", "fstype": "ext4", "options": "rw,relatime"}]}\n'
    assert output_of(command + text)["mounts"]["mounts"][0]["source"] == "/dev/root"


def test_findmnt_of_fstab_in_json_is_not_mounted_for_that() -> None:
    text = '{"filesystems": [{"target": "/fsx", "source": "a@tcp:/b", "fstype": "lustre", "options": "rw,_netdev"}]}\n'
    assert output_of(f"$ findmnt --fstab --json\n{text}")["mounts"]["fstab"][0]["path"] == "/fsx"


MOUNTINFO = """\
29 1 259:1 / / rw,relatime - ext4 /dev/root rw,discard,errors=remount-ro
30 29 0:5 / /dev rw,nosuid,noexec,relatime - devtmpfs devtmpfs rw,size=1056512000k
33 29 0:61 / /fsx rw,noatime - lustre 10.1.71.197@tcp:/oyuutbev rw,flock,lazystatfs
34 29 0:62 / /home rw,relatime - nfs4 fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com:/fsx/home rw,hard,nconnect=16
35 29 259:5 / /opt/dlami/nvme/of/one/long/path rw,relatime - xfs /dev/mapper/vg.01-lv_ephemeral rw,attr2
36 29 259:6 / /old ro,relatime - ext4 /dev/nvme2n1 ro,errors=remount-ro,stripe=256,data=ordered,commit=30
"""


@pytest.mark.skipif(not (shutil.which("findmnt") and shutil.which("script")), reason="needs findmnt and script")
@pytest.mark.parametrize(
    ("columns", "with_options"),
    [(400, {"/", "/fsx", "/home", "/old"}), (80, {"/fsx", "/home", "/old"}), (72, {"/old"})],
)
def test_findmnt_shows_each_mount_on_a_narrow_terminal_too(
    columns: int, with_options: set[str], tmp_path: Path
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    command = f"stty cols {columns}; findmnt -k -F {tmp_path / 'mountinfo'}"
    shown = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True, check=True).stdout
    mounts = {mount["path"]: mount for mount in output_of(shown.replace("\r", ""))["mounts"]["mounts"]}
    assert mounts["/home"]["source"] == "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com:/fsx/home"
    assert {mounts[path]["type"] for path in ("/home", "/opt/dlami/nvme/of/one/long/path")} == {"nfs4", "xfs"}
    assert {path for path in ("/", "/fsx", "/home", "/old") if "options" in mounts[path]} == with_options
