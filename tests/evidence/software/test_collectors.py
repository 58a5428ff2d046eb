"""Reports of the `versions` and `image` collectors from a folder's files, whatever they contain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.evidence import Status
from clusterproof.plugins.evidence.software import collect_image as image
from clusterproof.plugins.evidence.software import collect_versions as versions
from tests.builders.probed import collect, probe, value
from tests.testbed.image import File, Folder
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_cpu, healthy_p5, with_file, with_tool, without_file
from tests.testbed.software import DPKG, EFA_RECORD, KEYS, dpkg, package

NOBODY = 65534
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  (dvs-builder@U22)\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.12  Sat Sep 16 18:23:24 UTC 2023\nGCC version:\n"
CUDA = '{\n "cuda" : {\n "name" : "CUDA SDK",\n "version" : "12.8.1"\n }\n}'
CUDNN = """#define CUDNN_MAJOR 8
#define CUDNN_MINOR 9
#define CUDNN_PATCHLEVEL 7

#define CUDNN_VERSION (CUDNN_MAJOR * 1000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)
"""
PLUGSTACK = """# pyxis
include /etc/slurm/plugstack.conf.d/*
required /usr/lib/a.so x=1
optional /usr/lib/b.so
required c.so
"""
RPM_TOOL = """#!/bin/sh
echo 'package enroot is not installed'
echo 'libnccl 2.21.5-1.amzn2023'
echo 'containerd 1.7.27-1.amzn2023.0.2'
exit 3
"""
BROKEN_RPM = """#!/bin/sh
echo 'error: db5 error(-30973) from dbenv->failchk: BDB0087 DB_RUNRECOVERY: Fatal error, run database recovery'
echo 'error: cannot open Packages database in /var/lib/rpm'
echo 'package enroot is not installed'
exit 1
"""


def root(folder: Path, files: dict[str, str | bytes]) -> Node:
    """A node whose files are in a folder."""
    for path, content in files.items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return Node(str(folder))


def evidence_of(folder: Path, files: dict[str, str | bytes]) -> dict[str, Any]:
    report: Any = versions.read(root(folder, files))
    return dict(report)


def component(folder: Path, name: str, path: str, content: str | bytes) -> Any:
    return evidence_of(folder, {path: content})["components"].get(name)


@pytest.mark.parametrize(
    ("name", "path", "content", "version"),
    [
        ("driver", "/proc/driver/nvidia/version", OPEN, "580.126.09"),
        ("driver", "/proc/driver/nvidia/version", CLOSED, "535.104.12"),
        ("driver", "/sys/module/nvidia/version", "570.86.15\n", "570.86.15"),
        ("cuda", "/usr/local/cuda/version.json", CUDA, "12.8.1"),
        ("cuda", "/usr/local/cuda/version.txt", "CUDA Version 10.2.89\n", "10.2.89"),
        ("efa_installer", EFA_RECORD, "# EFA installer version: 1.17.2\n# Debug packages installed: no\n", "1.17.2"),
        ("lustre", "/sys/fs/lustre/version", "lustre: 2.12.8_6\n", "2.12.8_6"),
        ("slurm", "/usr/include/slurm/slurm_version.h", "#define SLURM_VERSION_NUMBER 0x190501\n", "25.05.1"),
        ("cudnn", "/usr/local/cuda/include/cudnn_version.h", CUDNN, "8.9.7"),
        ("nccl", "/usr/lib64/libnccl.so.2.27.5", "", "2.27.5"),
        ("neuron_runtime", "/opt/aws/neuron/lib/libnrt.so.2.22.19.0", "", "2.22.19.0"),
        ("cuda_compat", "/usr/local/cuda/compat/libcuda.so.580.82.07", "", "580.82.07"),
        ("ofed", "/sys/module/mlx5_core/version", "24.10-1.1.4\n", "24.10-1.1.4"),
    ],
)  # fmt: skip
def test_a_component_has_its_version_and_where_it_is_from(
    tmp_path: Path, name: str, path: str, content: str, version: str
) -> None:
    assert component(tmp_path, name, path, content) == {"version": version, "from": path}


@pytest.mark.parametrize("content", ["", "# Packages installed:\n", "EFA installer version: 1.43\n", b"\xff\xfe" * 999])
def test_a_file_that_names_no_version_is_an_error_in_its_place(tmp_path: Path, content: str | bytes) -> None:
    report = component(tmp_path, "efa_installer", EFA_RECORD, content)
    assert report["error"] == "EINVAL"
    assert len(report["text"]) < 1000


def test_of_several_libraries_of_a_folder_the_newest_counts(tmp_path: Path) -> None:
    report = evidence_of(tmp_path, {f"/usr/lib64/libnccl.so.2.{minor}.1": "" for minor in (9, 10)})
    assert report["components"]["nccl"]["version"] == "2.10.1"


def test_the_folders_of_the_loader_come_before_the_usual_ones(tmp_path: Path) -> None:
    files = {
        "/etc/ld.so.conf.d/own.conf": "# own\n/opt/own\n",
        "/opt/own/libnccl.so.2.20.1": "",
        "/usr/lib64/libnccl.so.2.27.5": "",
    }
    assert evidence_of(tmp_path, dict(files))["components"]["nccl"]["version"] == "2.20.1"


def test_a_toolkit_behind_links_is_the_nodes_own_and_not_the_machines(tmp_path: Path) -> None:
    node = root(tmp_path, {"/usr/local/cuda-12.8/version.json": '{"cuda": {"version": "12.8.1"}}'})
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "usr/local/cuda").symlink_to("/etc/alternatives/cuda")
    (tmp_path / "etc/alternatives/cuda").symlink_to("/usr/local/cuda-12.8")
    report: Any = versions.read(node)
    assert report["components"]["cuda"]["version"] == "12.8.1"
    assert report["toolkits"] == ["12.8"]


def test_a_library_whose_link_leads_nowhere_says_so(tmp_path: Path) -> None:
    node = root(tmp_path, {"/usr/lib64/libnccl.so.2": b"\x7fELF"})
    (tmp_path / "usr/lib64/libcuda.so.1").symlink_to("libcuda.so.550")
    report: Any = versions.read(node)
    (cuda,) = report["libraries"]["libcuda.so.1"]
    assert cuda["bytes"]["error"] == "ENOENT"
    assert report["libraries"]["libnccl.so.2"] == [{"path": "/usr/lib64/libnccl.so.2", "bytes": 4}]
    assert report["libraries"]["libnvidia-ml.so.1"] == []


@pytest.mark.parametrize("status", ["install ok installed", "hold ok installed"])
def test_only_packages_that_are_wholly_installed_count(status: str, tmp_path: Path) -> None:
    text = package("enroot", "3.5.0-1", "deinstall ok config-files") + package("rdma-core", "60.0-1", status)
    components = evidence_of(tmp_path, {DPKG: text + package("vim", "9.1")})["components"]
    assert components == {"rdma_core": {"version": "60.0-1", "from": DPKG}}


def test_a_large_package_database_is_read_to_its_end(tmp_path: Path) -> None:
    many = "".join(package(f"lib{number}", "1.0") + "x" * 1500 + "\n\n" for number in range(3000))
    node = root(tmp_path, {DPKG: many + package("libnccl-ofi", "1.17.1-1")})
    assert versions.packages(node, {"libnccl-ofi"}) == {"libnccl-ofi": {"version": "1.17.1-1", "from": DPKG}}


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\n\n\x00", b"Package: libnccl2", b"Package: libnccl2\nStatus: install ok"]
)
def test_a_package_database_of_garbage_has_no_package(tmp_path: Path, content: bytes) -> None:
    assert versions.packages(root(tmp_path, {DPKG: content}), {"libnccl2"}) == {}


@needs_nodes
def test_where_there_is_no_dpkg_rpm_is_asked_once() -> None:
    image_of_rpm = with_file(without_file(healthy_cpu(), DPKG), "/var/lib/rpm/rpmdb.sqlite", "")
    components = value(with_tool(image_of_rpm, "rpm", RPM_TOOL), "versions")["components"]
    assert components["nccl"] == {"version": "2.21.5-1.amzn2023", "from": "rpm"}
    assert components["containerd"]["version"] == "1.7.27-1.amzn2023.0.2"
    assert "enroot" not in components


@needs_nodes
def test_where_rpm_cannot_open_its_database_what_is_installed_is_unknown() -> None:
    image_of_rpm = with_file(without_file(healthy_cpu(), DPKG), "/var/lib/rpm/Packages", "")
    components = value(with_tool(image_of_rpm, "rpm", BROKEN_RPM), "versions")["components"]
    assert components["packages"] == {"error": "EIO", "text": "error: cannot open Packages database in /var/lib/rpm"}


@needs_nodes
def test_a_database_that_may_not_be_read_is_reported_as_such() -> None:
    report = value(with_file(healthy_cpu(), DPKG, File(dpkg({"rdma-core": "60"}), 0o600)), "versions", user=NOBODY)
    assert report["components"]["packages"]["error"] == "EACCES"


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, ""),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, ""),
        ({"/.dockerenv": ""}, "docker"),
        ({"/run/.containerenv": ""}, "podman"),
        ({"/var/run/secrets/kubernetes.io/serviceaccount/token": ""}, "kubernetes"),
        ({"/proc/1/cgroup": "12:pids:/kubepods/besteffort/pod1\n"}, "kubepods"),
    ],
)
def test_a_container_is_distinguished_from_a_host(tmp_path: Path, files: dict[str, str | bytes], kind: str) -> None:
    assert evidence_of(tmp_path, files)["container"] == kind


@pytest.mark.long
def test_an_empty_root_has_no_component_and_no_error(tmp_path: Path) -> None:
    collectors = probe(["versions", "image"], ProbeOptions(host_root=str(tmp_path), collector_s=30.0)).collectors
    assert collectors["versions"].status is collectors["image"].status is Status.READ
    assert collectors["versions"].value["components"] == {}
    assert collectors["image"].value["cloud_init"] is None
    assert collectors["image"].value["left"] == []


def test_what_was_left_behind_is_reported_by_name_and_size_and_never_by_content(tmp_path: Path) -> None:
    secret = "aws_secret_access_key = wJalr"
    files = dict.fromkeys(("/root/.aws/credentials", "/home/ubuntu/.bash_history", "/var/crash/a.crash"), secret)
    report: Any = image.read(root(tmp_path, {**files, "/root/.bash_history": ""}))
    assert {entry["path"]: entry["bytes"] for entry in report["left"]} == dict.fromkeys(files, len(secret))
    assert "wJalr" not in str(report)


def test_no_number_of_crash_dumps_hides_a_credential(tmp_path: Path) -> None:
    dumps = (f"/var/{folder}/{number:02}" for folder in ("crash", "lib/systemd/coredump") for number in range(32))
    report: Any = image.read(root(tmp_path, dict.fromkeys((*dumps, "/root/.aws/credentials"), "x")))
    assert "/root/.aws/credentials" in {entry["path"] for entry in report["left"]}


@needs_nodes
def test_a_home_that_may_not_be_looked_into_is_reported_as_such() -> None:
    report = value(with_file(healthy_cpu(), "/root", Folder(0o700)), "image", user=NOBODY)
    assert {entry["path"]: entry["bytes"]["error"] for entry in report["left"]} == {
        f"/root/{name}": "EACCES" for name in image.LEFT
    }
    assert report["keys"]["root"]["error"] == "EACCES"


def test_keys_are_counted_by_account_and_never_sent(tmp_path: Path) -> None:
    keys = "# launch\nssh-ed25519 AAAAsecret me\n\nssh-rsa AAAB you\n"
    forced = 'no-pty,command="echo no" ssh-ed25519 AAAAsecret me\n'
    report: Any = image.read(root(tmp_path, {KEYS: keys, "/root/.ssh/authorized_keys": forced}))
    assert report["keys"] == {"root": {"keys": 1, "commands": 1}, "ubuntu": {"keys": 2, "commands": 0}}
    assert "secret" not in str(report)


@given(st.text(max_size=300))
def test_whatever_cloud_init_writes_is_read_or_an_error(text: str) -> None:
    node = Node("/nowhere")
    node.text = lambda *_, **__: text  # type: ignore[method-assign]
    report: Any = image._cloud_init(node)
    assert report is None or "error" in report or len(report["errors"]) <= 8


def test_plug_ins_are_those_that_plugstack_names(tmp_path: Path) -> None:
    report: Any = image.read(root(tmp_path, {"/etc/slurm/plugstack.conf": PLUGSTACK, "/usr/lib/a.so": "x"}))
    assert report["plugins"] == [
        {"need": "required", "path": "/usr/lib/a.so", "bytes": 1},
        {"need": "optional", "path": "/usr/lib/b.so", "bytes": None},
    ]


@needs_nodes
def test_a_healthy_node_reports_every_component_that_it_has() -> None:
    components = collect(healthy_p5(), "versions").value["components"]
    assert all("version" in version for version in components.values()), components
    assert components.keys() >= {
        *("kernel", "driver", "libcuda", "cuda", "cudnn", "nccl", "efa_installer", "libfabric", "aws_ofi_nccl"),
        *(
            "gdrcopy",
            "lustre",
            "slurm",
            "containerd",
            "docker",
            "enroot",
            "nvidia_container_toolkit",
            "glibc",
            "python",
        ),
    }
