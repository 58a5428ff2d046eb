"""Kernel limits and usage of open files and threads, settings, control groups: /proc/sys, pids.max."""

from __future__ import annotations

import os
from collections.abc import Iterable

from clusterproof.plugins.agent.reading import Node, error
from clusterproof.plugins.evidence.host.collect_owner import control_groups, daemons

FILES = "/proc/sys/fs/file-nr"
LOAD = "/proc/loadavg"
KERNEL = "/proc/sys/kernel"
SETTINGS = ("/proc/sys/vm/overcommit_memory", "/proc/sys/net/core/somaxconn", "/proc/sys/net/ipv4/ip_local_port_range",
            "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/tainted", "/sys/devices/system/cpu/isolated",
            "/etc/ld.so.preload")  # fmt: skip
OF_ALL_USERS = ("/tmp", "/var/tmp", "/dev/shm")
DAEMONS = ("slurmd", "kubelet", "containerd", "sshd")
ABOVE_PODS = ("/sys/fs/cgroup/kubepods.slice", "/sys/fs/cgroup/pids/kubepods.slice",
              "/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/pids/kubepods")  # fmt: skip


def read(node: Node) -> object:
    """Usage and maximum; for control groups those with a limit; settings as written."""
    files = _words(node, FILES)
    return {
        "open_files": _number(files, 0, FILES),
        "max_files": _number(files, 2, FILES),
        "threads": _threads(node),
        "pid_max": _pid_max(node),
        "threads_max": _number(_words(node, f"{KERNEL}/threads-max"), 0, f"{KERNEL}/threads-max"),
        "groups": _groups(node),
        "settings": {path: node.text(path, absent="") for path in SETTINGS},
        "modes": {path: _mode(node, path) for path in OF_ALL_USERS},
    }


def _mode(node: Node, path: str) -> object:
    try:
        return os.stat(node.path(path)).st_mode & 0o7777
    except OSError as problem:
        return error(problem)


def _words(node: Node, path: str) -> object:
    text = node.text(path)
    return text.split() if isinstance(text, str) else text


def _number(fields: object, index: int, path: str) -> object:
    if not isinstance(fields, list):
        return fields
    word = fields[index] if len(fields) > index else ""
    return int(word) if word.isdecimal() else {"error": "EINVAL", "text": f"{path}: no number: {word[:40]!r}"}


def _threads(node: Node) -> object:
    """The kernel's total number of threads, whatever this process sees: the fourth word is `running/all`."""
    fields = _words(node, LOAD)
    return _number([word.partition("/")[2] for word in fields[3:4]] if isinstance(fields, list) else fields, 0, LOAD)


def _pid_max(node: Node) -> object:
    """Since Linux 6.14 that of the PID namespace which the reader is in, whatever root it is read under."""
    path = f"{KERNEL}/pid_max"
    if node.root and node.linked("/proc/1/ns/pid") != Node().linked("/proc/self/ns/pid"):
        return {"error": "EPERM", "text": f"{path}: this process is not in the node's PID namespace"}
    return _number(_words(node, path), 0, path)


def _groups(node: Node) -> object:
    """The processes and threads in each control group, and the most that it may have."""
    paths = dict.fromkeys(path for path in ABOVE_PODS if node.exists(path))
    for pid in daemons(node, DAEMONS).values():
        if isinstance(pid, OSError):
            continue  # whose program only root may know: its groups are not
        try:
            paths.update(dict.fromkeys(group for _, group in control_groups(node, pid, "pids")))
        except FileNotFoundError:
            continue  # a kernel without control groups, or it ended meanwhile
        except OSError as problem:
            return error(problem)
    return _limited(node, paths)


def _limited(node: Node, paths: Iterable[str]) -> list[dict[str, object]]:
    """Of control groups those that have a limit."""
    rows: list[dict[str, object]] = []
    for path in paths:
        limit = node.text(f"{path}/pids.max", absent="max")
        if limit != "max":
            node.at(path)
            pids = node.text(f"{path}/pids.current")
            rows.append({"path": path, "pids": _whole(pids), "max": _whole(limit)})
    return rows


def _whole(text: object) -> object:
    return _number([text], 0, "pids.max") if isinstance(text, str) else text
