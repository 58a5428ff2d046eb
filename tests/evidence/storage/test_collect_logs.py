"""What the collector of logs counts: the space on the disk, of files that are really there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.evidence.storage.collect_logs import MAX_FILES
from tests.builders.probed import PATIENT, collect_under, host_root, probe_node, read_under
from tests.testbed.image import Folder
from tests.testbed.needs import needs_nodes
from tests.testbed.node import entered, healthy_cpu, with_file, with_tmpfs

pytestmark = pytest.mark.long
KIB = 1024
NOBODY = 65534
NOTHING: dict[str, Any] = {"kib": 0, "largest": [], "unread": 0, "is_cut": False}


def seen(folder: Path) -> list[dict[str, Any]]:
    """The folders as reported, without the sizes of this machine's file system."""
    folders = read_under(folder, "logs")["folders"]
    assert all(0 <= entry.pop("used_kib") <= entry.pop("total_kib") for entry in folders)
    return list(folders)


def test_the_largest_files_of_each_folder_are_named(tmp_path: Path) -> None:
    sizes = {"var/log/a": 8, "var/log/b": 64, "var/log/pods/x/c": 32, "var/log/pods/d": 16, "var/crash/core": 128}
    logs, crashes = seen(host_root(tmp_path, {path: b"x" * KIB * kib for path, kib in sizes.items()}))
    largest = [{"path": "/var/log/b", "kib": 64}, {"path": "/var/log/pods/x/c", "kib": 32}]
    assert logs == {
        **NOTHING,
        "name": "/var/log",
        "kib": 120,
        "largest": [*largest, {"path": "/var/log/pods/d", "kib": 16}],
    }
    core = {"path": "/var/crash/core", "kib": 128}
    assert crashes == {**NOTHING, "name": "/var/crash", "kib": 128, "largest": [core]}


def test_a_sparse_file_and_a_second_name_take_no_space(tmp_path: Path) -> None:
    root = host_root(tmp_path, {"var/log/audit": b"x" * KIB * 16})
    os.link(root / "var/log/audit", root / "var/log/audit.1")
    with (root / "var/log/lastlog").open("wb") as file:
        file.truncate(2**40)
    (logs,) = seen(root)
    assert logs["kib"] == 16


def test_no_link_is_followed_but_that_of_the_folder_itself(tmp_path: Path) -> None:
    root = host_root(tmp_path, {"big/file": b"x" * KIB * 64, "data/log/a": b"x" * KIB * 16})
    (root / "data/log/elsewhere").symlink_to("../../big")
    (root / "data/log/file").symlink_to("../../big/file")
    (root / "data/log/loop").symlink_to("loop")
    (root / "var").mkdir()
    (root / "var/log").symlink_to("/data/log")
    (logs,) = seen(root)
    assert (logs["kib"], logs["unread"]) == (16, 0)


def test_of_too_many_entries_those_looked_at_are_counted(tmp_path: Path) -> None:
    root = host_root(tmp_path, {"var/log/syslog": b"x" * KIB * 16, "var/crash/core": ""})
    (root / "var/log/pods").mkdir()
    for number in range(MAX_FILES):
        (root / f"var/log/pods/{number}").touch()
    logs, crashes = seen(root)
    assert (logs["kib"], logs["is_cut"], crashes["is_cut"]) == (16, True, False)


@needs_nodes
def test_no_other_file_system_is_entered() -> None:
    with entered(with_tmpfs(healthy_cpu(), "/var/log/pods", "8m")) as node:
        write = "head -c 65536 /dev/zero >/var/log/pods/0.log; head -c 16384 /dev/zero >/var/log/syslog"
        node.run(["/bin/sh", "-c", write], timeout=60.0)
        report = probe_node(node, ["logs"], PATIENT).collectors["logs"].value
    assert isinstance(report, dict)
    (logs,) = report["folders"]
    assert (logs["kib"], logs["largest"][0]["path"]) == (16, "/var/log/syslog")


@needs_nodes
def test_folders_that_only_root_may_read_are_counted() -> None:
    image = with_file(with_file(healthy_cpu(), "/var/log/audit", Folder(0o700)), "/var/log/syslog", "x" * KIB * 16)
    with entered(image) as node:
        report = probe_node(node, ["logs"], PATIENT, user=NOBODY).collectors["logs"].value
    assert isinstance(report, dict)
    (logs,) = report["folders"]
    assert (logs["kib"], logs["unread"]) == (16, 1)


def test_folders_nested_too_deeply_hide_no_file_beside_them(tmp_path: Path) -> None:
    root = host_root(tmp_path, {"var/crash/core": b"x" * KIB * 16})
    folder = os.open(root / "var/crash", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("a", dir_fd=folder)
        inside = os.open("a", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inside
    os.close(folder)
    (crashes,) = seen(root)
    subprocess.run(["rm", "-r", root / "var"], check=True)  # shutil gives up on so deep a tree
    assert (crashes["kib"], crashes["unread"]) == (16, 1)


def test_a_host_without_logs_has_no_folder(tmp_path: Path) -> None:
    assert seen(host_root(tmp_path, {"etc/fstab": ""})) == []


def test_a_file_in_the_place_of_the_folder_costs_its_own_evidence_only(tmp_path: Path) -> None:
    collected = collect_under(host_root(tmp_path, {"var/log": "", "var/crash/core": b"x" * KIB * 4}), "logs")
    assert isinstance(collected.value, dict)
    first, second = collected.value["folders"]
    assert collected.status is Status.BROKE
    assert "NotADirectoryError" in first["never_read"]
    assert second["kib"] == 4


def test_a_name_that_is_no_text_breaks_nothing(tmp_path: Path) -> None:
    root = host_root(tmp_path, {"var/log/a": ""})
    (Path(os.fsdecode(os.fsencode(root) + b"/var/log/\xff\nx"))).write_bytes(b"x" * KIB * 16)
    (logs,) = seen(root)
    assert logs["kib"] == 16
