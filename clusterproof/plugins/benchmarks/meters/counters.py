"""Which network carried a run, by the counters of the nodes' devices."""

from __future__ import annotations

from collections.abc import Mapping

EFA = "efa"


def efa_devices(count: int | str) -> str:
    """`efa, 32 devices`."""
    return f"{EFA}, {count} device{'' if str(count) == '1' else 's'}"


def proven_network(sent_bytes: Mapping[str, int], carried_bytes: int) -> str:
    """The network whose devices sent at least what the run carried; empty where the counters do not account for it.

    The device that sent most decides which: one Ethernet device by its name, EFA's by their number.
    """
    if carried_bytes <= 0 or not sent_bytes:
        return ""
    most = max(sent_bytes, key=lambda name: sent_bytes[name])
    kind, _, device = most.partition(":")
    alike = {name: sent for name, sent in sent_bytes.items() if name.partition(":")[0] == kind and sent > 0}
    if kind != EFA and sent_bytes[most] >= carried_bytes:
        return device or most
    if sum(alike.values()) < carried_bytes:
        return ""
    share = sent_bytes[most] // 10  # a device that sent far less than the busiest carried something else
    carrying = sorted(name.partition(":")[2] for name, sent in alike.items() if sent >= share)
    return efa_devices(len(carrying)) if kind == EFA else ", ".join(carrying)
