"""Nothing that another user controls is run or loaded: no program, library or interpreter."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from clusterproof.plugins.agent.reading import Absent, Denied, Node
from clusterproof.plugins.agent.tools import command, find
from clusterproof.plugins.agent.trust import distrust, groups_of, others
from clusterproof.plugins.benchmarks.load import torch_python
from clusterproof.plugins.benchmarks.load.tool import environment, measured
from clusterproof.plugins.evidence.gpu import collect_nvml
from tests.testbed.needs import needs_root

ALICE = 41_001
pytestmark = needs_root


def program(file: Path, owner: int = 0, mode: int = 0o755, text: str = '#!/bin/sh\necho "as $(id -u)"\n') -> Path:
    """A program in a folder of the same user's."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    for each in (file, file.parent):
        os.chown(each, owner, owner)
    return file


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        ("true", ""),
        ("chown 41001 opt/x/bin/python3", "/opt/x/bin/python3 belongs to user 41001"),
        ("chown 41001 opt/x", "/opt/x belongs to user 41001"),
        ("chmod o+w opt/x", "/opt/x may be written by others"),
        ("chmod o+w opt/x/bin/python3", "/opt/x/bin/python3 may be written by others"),
        ("chmod 1777 opt", ""),  # sticky: its files are safe from other users
        ("chmod 1777 opt/x/bin/python3", "/opt/x/bin/python3 may be written by others"),
        ("mv opt/x opt/y; ln -s y opt/x", ""),
        ("mv opt/x opt/y; ln -s y opt/x; chown -h 41001 opt/x", "/opt/x belongs to user 41001"),
        ("mv opt/x home; ln -s ../home/x opt/x; chown 41001 home", "/home belongs to user 41001"),
        ("mv opt/x home; ln -s /home/x opt/x; chmod 777 home", "/home may be written by others"),
        ("chgrp 50 opt/x; chmod g+w opt/x", ""),  # Debian's group staff, without members
        ("chgrp 60 opt/x; chmod g+w opt/x", "/opt/x may be written by user 41001"),
        ("chgrp 61 opt/x; chmod g+w opt/x", "/opt/x may be written by others"),  # a group with unknown members
    ],
)
def test_who_decides_about_a_path_is_told_by_all_that_leads_to_it(tmp_path: Path, prepare: str, why: str) -> None:
    program(tmp_path / "opt/x/bin/python3")
    (tmp_path / "home").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:41001:41001::/home:/bin/sh\n")
    (tmp_path / "etc/group").write_text("root:x:0:\nstaff:x:50:\nml:x:60:alice\nvideo:x:44:bob,alice\n")
    assert os.system(f"cd {tmp_path} && {prepare}") == 0
    assert distrust("/opt/x/bin/python3", str(tmp_path)) == why
    assert groups_of(ALICE, str(tmp_path)) == [41001, 60, 44]


def test_a_circle_of_links_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        others("/a", str(tmp_path))


def test_who_calls_sudo_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "opt/x/bin/python3", ALICE)
    monkeypatch.setenv("SUDO_UID", str(ALICE))
    assert distrust("/opt/x/bin/python3", str(tmp_path)) == ""
    monkeypatch.setenv("SUDO_UID", "41002")
    assert distrust("/opt/x/bin/python3", str(tmp_path))


def test_a_tool_of_another_user_is_passed_over_and_denied_where_there_is_no_other(tmp_path: Path) -> None:
    node = Node(str(tmp_path))
    program(tmp_path / "opt/slurm/bin/scontrol", ALICE)
    with pytest.raises(Denied, match="/opt/slurm/bin/scontrol is not run: /opt/slurm/bin belongs to user 41001"):
        find(node, "scontrol")
    program(tmp_path / "usr/bin/scontrol")
    assert find(node, "scontrol") == "/usr/bin/scontrol"


@pytest.mark.parametrize("path", [".", "", "{folder}"])
def test_nothing_in_the_working_folder_or_another_users_on_path_is_run(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "x/dcgmi-of-alice", ALICE)
    monkeypatch.chdir(tmp_path / "x")
    monkeypatch.setenv("PATH", f"{path.format(folder=tmp_path / 'x')}:/usr/bin:/bin")
    with pytest.raises((Denied, Absent)):
        command(Node(), "dcgmi-of-alice")


def test_a_tool_runs_in_no_folder_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(Node(), "pwd")["output"] == "/\n"


def test_what_the_user_names_of_another_user_runs_as_that_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file = program(Path(f"/opt/clusterproof-test-{os.getpid()}/tool-of-alice"), ALICE)
    node = Node(collector_s=60, settings={"folders": str(file.parent)})
    try:
        assert measured(node, "tool-of-alice")["output"] == f"as {ALICE}\n"
        file.chmod(0o777)
        with pytest.raises(Denied, match="may be written by others"):
            measured(node, "tool-of-alice")
    finally:
        file.unlink()
        file.parent.rmdir()


def test_no_python_of_another_user_is_tried_for_pytorch(tmp_path: Path) -> None:
    for place, owner in (("opt/ours", 0), ("opt/hers", ALICE), ("home/alice/env", ALICE), ("home/root/env", 0)):
        program(tmp_path / place / "bin/python3", owner)
    tried, doubts = torch_python.candidates(Node(str(tmp_path)), "")
    assert tried == ["/opt/ours/bin/python3", "/home/root/env/bin/python3"]
    assert len(doubts) == 2


@pytest.mark.parametrize("below", ["site-packages", "site-packages/x.pth"])
def test_nor_one_that_runs_packages_of_another_user(below: str, tmp_path: Path) -> None:
    program(tmp_path / "opt/ours/bin/python3")
    packages = tmp_path / "opt/ours/lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    (packages / "x.pth").touch()
    assert torch_python.candidates(Node(str(tmp_path)), "")[0]
    os.chown(packages.parent / below, ALICE, ALICE)
    assert torch_python.candidates(Node(str(tmp_path)), "")[0] == []


def test_no_folder_of_another_user_holds_libraries_of_what_is_run(tmp_path: Path) -> None:
    for name in ("openmpi", "openmpi5"):
        (tmp_path / "opt/amazon" / name / "lib").mkdir(parents=True)
    os.chown(tmp_path / "opt/amazon/openmpi/lib", ALICE, ALICE)
    assert environment(Node(str(tmp_path)))["LD_LIBRARY_PATH"] == "/opt/amazon/openmpi5/lib"


def test_no_library_of_a_user_called_kubernetes_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1"
    program(library, ALICE)
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    with pytest.raises(Exception, match="belongs to user 41001"):
        collect_nvml.load(Node(str(tmp_path)))
    assert loaded == []
    program(library)
    collect_nvml.load(Node(str(tmp_path)))
    assert loaded == [str(library)]
