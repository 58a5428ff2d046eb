"""The running system: /proc/uptime, /proc/sys/kernel, /proc/meminfo, /etc/os-release."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.reading import Node, error


def read(node: Node) -> object:
    """Uptime, boot id, names, memory and CPUs."""
    return {
        "uptime_s": _number(node, "/proc/uptime", ""),
        "boot_id": node.text("/proc/sys/kernel/random/boot_id"),
        "hostname": node.text("/proc/sys/kernel/hostname"),
        "kernel": node.text("/proc/sys/kernel/osrelease"),
        "os": _os(node),
        "memory_kib": _number(node, "/proc/meminfo", "MemTotal:"),
        "cpus": os.cpu_count(),
        "now": round(time.time(), 3),
        "uid": os.geteuid(),
    }


def _number(node: Node, path: str, key: str) -> object:
    """The number after `key` in a file, or an error object."""
    try:
        text = node.read(path)
        word = text[text.index(key) + len(key) :].split()[0]
        return float(word) if "." in word else int(word)
    except OSError as problem:
        return error(problem)
    except (ValueError, IndexError):
        return {"error": "EINVAL", "text": f"{path}: no number {key}"}


def _os(node: Node) -> object:
    try:
        lines = node.read("/etc/os-release").splitlines()
    except OSError as problem:
        return error(problem)
    rows = dict(line.split("=", 1) for line in lines if "=" in line)
    return (rows.get("PRETTY_NAME") or rows.get("NAME") or "").strip().strip("\"'")
