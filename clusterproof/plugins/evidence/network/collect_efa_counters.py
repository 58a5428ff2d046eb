"""EFA's hardware counters, read twice: /sys/class/infiniband/*/hw_counters and ports/1/hw_counters."""

from __future__ import annotations

import time
from collections.abc import Callable

from clusterproof.plugins.agent.reading import Absent, Node

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

FOLDER = "/sys/class/infiniband"
BETWEEN_LOOKS_S = 0.4
OF_A_PORT = (
    "rx_drops",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
    "retrans_timeout_events",
    "retrans_pkts",
)
OF_A_DEVICE = ("no_completion_cmds",)


def read(node: Node) -> object:
    """The counters of each EFA device, read twice, and the seconds between the two reads. Raises Absent."""
    devices = [name for name in node.names(FOLDER) if _is_efa(node, name)]
    if not devices:
        raise Absent(f"no EFA device in {FOLDER}")
    return twice(node, "devices", devices, lambda name: _counters(node, f"{FOLDER}/{name}"))


def twice(node: Node, key: str, names: list[str], look: Callable[[str], dict[str, object]]) -> dict[str, object]:
    """The counters of each named device from two reads, as a list under `key`, and the `seconds` between the reads.

    If a read hangs, the devices that were not read again keep their first values only.
    """

    def at_first(name: str) -> dict[str, Any]:
        return {"name": name, "counters": {counter: [value] for counter, value in look(name).items()}}

    def at_both(name: str) -> dict[str, Any]:
        first, second = rows[name]["counters"], look(name)
        pairs = {counter: [*first.get(counter, [None]), second.get(counter)] for counter in {**first, **second}}
        return {"name": name, "counters": pairs}

    rows = {row["name"]: row for row in node.each(key, names, at_first)[key]}
    began = time.monotonic()
    time.sleep(BETWEEN_LOOKS_S)
    values = node.each(key, rows, at_both, {"seconds": round(time.monotonic() - began, 3)})
    return {**values, "seconds": round(time.monotonic() - began, 3)}


def _is_efa(node: Node, name: str) -> bool:
    vendor, device = (str(node.text(f"{FOLDER}/{name}/device/{word}")) for word in ("vendor", "device"))
    return vendor == "0x1d0f" and device.startswith("0xefa")


def _counters(node: Node, device: str) -> dict[str, object]:
    """The counters that this driver has."""
    node.at(device)
    paths = {name: f"{device}/ports/1/hw_counters/{name}" for name in OF_A_PORT}
    paths.update({name: f"{device}/hw_counters/{name}" for name in OF_A_DEVICE})
    texts = {name: node.text(path, absent="") for name, path in paths.items()}
    return {name: _number(text) for name, text in texts.items() if text != ""}


def _number(text: object) -> object:
    if not isinstance(text, str):
        return text
    return int(text) if text.isdecimal() else {"error": "EINVAL", "text": f"no number: {text[:40]!r}"}
