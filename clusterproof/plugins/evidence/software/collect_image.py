"""The contents of a machine image: cloud-init's state, leftovers, and container runtimes."""

from __future__ import annotations

import errno
import json
import os
import re
import stat

from clusterproof.plugins.agent.reading import MAX_FILE_BYTES, Absent, Node, error
from clusterproof.plugins.agent.tools import find
from clusterproof.plugins.evidence.network.collect_rdma import MODULES

RESULTS = ("/run/cloud-init/result.json", "/var/lib/cloud/data/result.json")
LEFT = (".aws/credentials", ".bash_history", ".ssh/id_rsa", ".ssh/id_ecdsa", ".ssh/id_ed25519")  # in a home folder
KEYS = ".ssh/authorized_keys"
DUMPS = ("/var/crash", "/var/lib/systemd/coredump")
UNDER_WAY = ("/run/yum.pid", "/run/dnf.pid")  # while these exist, a package manager has not finished
PROGRAMS = ("containerd", "dockerd", "nvidia-container-runtime", "nvidia-container-cli", "enroot")
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
ENROOT = "/etc/enroot"
MACHINE_ID = "/etc/machine-id"
FIRST_BOOT = "/var/lib/cloud/instance/sem"  # where cloud-init marks what it does once, at an instance's first boot
SLURM = ("/etc/slurm", "/opt/slurm/etc", "/etc/slurm-llnl")
MAX = 32  # entries of any list that is looked at


def read(node: Node) -> object:
    """Names and sizes; never the contents of a file that may hold a secret."""
    node.at("what was left behind")
    users = [name for name in node.names("/home")[:MAX] if os.path.isdir(node.path(f"/home/{name}"))]
    homes = {"root": "/root", **{name: f"/home/{name}" for name in users}}
    homely = [file for home in homes.values() for name in LEFT for file in _file_of_user(node, home, name)]
    dumps = [file for folder in DUMPS for file in _dumps(node, folder)]
    updates = "/var/lib/dpkg/updates"
    return {
        "cloud_init": _cloud_init(node),
        "left": [file for file in (*homely, *dumps) if file["bytes"]],
        "keys": {user: keys for user, home in homes.items() for keys in _keys(node, home)},
        "under_way": [path for path in UNDER_WAY if node.exists(path)]
        + [f"{updates}/{name}" for name in _names(node, updates)[:MAX] if name.isdecimal()],
        "programs": {name: path for name in PROGRAMS for path in _program(node, name)},
        "toolkit": [file["bytes"] for file in _file(node, TOOLKIT)],
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
    """The crash dumps in a folder; the folder itself if it may not be read."""
    try:
        names = node.names(folder)
    except OSError as problem:
        return [{"path": folder, "bytes": error(problem)}]
    paths = (f"{folder}/{name}" for name in names[:MAX] if name[0] != ".")
    return [file for path in paths if not os.path.islink(node.root + path) for file in _file(node, path)]


def _file(node: Node, path: str) -> list[dict[str, object]]:
    """A file and its size, or the error in reading it; empty if there is no such file."""
    try:
        return [{"path": path, "bytes": os.stat(node.path(path)).st_size}]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        return [{"path": path, "bytes": error(problem)}]


def _read_below(node: Node, folder: str, names: list[str], most: int) -> tuple[str, int]:
    """The first bytes of a file below a user's folder, as text, and its size.

    It is read with the rights of the folder's owner if possible, without following links, and only if it is a regular
    file: the user may have put anything there. Raises OSError.
    """
    folders = [os.open(node.path(folder), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    user, group = os.geteuid(), os.getegid()
    try:
        _become(os.fstat(folders[0]))
        for name in names[:-1]:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            folders.append(os.open(name, flags, dir_fd=folders[-1]))
        info = os.lstat(names[-1], dir_fd=folders[-1])
        _require_file(info)
        if not most:
            return "", info.st_size
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        folders.append(os.open(names[-1], flags, dir_fd=folders[-1]))
        _require_file(os.fstat(folders[-1]))
        return os.read(folders[-1], most).decode("utf-8", "replace"), info.st_size
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, "/".join([folder, *names])) from None
    finally:
        os.seteuid(user)
        os.setegid(group)
        for descriptor in folders:
            os.close(descriptor)


def _become(owner: os.stat_result) -> None:
    """Root is the owner of this from now on, where that is another user that it may become."""
    if os.geteuid() or not owner.st_uid:
        return
    try:
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
    except OSError:
        pass  # a user of another user namespace, or no privilege


def _require_file(info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.ELOOP if stat.S_ISLNK(info.st_mode) else errno.EINVAL, "not a file")


def _file_of_user(node: Node, home: str, name: str) -> list[dict[str, object]]:
    """As `_file`, in a home folder; a link to /dev/null, as for a shell's history, counts as no file."""
    path = f"{home}/{name}"
    try:
        return [{"path": path, "bytes": _read_below(node, home, name.split("/"), 0)[1]}]
    except FileNotFoundError:
        return []
    except OSError as problem:
        return [] if node.linked(path) == "null" else [{"path": path, "bytes": error(problem)}]


def _cloud_init(node: Node) -> object:
    """The errors of cloud-init's last run; null if there is no result."""
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
    """How many keys may log in to an account, and how many of them are restricted to a command."""
    try:
        text = _read_below(node, home, KEYS.split("/"), MAX_FILE_BYTES)[0]
    except FileNotFoundError:
        return []
    except OSError as problem:
        return [error(problem)]
    lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
    return [{"keys": len(lines), "commands": sum("command=" in line for line in lines)}] if lines else []


def _first_boot(node: Node) -> object:
    """When cloud-init first ran on this instance, in seconds since 1970; null if it left no marker."""
    try:
        times = [os.stat(node.path(f"{FIRST_BOOT}/{name}")).st_mtime for name in node.names(FIRST_BOOT)]
    except OSError as problem:
        return error(problem)
    return int(min(times)) if times else None


def _identity(node: Node) -> list[dict[str, object]]:
    """When the files were written that must be unique to a machine: its machine-id and sshd's host keys."""
    names = (name for name in _names(node, "/etc/ssh") if name.startswith("ssh_host_") and name.endswith("_key"))
    return [
        {"path": path, "written": written}
        for path in (MACHINE_ID, *(f"/etc/ssh/{name}" for name in names))
        for written in _written(node, path)
    ]


def _written(node: Node, path: str) -> list[object]:
    """When a file was written; empty if it is missing or empty, as it should be in an image."""
    try:
        info = os.stat(node.path(path))
    except FileNotFoundError:
        return []
    except OSError as problem:
        return [error(problem)]
    return [int(info.st_mtime)] if info.st_size else []


def _modules(node: Node) -> object:
    """Which of the relevant kernel modules are installed for the running kernel."""
    release = node.text("/proc/sys/kernel/osrelease")
    if isinstance(release, dict):
        return release
    texts = [node.text(f"/lib/modules/{release}/{name}", absent="") for name in ("modules.dep", "modules.builtin")]
    if isinstance(texts[0], dict):
        return texts[0]
    if not texts[0] or len(texts[0]) >= MAX_FILE_BYTES - 1:
        return {"error": "EFBIG" if texts[0] else "ENOENT", "text": f"/lib/modules/{release}/modules.dep"}
    there = {
        match.replace("-", "_")
        for text in texts
        for match in re.findall(r"(?m)^(?:[^/\s]*/)*([^/\s]+)\.ko\b", str(text))
    }
    return [name for name in MODULES if name in there]


def _program(node: Node, name: str) -> list[str]:
    try:
        return [find(node, name)]
    except Absent:
        return []


def _plugins(node: Node) -> list[object]:
    """Slurm's plug-ins in plugstack.conf: whether required or optional, the library's path, and its size."""
    files = [f"{folder}/plugstack.conf" for folder in SLURM]
    files += [
        f"{folder}/plugstack.conf.d/{name}" for folder in SLURM for name in _names(node, f"{folder}/plugstack.conf.d")
    ]
    lines = [line.split() for file in files[:MAX] for line in str(node.text(file, absent="")).splitlines()]
    return [
        {"need": parts[0], "path": parts[1], "bytes": next((file["bytes"] for file in _file(node, parts[1])), None)}
        for parts in lines
        if len(parts) > 1 and parts[0] in ("required", "optional") and parts[1][0] == "/"
    ]
