"""What a machine image carries: what cloud-init says of itself, what was left behind, what runs containers."""

from __future__ import annotations

import json
import os
import re

from clusterproof.plugins.agent.reading import MAX_FILE_BYTES, Absent, Node, error
from clusterproof.plugins.agent.tools import find
from clusterproof.plugins.evidence.network.collect_rdma import MODULES

RESULTS = ("/run/cloud-init/result.json", "/var/lib/cloud/data/result.json")
LEFT = (".aws/credentials", ".bash_history", ".ssh/id_rsa", ".ssh/id_ecdsa", ".ssh/id_ed25519")  # in a home
DUMPS = ("/var/crash", "/var/lib/systemd/coredump")
UNDER_WAY = ("/run/yum.pid", "/run/dnf.pid")  # while these are there, a package manager has not ended
PROGRAMS = ("containerd", "dockerd", "nvidia-container-runtime", "nvidia-container-cli", "enroot")
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
ENROOT = "/etc/enroot"
MACHINE_ID = "/etc/machine-id"
FIRST_BOOT = "/var/lib/cloud/instance/sem"  # cloud-init marks here what it does once, at an instance's first boot
SLURM = ("/etc/slurm", "/opt/slurm/etc", "/etc/slurm-llnl")
MAX = 32  # of anything in a list


def read(node: Node) -> object:
    """Names and sizes; never what is in a file that may hold a secret."""
    node.at("what was left behind")
    homes = {"root": "/root", **{name: f"/home/{name}" for name in node.names("/home")[:MAX]}}
    homely = [data for home in homes.values() for name in LEFT for data in _file(node, f"{home}/{name}")]
    dumps = [data for folder in DUMPS for data in _dumps(node, folder)]
    updates = "/var/lib/dpkg/updates"
    return {
        "cloud_init": _cloud_init(node),
        "left": [data for data in [*dumps, *homely] if data["bytes"]][:MAX],
        "keys": {user: keys for user, home in homes.items() for keys in _keys(node, home)},
        "under_way": [path for path in UNDER_WAY if node.exists(path)]
        + [f"{updates}/{name}" for name in _names(node, updates)[:MAX] if name.isdigit()],
        "programs": {name: path for name in PROGRAMS for path in _program(node, name)},
        "toolkit": [data["bytes"] for data in _file(node, TOOLKIT)],
        "enroot": node.exists(ENROOT),
        "plugins": _plugins(node)[:MAX],
        "first_boot": _first_boot(node),
        "identity": _identity(node),
        "modules": _modules(node),
    }


def _names(node: Node, folder: str) -> list[str]:
    try:
        return node.names(folder)
    except OSError:
        return []


def _dumps(node: Node, folder: str) -> list[dict[str, object]]:
    """The crash dumps in a folder; the folder itself where it may not be looked into."""
    try:
        names = node.names(folder)
    except OSError as problem:
        return [{"path": folder, "bytes": error(problem)}]
    return [data for name in names[:MAX] if name[0] != "." for data in _file(node, f"{folder}/{name}")]


def _file(node: Node, path: str) -> list[dict[str, object]]:
    """A file and its size, or why it is not known; nothing where there is no such file."""
    try:
        return [{"path": path, "bytes": os.stat(node.path(path)).st_size}]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        return [{"path": path, "bytes": error(problem)}]


def _cloud_init(node: Node) -> object:
    """The errors of its last run; null where there is no result."""
    for path in RESULTS:
        text = node.text(path, absent="")
        if isinstance(text, dict):
            return text
        if text:
            try:
                errors = json.loads(text)["v1"]["errors"]
                return {"errors": [str(entry)[:300] for entry in errors[:8]]}
            except (ValueError, KeyError, TypeError, RecursionError):
                return {"error": "EINVAL", "text": f"{path} is not understood: {text[:80]!r}"}
    return None


def _keys(node: Node, home: str) -> list[object]:
    """How many keys may log in to an account, and how many of them may only run a command."""
    text = node.text(f"{home}/.ssh/authorized_keys", absent="")
    if isinstance(text, dict):
        return [text]
    lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
    return [{"keys": len(lines), "commands": sum("command=" in line for line in lines)}] if lines else []


def _first_boot(node: Node) -> object:
    """When cloud-init first ran on this instance, in seconds since 1970; null where it left no mark."""
    try:
        times = [os.stat(node.path(f"{FIRST_BOOT}/{name}")).st_mtime for name in node.names(FIRST_BOOT)]
    except OSError as problem:
        return error(problem)
    return int(min(times)) if times else None


def _identity(node: Node) -> list[dict[str, object]]:
    """When the files were written that must be each machine's own: its machine-id and the host keys of its sshd."""
    names = (name for name in _names(node, "/etc/ssh") if name.startswith("ssh_host_") and name.endswith("_key"))
    return [
        {"path": path, "written": written}
        for path in (MACHINE_ID, *(f"/etc/ssh/{name}" for name in names))
        for written in _written(node, path)
    ]


def _written(node: Node, path: str) -> list[object]:
    """When a file was written; nothing where it is not there or empty, as it should be in an image."""
    try:
        data = os.stat(node.path(path))
    except FileNotFoundError:
        return []
    except OSError as problem:
        return [error(problem)]
    return [int(data.st_mtime)] if data.st_size else []


def _modules(node: Node) -> object:
    """Which of the kernel modules that matter here are installed for the kernel that runs."""
    release = node.text("/proc/sys/kernel/osrelease")
    if isinstance(release, dict):
        return release
    data = [node.text(f"/lib/modules/{release}/{name}", absent="") for name in ("modules.dep", "modules.builtin")]
    if isinstance(data[0], dict):
        return data[0]
    if not data[0] or len(data[0]) >= MAX_FILE_BYTES - 1:
        return {"error": "EFBIG" if data[0] else "ENOENT", "text": f"/lib/modules/{release}/modules.dep"}
    found = {match.replace("-", "_") for text in data for match in re.findall(r"(?m)^\S*?([^/\s]+)\.ko\b", str(text))}
    return [name for name in MODULES if name in found]


def _program(node: Node, name: str) -> list[str]:
    try:
        return [find(node, name)]
    except Absent:
        return []


def _plugins(node: Node) -> list[object]:
    """Slurm's plug-ins by plugstack.conf: how each line says that it is needed, its library, and its size."""
    files = [f"{folder}/plugstack.conf" for folder in SLURM]
    files += [
        f"{folder}/plugstack.conf.d/{name}" for folder in SLURM for name in _names(node, f"{folder}/plugstack.conf.d")
    ]
    lines = [line.split() for file in files[:MAX] for line in str(node.text(file, absent="")).splitlines()]
    return [
        {"need": words[0], "path": words[1], "bytes": next((data["bytes"] for data in _file(node, words[1])), None)}
        for words in lines
        if len(words) > 1 and words[0] in ("required", "optional") and words[1][0] == "/"
    ]
