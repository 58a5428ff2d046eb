"""Installed software and its versions: from file names, headers, and the package database."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from clusterproof.plugins.agent.reading import Absent, Denied, Node, error
from clusterproof.plugins.agent.tools import command

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    Versions = dict[str, dict[str, str]]

CUDA = "/usr/local/cuda"
WORD = r"\s*(\S+)"
CUDNN = r"CUDNN_MAJOR +(\d+)\s[^(]{0,200}?CUDNN_MINOR +(\d+)\s[^(]{0,200}?CUDNN_PATCHLEVEL +(\d+)"
SLURM = r"SLURM_VERSION_NUMBER +0x([\da-f]{2})([\da-f]{2})([\da-f]{2})\b"
FILES = (  # component, file, pattern; the first one with a version counts
    ("kernel", "/proc/sys/kernel/osrelease", WORD),
    ("driver", "/proc/driver/nvidia/version", r"Kernel Module.{0,40}? (\d+\.[\d.]+)"),
    ("driver", "/sys/module/nvidia/version", WORD),
    ("cuda", f"{CUDA}/version.json", r'"cuda"\s*:\s*\{[^}]{0,200}"version"\s*:\s*"([^"]+)"'),
    ("cuda", f"{CUDA}/version.txt", r"CUDA Version (\S+)"),
    ("cudnn", "/usr/include/cudnn_version.h", CUDNN),
    ("cudnn", f"{CUDA}/include/cudnn_version.h", CUDNN),
    ("efa_installer", "/opt/amazon/efa_installed_packages", r"(?m)^# EFA installer version: *(\d\S*)"),
    ("efa", "/sys/module/efa/version", WORD),
    ("gdrcopy", "/sys/module/gdrdrv/version", WORD),
    ("lustre", "/sys/fs/lustre/version", r"(\d\S*)"),
    ("lustre", "/sys/module/lustre/version", WORD),
    ("neuron_driver", "/sys/module/neuron/version", WORD),
    ("ofed", "/sys/module/mlx5_core/version", WORD),
    ("slurm", "/opt/slurm/include/slurm/slurm_version.h", SLURM),
    ("slurm", "/usr/include/slurm/slurm_version.h", SLURM),
)
LIBRARIES = {
    "libcuda.so": "libcuda",
    "libnccl.so": "nccl",
    "libcudnn.so": "cudnn",
    "libgdrapi.so": "gdrcopy",
    "libnrt.so": "neuron_runtime",
}
PACKAGES = {
    "containerd": "containerd containerd.io",
    "docker": "docker-ce docker.io docker moby-engine",
    "nvidia_container_toolkit": "nvidia-container-toolkit",
    "enroot": "enroot",
    "pyxis": "nvslurm-plugin-pyxis pyxis",
    "libfabric": "libfabric-aws-bin libfabric-aws libfabric1-aws",
    "aws_ofi_nccl": "libnccl-ofi aws-ofi-nccl",
    "nccl": "libnccl2 libnccl",
    "gdrcopy": "gdrcopy libgdrapi",
    "lustre": "lustre-client-modules-aws lustre-client lustre-client-utils",
    "slurm": "slurm slurm-smd slurm-wlm slurmd",
    "neuron_driver": "aws-neuronx-dkms",
    "neuron_runtime": "aws-neuronx-runtime-lib",
    "neuron_tools": "aws-neuronx-tools",
    "rdma_core": "rdma-core",
    "dcgm": "datacenter-gpu-manager-4-core datacenter-gpu-manager",
    "glibc": "libc6 glibc",
    "python": "python3",
}
LOADED = ("libcuda.so.1", "libnvidia-ml.so.1", "libnccl.so.2", "libnccl-net.so")
KINDS = ("", "64", "/x86_64-linux-gnu", "/aarch64-linux-gnu")
FOLDERS = (  # besides the folders in /etc/ld.so.conf.d: the loader's own, and those of EFA's and NVIDIA's installers
    *(
        f"{root}/lib{kind}"
        for root in ("/usr", "", "/opt/amazon/ofi-nccl", "/opt/aws-ofi-nccl", CUDA)
        for kind in KINDS
    ),
    "/opt/nccl/build/lib",
    "/opt/aws/neuron/lib",
)
CONTAINERS = ("docker", "kubepods", "containerd", "libpod", "lxc")
DPKG = "/var/lib/dpkg/status"
INSTALLED = b" ok installed\n"  # the status of a package; it may be held, or marked to be removed
RPM = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
MAX_BYTES = 32 * 1024 * 1024


def read(node: Node) -> object:
    """Every installed component with its version, and where the loader finds the libraries of GPUs and NCCL."""
    kept: dict[str, dict[str, str]] = {}
    for component, path, pattern in FILES:
        node.at(path)
        _keep(kept, component, _from_file(node, path, pattern))
    libraries: dict[str, list[object]] = {name: [] for name in LOADED}
    for folder in _folders(node):
        names = _names(node, folder)
        for prefix, component in LIBRARIES.items():
            _keep(kept, component, _from_names(folder, names, prefix))
        for name in libraries.keys() & set(names):
            libraries[name].append(_library(node, f"{folder}/{name}"))
    compat = f"{CUDA}/compat"
    _keep(kept, "cuda_compat", _from_names(compat, _names(node, compat), "libcuda.so"))
    installed = packages(node, {name for names in PACKAGES.values() for name in names.split()})
    for component, wanted in PACKAGES.items():
        _keep(kept, component, next((installed[name] for name in wanted.split() if name in installed), None))
    _keep(kept, "packages", installed.get("error"))
    return {
        "container": _container(node),
        "components": kept,
        "toolkits": [name[5:] for name in _names(node, "/usr/local") if re.fullmatch(r"cuda-\d+\.\d+", name)][:16],
        "libraries": {name: files[:8] for name, files in libraries.items()},
    }


def _keep(kept: dict[str, dict[str, str]], component: str, entry: dict[str, str] | None) -> None:
    """Keep a version, unless the component already has one."""
    if entry and "version" not in kept.get(component, {}):
        kept[component] = entry


def _resolved(node: Node, path: str) -> str:
    """A path with all links followed, also those of its folders, under the node's root."""
    full = ""
    for word in path.strip("/").split("/") if node.root else ():
        full = node.path(f"{full}/{word}")[len(node.root) :]
    return full or path


def _from_file(node: Node, path: str, pattern: str) -> dict[str, str] | None:
    try:
        text = node.read(_resolved(node, path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return error(problem)
    match = re.search(pattern, text)
    if not match:
        return {"error": "EINVAL", "text": f"{path} names no version: {text[:120]!r}"}
    parts = match.groups()
    if pattern == SLURM:  # in hexadecimal digits; Slurm writes its month with two
        year, month, micro = (int(part, 16) for part in parts)
        parts = (str(year), f"{month:02d}", str(micro))
    return {"version": ".".join(parts)[:200], "from": path}


def _folders(node: Node) -> list[str]:
    """The folders in which libraries are looked for, each once."""
    configured = [
        line.strip()
        for name in _names(node, "/etc/ld.so.conf.d")[:64]
        if name.endswith(".conf")
        for line in str(node.text(f"/etc/ld.so.conf.d/{name}")).splitlines()
    ]
    seen: dict[str, str] = {}
    for folder in (*(line for line in configured[:64] if line.startswith("/")), *FOLDERS):
        seen.setdefault(os.path.realpath(node.root + _resolved(node, folder)), folder)
    return list(seen.values())


def _names(node: Node, folder: str) -> list[str]:
    try:
        return node.names(_resolved(node, folder))
    except OSError:
        return []


def _from_names(folder: str, names: list[str], prefix: str) -> dict[str, str] | None:
    """The newest version in the names of a library's files: `libnccl.so.2.27.5`."""
    tails = (name[len(prefix) + 1 :] for name in names if name.startswith(prefix + "."))
    versions = [version for version in tails if re.fullmatch(r"\d{1,9}(\.\d{1,9})+", version)]
    if not versions:
        return None
    newest = max(versions, key=lambda version: [int(number) for number in version.split(".")])
    return {"version": newest, "from": f"{folder}/{prefix}.{newest}"}


def _library(node: Node, path: str) -> object:
    """The path of a library and its size; an error in place of the size if its link is dangling."""
    try:
        return {"path": path, "bytes": os.stat(node.root + _resolved(node, path)).st_size}
    except OSError as problem:
        return {"path": path, "bytes": error(problem)}


def _container(node: Node) -> str:
    """The kind of container that these files are in; empty for a host."""
    if node.exists("/run/.containerenv"):
        return "podman"
    if node.exists("/.dockerenv"):
        return "docker"
    if node.exists("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    groups = str(node.text("/proc/1/cgroup", absent=""))
    return next((kind for kind in CONTAINERS if kind in groups), "")


def packages(node: Node, wanted: Iterable[str]) -> Versions:
    """The version of each wanted package that is installed; under `error` why the database could not be read."""
    node.at(DPKG)
    try:
        return _dpkg(node, set(wanted))
    except FileNotFoundError:
        pass
    except OSError as problem:
        return {"error": error(problem)}
    if not any(node.exists(folder) for folder in RPM):
        return {}
    try:
        answer = command(node, "rpm", "-q", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n", *sorted(wanted))
    except (Absent, Denied) as why:
        return {"error": {"error": type(why).__name__.upper(), "text": str(why)}}
    lines = str(answer["output"]).splitlines()
    installed = {pair[0]: {"version": pair[1], "from": "rpm"} for pair in map(str.split, lines) if len(pair) == 2}
    for line in lines:
        if line.startswith("error:"):
            installed["error"] = {"error": "EIO", "text": line[:200]}
    return installed


def _dpkg(node: Node, wanted: set[str]) -> Versions:
    """The packages in dpkg's database that are completely installed. Raises OSError."""
    rows: Versions = {}
    with open(node.path(DPKG), "rb") as file:
        for block in file.read(MAX_BYTES).split(b"\n\n"):
            name = block[9 : block.find(b"\n")].decode("utf-8", "replace")
            if name in wanted and INSTALLED in block:
                version = re.search(rb"\nVersion: (\S+)", block)
                if version:
                    rows[name] = {"version": version[1].decode("utf-8", "replace")[:200], "from": DPKG}
    return rows
