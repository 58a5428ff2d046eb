"""Memory: /proc/meminfo, huge pages, NUMA nodes, and NCCL's leftovers in /dev/shm."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.reading import Node, error
from clusterproof.plugins.evidence.storage.collect_mounts import unmounted

KEYS = {
    "total_kib": "MemTotal",
    "available_kib": "MemAvailable",
    "swap_total_kib": "SwapTotal",
    "swap_free_kib": "SwapFree",
}
CORRUPTED = "HardwareCorrupted"  # memory in pages taken out of use; not all kernels count it
HUGE = "/sys/kernel/mm/hugepages"
NUMA = "/sys/devices/system/node"
MAX_SEGMENTS = 100_000  # whose size and age are looked at


def read(node: Node) -> object:
    """The amount, setup and NUMA placement of memory."""
    return {
        **_sizes(node),
        "arcstats": node.text("/proc/spl/kstat/zfs/arcstats", absent=""),
        "huge_pages": _huge_pages(node),
        "transparent": node.text("/sys/kernel/mm/transparent_hugepage/enabled", absent=""),
        "numa_balancing": node.text("/proc/sys/kernel/numa_balancing", absent=""),
        "numa": _numa(node),
        "nccl_shm": _nccl_shm(node),
    }


def _sizes(node: Node) -> dict[str, object]:
    try:
        rows = _rows(node.read("/proc/meminfo"))
    except OSError as problem:
        return {key: error(problem) for key in KEYS}
    absent = {"error": "EINVAL", "text": "/proc/meminfo: not there, or no number"}
    return {**{key: rows.get(word, absent) for key, word in KEYS.items()}, "corrupted_kib": rows.get(CORRUPTED)}


def _rows(text: str) -> dict[str, int]:
    """`MemTotal:  1234 kB`, also with `Node 0` before it."""
    rows = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        size = value.split()
        if size and size[0].isdecimal():
            rows[key.split(" ")[-1]] = int(size[0])
    return rows


def _huge_pages(node: Node) -> list[dict[str, object]]:
    """Each size of page that can be reserved."""
    return [
        {
            "size_kib": int(name[10:-2]),
            "pages": _count(node, f"{HUGE}/{name}/nr_hugepages"),
            "free": _count(node, f"{HUGE}/{name}/free_hugepages"),
        }
        for name in node.names(HUGE)
        if name[10:-2].isdecimal()  # hugepages-2048kB
    ]


def _count(node: Node, path: str) -> object:
    text = node.text(path)
    return int(text) if isinstance(text, str) and text.isdecimal() else text


def _numa(node: Node) -> list[dict[str, object]]:
    """The NUMA nodes with their memory and their CPUs."""
    names = [name for name in node.names(NUMA) if name[:4] == "node" and name[4:].isdecimal()]
    return [
        {"node": int(name[4:]), "memory_kib": _memory_of(node, name), "cpus": node.text(f"{NUMA}/{name}/cpulist")}
        for name in sorted(names, key=lambda name: int(name[4:]))
    ]


def _memory_of(node: Node, name: str) -> object:
    try:
        return _rows(node.read(f"{NUMA}/{name}/meminfo")).get("MemTotal", 0)
    except OSError as problem:
        return error(problem)


def _nccl_shm(node: Node) -> object:
    """NCCL's segments in /dev/shm: a job that exits cleanly leaves none."""
    try:
        names = [name for name in unmounted(node, "/dev/shm") if name.startswith("nccl-")]
    except OSError as problem:
        return error(problem)
    now, files = time.time(), []
    for name in names[:MAX_SEGMENTS]:
        try:
            files.append(os.lstat(node.path(f"/dev/shm/{name}")))
        except OSError:
            continue  # it was removed meanwhile
    return {
        "count": len(names),
        "kib": sum(segment.st_blocks for segment in files) // 2,
        "left_out": max(0, len(names) - MAX_SEGMENTS),
        "oldest_s": round(max((now - segment.st_mtime for segment in files), default=0.0), 1),
    }
