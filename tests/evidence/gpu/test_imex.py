"""nvidia-imex: which configuration the collector reads, and the output of nvidia-imex-ctl -N."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.reading import Absent, Denied, Node
from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.evidence.gpu import collect_imex
from clusterproof.plugins.evidence.gpu.parse_imex import read_domain
from clusterproof.plugins.evidence.parsing import CaptureError
from tests.testbed.imex import domain

CONFIG, LIST = "/opt/shared/imex/config.cfg", "/opt/shared/imex/nodes.cfg"
OWN = {CONFIG: f"IMEX_CMD_ENABLED=1\nIMEX_NODE_CONFIG_FILE={LIST}\n", LIST: "10.0.0.1\n10.0.0.2\n"}
USUAL = {"/etc/nvidia-imex/nodes_config.cfg": "10.9.9.1\n"}
SERVICE = "0::/system.slice/nvidia-imex.service\n"


def put(root: Path, files: Mapping[str, str]) -> Node:
    """A root with these files."""
    for path, content in {"/proc/uptime": "1000.0 1.0\n", **files}.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return Node(str(root))


def daemon(
    *arguments: str, uid: int = 0, pids: str = "77", group: str = SERVICE, comm: str = "nvidia-imex"
) -> dict[str, str]:
    """A process started 50 s after boot, whose program only root may see."""
    stat = f"77 ({comm}) S {' '.join(['0'] * 18)} {50 * os.sysconf('SC_CLK_TCK')}"
    status = f"Name:\t{comm}\nUid:\t{uid}\t0\t0\t0\nNStgid:\t{pids}\nNSpid:\t{pids}\nNSpgid:\t{pids}\n"
    cmdline = "\0".join(["/usr/bin/nvidia-imex", *arguments, ""])
    files = {"comm": comm, "status": status, "cmdline": cmdline, "stat": stat, "cgroup": group}
    return {f"/proc/77/{name}": text for name, text in files.items()}


def read(root: Path, files: Mapping[str, str]) -> Any:
    return collect_imex.read(put(root, files))


def test_the_file_that_the_daemon_was_given_is_read(tmp_path: Path) -> None:
    report = read(tmp_path, {**OWN, **USUAL, **daemon("-c", CONFIG)})
    assert report["nodes"] == ["10.0.0.1", "10.0.0.2"]
    assert report["daemon"] == {"config": CONFIG, "active_s": 950.0}


@pytest.mark.parametrize("words", [(), ("-c", "relative.cfg"), ("-c",)])
def test_a_daemon_without_one_has_the_usual_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    report = read(tmp_path, {**USUAL, **daemon(*words)})
    assert (report["nodes"], report["daemon"]["config"]) == (["10.9.9.1"], "")


def test_root_knows_the_daemon_by_its_program(tmp_path: Path) -> None:
    node = put(tmp_path, {**OWN, **USUAL, **daemon("-c", CONFIG, group="0::/system.slice/slurmd.service\n")})
    assert collect_imex.read(node)["daemon"] is None  # type: ignore[index]
    (tmp_path / "proc/77/exe").symlink_to("/usr/bin/nvidia-imex")
    assert collect_imex.read(node)["nodes"] == ["10.0.0.1", "10.0.0.2"]  # type: ignore[index]


@pytest.mark.parametrize(
    "process",
    [
        {"uid": 1000},
        {"pids": "77\t1"},  # a pod's
        {"group": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/nvidia-imex.service\n"},
        {"comm": "nvidia-smi"},
    ],
)
def test_what_a_user_or_a_pod_runs_names_no_file(tmp_path: Path, process: dict[str, Any]) -> None:
    report = read(tmp_path, {**OWN, **USUAL, **daemon("-c", CONFIG, **process)})
    assert (report["nodes"], report["daemon"]) == (["10.9.9.1"], None)


@pytest.mark.parametrize("path", [CONFIG, LIST])
def test_a_file_that_others_may_change_is_not_read(tmp_path: Path, path: str) -> None:
    node = put(tmp_path, {**OWN, **daemon("-c", CONFIG)})
    (tmp_path / path.lstrip("/")).chmod(0o666)
    with pytest.raises(Denied, match=f"{path} is not read: {path} may be written by others; expected a file that only"):
        collect_imex.read(node)


def test_a_daemon_whose_file_is_gone_lists_nobody(tmp_path: Path) -> None:
    assert read(tmp_path, daemon("-c", CONFIG))["nodes"] == []


def test_a_node_without_any_of_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(Absent, match=r"no /etc/nvidia-imex/config.cfg"):
        read(tmp_path, {})


LEGEND = """\
Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
C - Connected - Ready for operation

"""
OLDER = f"""{LEGEND}3/25/2025 10:39:43.659
Nodes:
Node #0   - 10.136.206.48   - READY

 Nodes From\\To  0
       0        C
Domain State: UP
"""
NEWER = f"""{LEGEND}5/12/2025 06:08:10.580
Nodes:
Node #0   - 172.31.48.81    - READY                - Version: 570.172
Node #1   - 172.31.48.98    - READY                - Version: 570.172
Node #2   - 172.31.48.221   - UNAVAILABLE          - Version: 570.172

 Nodes From\\To  0   1   2
       0        C   C   !V!
       1        C   C   N
       2        I   !M! C
Domain State: DEGRADED
"""


def test_the_table_of_an_older_program_has_no_versions() -> None:
    status = read_domain(OLDER)
    (node,) = status.nodes
    assert status.state == "UP"
    assert (node.number, node.host, node.status, node.version, dict(node.links)) == (
        *(0, "10.136.206.48", "READY", ""),
        {0: "CONNECTED"},
    )


def test_each_letter_of_the_table_is_the_word_that_the_json_has() -> None:
    status = read_domain(NEWER)
    assert status.state == "DEGRADED"
    assert [(node.status, node.version) for node in status.nodes] == [
        ("READY", "570.172"),
        ("READY", "570.172"),
        ("UNAVAILABLE", "570.172"),
    ]
    assert [dict(node.links) for node in status.nodes] == [
        {0: "CONNECTED", 1: "CONNECTED", 2: "VERSION_MISMATCH"},
        {0: "CONNECTED", 1: "CONNECTED", 2: "NEVER_CONNECTED"},
        {0: "INVALID", 1: "NODE_MAP_MISMATCH", 2: "CONNECTED"},
    ]


def test_the_json_says_the_same_and_host_names() -> None:
    status = read_domain("some warning\n" + domain("580.173.02", {2: "INVALID"}))
    assert status.state == "UP"
    assert [(node.host, node.host_name) for node in status.nodes][:2] == [
        ("10.1.2.9", "gpu001"),
        ("10.1.2.1", "gpu002"),
    ]
    assert dict(status.nodes[0].links) == {0: "CONNECTED", 1: "CONNECTED", 2: "INVALID", 3: "CONNECTED"}


@pytest.mark.parametrize("text", [OLDER, NEWER, domain("580.173.02")])
def test_a_capture_of_either_form_is_the_collector(text: str) -> None:
    collectors, _ = read_text(text)
    assert collectors["imex"]["domain"]["output"].strip() == text.strip()  # type: ignore[index]


@pytest.mark.parametrize("text", ["", "Failed to connect", '{"status": "UP", "nodes": {}}', '{"nodes": [1]}', "{"])
def test_what_names_no_node_is_no_domain(text: str) -> None:
    with pytest.raises(CaptureError):
        read_domain(text)
