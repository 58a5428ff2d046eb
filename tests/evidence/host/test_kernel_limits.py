"""How many open files and threads there are and may be: from real files, odd ones, and a real control group."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.host import collect_kernel_limits as kernel_limits
from clusterproof.plugins.evidence.host.collect_owner import control_groups
from tests.testbed.needs import needs_root

TOPS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))  # of version 1, and of version 2
FILES = {
    "proc/sys/fs/file-nr": "9728\t0\t98304\n",
    "proc/loadavg": "0.52 0.58 0.59 2/4312 98765\n",
    "proc/sys/kernel/pid_max": "32768\n",
    "proc/sys/kernel/threads-max": "192730\n",
}
NOTHING: Mapping[str, str] = {}
OWN = str(Path("/proc/self/ns/pid").readlink())
UNIT = "sys/fs/cgroup/system.slice/slurmd.service"


def reported(root: Path, changed: Mapping[str, str] = NOTHING, pid_namespace: str = OWN) -> dict[str, Any]:
    """The collector's report on a host root with these files, some with other text."""
    own = root / "proc/1/ns/pid"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.symlink_to(pid_namespace)
    for path, text in {**FILES, **changed}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    limits: Any = kernel_limits.read(Node(str(root)))
    return dict(limits)


def run_slurmd(root: Path, groups: str) -> None:
    """Make process 77 a slurmd in these control groups, run by the user who owns the root."""
    folder = root / "proc/77"
    folder.mkdir(parents=True)
    (folder / "comm").write_text("slurmd\n")
    (folder / "cgroup").write_text(groups)
    (folder / "exe").symlink_to("/usr/sbin/slurmd")


@contextlib.contextmanager
def control_group(limit: str) -> Iterator[Path]:
    """A control group of this machine with room for this many processes; skips if none can be created."""
    for top in TOPS:
        group = top / f"clusterproof-pids-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / "pids.max").exists():
                (group / "pids.max").write_text(limit)
                yield group
                return
        finally:
            group.rmdir()
    pytest.skip("no control group with a limit of processes can be made here")


def test_what_the_kernel_has_and_may_have(tmp_path: Path) -> None:
    limits = {key: value for key, value in reported(tmp_path).items() if key not in ("settings", "modes")}
    assert limits == {
        "open_files": 9728,
        "max_files": 98304,
        "threads": 4312,
        "pid_max": 32768,
        "threads_max": 192730,
        "groups": [],
    }


def test_settings_are_as_they_are_written_and_modes_without_the_type_of_file(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    ports = "proc/sys/net/ipv4/ip_local_port_range"
    limits = reported(tmp_path, {ports: "32768\t60999\n", "etc/ld.so.preload": "/usr/lib/liba.so\n"})
    settings = {path: text for path, text in limits["settings"].items() if text}
    assert settings == {f"/{ports}": "32768\t60999", "/etc/ld.so.preload": "/usr/lib/liba.so"}
    assert limits["modes"]["/tmp"] == 0o1777


def test_this_machine_reports_all_of_it() -> None:
    limits: Any = kernel_limits.read(Node())
    assert 0 < limits["open_files"] < limits["max_files"]
    assert 0 < limits["threads"] < min(limits["pid_max"], limits["threads_max"])


@pytest.mark.parametrize(
    ("path", "text", "key"),
    [
        ("proc/sys/fs/file-nr", "", "open_files"),
        ("proc/sys/fs/file-nr", "9728\t0\n", "max_files"),
        ("proc/sys/fs/file-nr", "9728\t0\t-1\n", "max_files"),
        ("proc/loadavg", "0.52 0.58\n", "threads"),
        ("proc/loadavg", "0.52 0.58 0.59 4312 98765\n", "threads"),
        ("proc/sys/kernel/pid_max", "many\n", "pid_max"),
    ],
)
def test_what_is_no_number_is_an_error_in_its_place(tmp_path: Path, path: str, text: str, key: str) -> None:
    limits = reported(tmp_path, {path: text})
    assert limits[key]["error"] == "EINVAL"
    assert limits["groups"] == []


def test_a_file_that_is_not_there_is_an_error_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    limits: Any = kernel_limits.read(Node(str(tmp_path)))
    assert limits.pop("groups") == []
    assert set(limits.pop("settings").values()) == {""}  # a kernel may be built without them
    assert {mode["error"] for mode in limits.pop("modes").values()} == {"ENOENT"}
    assert {name: value["error"] for name, value in limits.items()} == {
        **dict.fromkeys(("open_files", "max_files", "threads", "threads_max"), "ENOENT"),
        "pid_max": "EPERM",
    }


def test_what_linux_shows_of_the_readers_own_pid_namespace_is_not_the_nodes(tmp_path: Path) -> None:
    limits = reported(tmp_path, pid_namespace="pid:[1]")
    assert (limits["pid_max"]["error"], limits["threads"]) == ("EPERM", 4312)


@pytest.mark.parametrize(
    ("groups", "top"),
    [
        ("0::/system.slice/slurmd.service\n", "sys/fs/cgroup"),
        ("5:memory:/other\n4:pids:/system.slice/slurmd.service\n0::/\n", "sys/fs/cgroup/pids"),
    ],
)
def test_a_daemons_control_group_and_those_above_have_their_limits(tmp_path: Path, groups: str, top: str) -> None:
    run_slurmd(tmp_path, groups)
    unit, above = f"{top}/system.slice/slurmd.service", f"{top}/system.slice"
    limits = reported(tmp_path, {
        f"{unit}/pids.current": "41\n", f"{unit}/pids.max": "512\n",
        f"{above}/pids.current": "207\n", f"{above}/pids.max": "max\n",
        f"{top}/kubepods.slice/pids.current": "9000\n", f"{top}/kubepods.slice/pids.max": "10000\n",
    })  # fmt: skip
    assert limits["groups"] == [
        {"path": f"/{top}/kubepods.slice", "pids": 9000, "max": 10000},
        {"path": f"/{unit}", "pids": 41, "max": 512},
    ]


def test_what_a_control_group_does_not_have_is_an_error_in_its_place(tmp_path: Path) -> None:
    run_slurmd(tmp_path, "0::/system.slice/slurmd.service\n")
    (group,) = reported(tmp_path, {f"{UNIT}/pids.max": "512\n"})["groups"]
    assert (group["pids"]["error"], group["max"]) == ("ENOENT", 512)


@needs_root
def test_a_real_process_is_counted_in_its_control_group() -> None:
    with control_group("50") as group, subprocess.Popen(["sleep", "60"]) as process:
        try:
            (group / "cgroup.procs").write_text(str(process.pid))
            folders = [path for _, path in control_groups(Node(), str(process.pid), "pids")]
            assert folders[0] == str(group)
            assert kernel_limits._limited(Node(), folders[:1]) == [{"path": str(group), "pids": 1, "max": 50}]
        finally:
            process.kill()
            process.wait()
