"""What a login, and the daemons that start jobs, may lock, open and start: getrlimit and /proc/PID/limits."""

from __future__ import annotations

import resource

from clusterproof.plugins.probe.reading import Node, error

DAEMONS = ("slurmd", "containerd")
LIMITS = {
    "memlock": ("Max locked memory", resource.RLIMIT_MEMLOCK),
    "nofile": ("Max open files", resource.RLIMIT_NOFILE),
    "nproc": ("Max processes", resource.RLIMIT_NPROC),
    "stack": ("Max stack size", resource.RLIMIT_STACK),
}


def read(node: Node) -> object:
    """The soft limits, memory in bytes; null is unlimited."""
    daemons: dict[str, object] = {}
    for pid in sorted((name for name in node.names("/proc") if name.isdigit()), key=int):
        try:
            name = node.read(f"/proc/{pid}/comm").strip()
        except OSError:
            continue  # it ended meanwhile
        if name in DAEMONS and name not in daemons:
            node.at(f"/proc/{pid}/limits of {name}")
            daemons[name] = _of_process(node, pid)
    return {"login": {name: _own(number) for name, (_, number) in LIMITS.items()}, "daemons": daemons}


def _own(number: int) -> int | None:
    soft = resource.getrlimit(number)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _of_process(node: Node, pid: str) -> dict[str, object]:
    path = f"/proc/{pid}/limits"
    try:
        lines = node.read(path).splitlines()
    except OSError as problem:
        return dict(error(problem))
    return {name: _soft(lines, words, path) for name, (words, _) in LIMITS.items()}


def _soft(lines: list[str], words: str, path: str) -> object:
    soft = next((line[len(words) :].split()[:1] for line in lines if line.startswith(words)), [])
    if soft == ["unlimited"]:
        return None
    if soft and soft[0].isdigit():
        return int(soft[0])
    return {"error": "EINVAL", "text": f"{path}: no soft limit of {words.lower()}"}
