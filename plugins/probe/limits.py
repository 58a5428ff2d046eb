"""How much memory a login, and the daemons that start jobs, may lock: getrlimit and /proc/PID/limits."""

from __future__ import annotations

import resource

from clusterproof.plugins.probe.reading import Node, error

DAEMONS = ("slurmd", "containerd")
LINE = "Max locked memory"


def read(node: Node) -> object:
    """The soft limits in bytes; null is unlimited."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    daemons: dict[str, object] = {}
    for pid in sorted((name for name in node.names("/proc") if name.isdigit()), key=int):
        try:
            name = node.read(f"/proc/{pid}/comm").strip()
        except OSError:
            continue  # it ended meanwhile
        if name in DAEMONS and name not in daemons:
            node.at(f"/proc/{pid}/limits of {name}")
            daemons[name] = _memlock(node, pid)
    return {"login": {"memlock": None if soft == resource.RLIM_INFINITY else soft}, "daemons": daemons}


def _memlock(node: Node, pid: str) -> dict[str, object]:
    path = f"/proc/{pid}/limits"
    try:
        lines = node.read(path).splitlines()
    except OSError as problem:
        return dict(error(problem))
    soft = next((line[len(LINE) :].split()[0] for line in lines if line.startswith(LINE)), "")
    if soft == "unlimited" or soft.isdigit():
        return {"memlock": int(soft) if soft.isdigit() else None}
    return {"error": "EINVAL", "text": f"{path}: no soft limit of {LINE.lower()}"}
