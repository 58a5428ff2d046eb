"""Counts what the network devices of this node have sent. Travels; standard library only, for Python 3.8."""

from __future__ import annotations

import os

RDMA = "/sys/class/infiniband"
INTERFACES = "/proc/net/dev"
WORD_BYTES = 4  # InfiniBand counts words


def sent_bytes() -> dict[str, int]:
    """By device: `efa:rdmap79s0`, `rdma:mlx5_0`, `net:eth0`; unreadable ones are omitted."""
    sent: dict[str, int] = {}
    for device in names(RDMA):
        for port in names(f"{RDMA}/{device}/ports"):
            at = f"{RDMA}/{device}/ports/{port}"
            add(sent, f"efa:{device}", f"{at}/hw_counters/tx_bytes", 1)
            if f"efa:{device}" not in sent:
                add(sent, f"rdma:{device}", f"{at}/counters/port_xmit_data", WORD_BYTES)
    sent.update(of_interfaces())
    return sent


def add(sent: dict[str, int], name: str, file: str, factor: int) -> None:
    """Add a port's counter to its device."""
    try:
        with open(file) as counter:
            sent[name] = sent.get(name, 0) + factor * int(counter.read())
    except (OSError, ValueError):
        return


def of_interfaces() -> dict[str, int]:
    """By interface, without loopback."""
    try:
        with open(INTERFACES) as table:
            rows = [line.partition(":") for line in table if ":" in line]
        return {f"net:{row[0].strip()}": int(row[2].split()[8]) for row in rows if row[0].strip() != "lo"}
    except (OSError, ValueError, IndexError):
        return {}


def names(folder: str) -> list[str]:
    """The sorted entries of a folder."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def between(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """The bytes sent between two readings, for devices in both."""
    return {name: after[name] - sent for name, sent in before.items() if after.get(name, -1) >= sent}
