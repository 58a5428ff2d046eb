"""The collector's report on a kubelet; files that are not a kubelet's own are not read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.evidence.kubernetes import collect_kubelet

CONFIG = "/etc/kubernetes/kubelet/config.json"
STATE = "/var/lib/kubelet/cpu_manager_state"
KIND = '"kind": "KubeletConfiguration"'


def put(root: Path, files: Mapping[str, str]) -> Node:
    """Write these files with times before the kubelet's start."""
    for path, content in {"/proc/uptime": "1000.0 1.0\n", **files}.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        os.utime(file, (0, 0))
    return Node(str(root))


def process(pid: int, *arguments: str, name: str = "kubelet") -> dict[str, str]:
    """A process that started some time after boot."""
    stat = f"{pid} ({name}) S {' '.join(['0'] * 18)} 5000"
    status = f"Name:\t{name}\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nNStgid:\t{pid}\nNSpid:\t{pid}\nNSpgid:\t{pid}\n"
    cmdline = "\0".join([f"/usr/bin/{name}", *arguments, ""])
    group = f"0::/system.slice/{name}.service\n"
    files = {"comm": name, "status": status, "cmdline": cmdline, "stat": stat, "cgroup": group}
    return {f"/proc/{pid}/{file}": text for file, text in files.items()}


def reported(node: Node) -> Any:
    return collect_kubelet.read(node)


@pytest.mark.parametrize("words", [(f"--config={CONFIG}",), ("--v=2", "--config", CONFIG), (f"-config={CONFIG}",)])
@pytest.mark.parametrize(
    "text",
    [
        f'{{{KIND}, "cpuManagerPolicy": "static", "topologyManagerPolicy": "", "maxPods": 9}}',
        'apiVersion: v1beta1\nkind: KubeletConfiguration\n# cpuManagerPolicy: none\ncpuManagerPolicy: "static" # so\n',
        "kind: KubeletConfiguration\ncpuManagerPolicy:   static\nlogging:\n  topologyManagerPolicy: restricted\n",
    ],
    ids=["JSON", "YAML", "nested"],
)
def test_policies_are_read_out_of_json_and_yaml(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    node = put(tmp_path, {**process(70, *words), CONFIG: text, STATE: '{"policyName":"static","checksum":1}'})
    assert reported(node) == {
        "configured": {"cpuManagerPolicy": "static"},
        "changed": [],
        "in_force": {"cpuManagerPolicy": "static", "memoryManagerPolicy": None},
    }


@pytest.mark.parametrize("text", ["{cpuManagerPolicy: static}", "", "[]", '{"cpuManagerPolicy": "static"}'])
def test_a_file_that_is_no_kubelets_configuration_is_not_taken_for_defaults(tmp_path: Path, text: str) -> None:
    with pytest.raises(Broke, match=r"config\.json is not understood; expected kind: KubeletConfiguration"):
        reported(put(tmp_path, {**process(70, f"--config={CONFIG}"), CONFIG: text}))


def test_a_file_that_is_not_there_is_an_error_in_its_place(tmp_path: Path) -> None:
    report = reported(put(tmp_path, {**process(70, f"--config={CONFIG}", "--cpu-manager-policy=static"), STATE: "{}"}))
    assert report["configured"]["error"] == "ENOENT"


def test_the_state_lies_in_the_kubelets_own_folder(tmp_path: Path) -> None:
    files = {**process(70, "--root-dir=/data/kubelet"), "/data/kubelet/memory_manager_state": '{"policyName":"Static"}'}
    assert reported(put(tmp_path, files))["in_force"] == {"cpuManagerPolicy": None, "memoryManagerPolicy": "Static"}


def test_a_file_that_is_newer_than_the_process_is_named(tmp_path: Path) -> None:
    node = put(tmp_path, {**process(70, f"--config={CONFIG}"), CONFIG: f"{{{KIND}}}"})
    os.utime(tmp_path / CONFIG.lstrip("/"))
    assert reported(node)["changed"] == [CONFIG]


def test_a_node_without_a_kubelet_has_none(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no kubelet runs here"):
        reported(put(tmp_path, process(70, name="containerd")))


@pytest.mark.parametrize(
    "status",
    [
        "Name:\tkubelet\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t60\n",
        "Name:\tkubelet\nUid:\t0\t0\t0\t0\nNSpid:\t60\t1\n",
        "",
    ],
    ids=["a user's", "in a container", "an old kernel's"],
)
def test_what_a_user_calls_kubelet_is_none(tmp_path: Path, status: str) -> None:
    of_user = {**process(60, "--cpu-manager-policy=none"), "/proc/60/status": status}
    with pytest.raises(Absent):
        reported(put(tmp_path, of_user))
    node = put(tmp_path, {**of_user, **process(70, "--cpu-manager-policy=static")})
    assert reported(node)["configured"] == {"cpuManagerPolicy": "static"}
