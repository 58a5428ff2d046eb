"""Reports of the host's collectors: mounts that hang, processes that are blocked, limits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.evidence.host.facts_hardware import in_ranges
from tests.builders.probed import PATIENT, probe, probe_node, value
from tests.testbed.image import File
from tests.testbed.needs import needs_frozen, needs_hung_mount, needs_nodes
from tests.testbed.node import (
    Node,
    entered,
    healthy_cpu,
    with_file,
    with_frozen,
    with_hung_mount,
    with_memlock,
    without_file,
)

pytestmark = pytest.mark.long

NOBODY = 65534
SETTLE_S = 600.0
DENIED = "#!/bin/sh\necho dmesg: read kernel buffer failed: Operation not permitted >&2\nexit 1\n"


@needs_nodes
def test_mounts_have_their_sizes_and_what_fstab_asks_for() -> None:
    path = "/data/with space\\and#"
    fstab = (
        "# comment\nnone swap swap sw 0 0\n10.1.2.3@tcp:/abcde /fsx/ lustre noatime,flock 0 0\ntmpfs /dev/shm tmpfs\n"
    )
    with entered(with_file(healthy_cpu(), "/etc/fstab", fstab)) as node:
        node.run(["mkdir", "-p", path])
        node.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path])
        report = probe_node(node, ["mounts"], PATIENT).collectors["mounts"].value
    by_path = {mount["path"]: mount for mount in report["mounts"]}
    assert list(by_path)[:2] == ["/", "/dev/shm"]
    odd = by_path[path]
    assert (odd["type"], odd["alive"], odd["total_kib"], odd["free_kib"]) == ("tmpfs", "yes", 4096, 4096)
    assert "size=4096k" in odd["options"].split(",")
    assert odd["inodes"] >= odd["inodes_free"] > 0
    assert report["fstab"] == [
        {
            "path": "/fsx",
            "type": "lustre",
            "source": "10.1.2.3@tcp:/abcde",
            "options": "noatime,flock",
            "mounted": False,
        },
        {"path": "/dev/shm", "type": "tmpfs", "source": "tmpfs", "options": "defaults", "mounted": True},
    ]
    assert report["passed_over"] > 0
    assert not any(path.startswith(("/proc", "/sys")) for path in by_path)


@needs_nodes
def test_a_node_without_fstab_asks_for_nothing() -> None:
    assert value(without_file(healthy_cpu(), "/etc/fstab"), "mounts")["fstab"] == []


@needs_nodes
def test_an_fstab_that_may_not_be_read_is_an_error_in_its_place() -> None:
    image = with_file(healthy_cpu(), "/etc/fstab", File("", 0o600))
    assert value(image, "mounts", user=NOBODY)["fstab"]["error"] == "EACCES"


def test_a_mount_that_another_root_does_not_show_is_hidden_and_not_alive(tmp_path: Path) -> None:
    for folder in ("proc/1", "fsx"):
        (tmp_path / folder).mkdir(parents=True)
    line = "30 1 0:1048099 / /fsx rw,noatime - lustre 10.1.2.3@tcp:/abcde rw,flock\n"
    (tmp_path / "proc/1/mountinfo").write_text(line)
    report = probe(["mounts"], ProbeOptions(host_root=str(tmp_path), collector_s=30.0)).collectors["mounts"].value
    (mount,) = report["mounts"]
    assert (mount["path"], mount["alive"], mount["options"]) == ("/fsx", "hidden", "rw,noatime,flock")
    assert mount["total_kib"] is None


def test_what_fstab_names_is_reported_however_many_others_are_mounted(tmp_path: Path) -> None:
    for folder in ("proc/1", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    others = [f"{100 + n} 1 0:{100 + n} / /a/{n:02} rw - fuse.sshfs me@there rw,user_id=0" for n in range(70)]
    users = [f"{300 + n} 1 0:{300 + n} / /b/{n:02} rw - fuse.sshfs me@there rw,user_id=1000" for n in range(70)]
    own = ["30 1 0:99 / /zfsx rw - lustre 10.1.2.3@tcp:/abcde rw", "31 1 259:9 / /zlocal rw - ext4 /dev/nvme9n1 rw"]
    (tmp_path / "proc/1/mountinfo").write_text("\n".join([*others, *users, *own, ""]))
    (tmp_path / "etc/fstab").write_text(
        "10.1.2.3@tcp:/abcde /zfsx lustre defaults\n/dev/nvme9n1 /zlocal ext4 defaults\n"
    )
    report = probe(["mounts"], ProbeOptions(host_root=str(tmp_path), collector_s=30.0)).collectors["mounts"].value
    paths = [mount["path"] for mount in report["mounts"]]
    assert paths[:3] == ["/zfsx", "/zlocal", "/a/00"]
    assert len(paths) == 72


@needs_hung_mount
def test_a_hung_mount_costs_its_own_evidence_only() -> None:
    report = value(with_hung_mount(healthy_cpu(), "/fsx"), "mounts", ProbeOptions(collector_s=30.0, mount_s=1.0))
    alive = {mount["path"]: mount["alive"] for mount in report["mounts"]}
    assert alive == {"/": "yes", "/dev/shm": "yes", "/fsx": "hung", "/opt/dlami/scratch": "yes"}
    hung = next(mount for mount in report["mounts"] if mount["path"] == "/fsx")
    assert hung["total_kib"] is hung["free_kib"] is hung["inodes"] is hung["read_s"] is None


@needs_hung_mount
def test_the_probe_does_not_count_its_own_processes_as_blocked() -> None:
    with entered(with_hung_mount(healthy_cpu(), "/fsx")) as node:
        collectors = probe_node(node, ["mounts", "processes"], PATIENT).collectors
    assert collectors["processes"].value["blocked"] == []
    assert collectors["processes"].value["zombies"] == 0


@needs_frozen
def test_a_blocked_process_is_named_with_where_and_how_long_it_waits() -> None:
    with entered(with_frozen(healthy_cpu(), "/stuck")) as node:
        node.start(["sh", "-c", "echo $$ > /dev/shm/pid; exec touch /stuck/file"])
        wait_for_blocked(node)
        first, second = (probe_node(node, ["processes"], PATIENT).collectors["processes"].value for _ in range(2))
    (was,), (is_now,) = first["blocked"], second["blocked"]
    assert was["pid"] == is_now["pid"]
    assert was["name"] == "touch"
    assert was["wait"]
    assert 0 < was["blocked_s"] < is_now["blocked_s"] < 60
    assert first["total"] > 3


def wait_for_blocked(node: Node) -> None:
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        if b" D " in node.run(["sh", "-c", "cat /proc/$(cat /dev/shm/pid)/stat"]).stdout:
            return
        time.sleep(0.02)
    raise AssertionError("nothing is blocked")


@needs_nodes
def test_limits_are_bytes_and_null_is_unlimited() -> None:
    image = with_memlock(with_memlock(healthy_cpu(), "1073741824"), "8388608", "slurmd")
    limits = value(image, "limits")
    others: dict[str, object] = {"nofile": 1048576, "nproc": None, "stack": 8388608}
    assert limits["login"] == {"memlock": 1073741824, **others}
    others["memory"] = None
    cpus = {daemon.pop("cpus") for daemon in limits["daemons"].values()}
    assert cpus == {in_ranges(os.sched_getaffinity(0))}
    assert limits["daemons"] == {"slurmd": {"memlock": 8388608, **others}, "containerd": {"memlock": None, **others}}
