"""EFA's hardware counters, twice: /sys/class/infiniband/*/hw_counters and ports/1/hw_counters."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Absent, Node

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
    """Each counter of each EFA device at both looks, and the seconds between them. Raises Absent."""
    devices = [name for name in node.names(FOLDER) if _is_efa(node, name)]
    if not devices:
        raise Absent(f"no EFA device in {FOLDER}")
    first, began = _look(node, devices), time.monotonic()
    time.sleep(BETWEEN_LOOKS_S)
    second, seconds = _look(node, devices), time.monotonic() - began
    return {
        "seconds": round(seconds, 3),
        "devices": [{"name": name, "counters": _pairs(first[name], second[name])} for name in devices],
    }


def _is_efa(node: Node, name: str) -> bool:
    vendor, device = (str(node.text(f"{FOLDER}/{name}/device/{word}")) for word in ("vendor", "device"))
    return vendor == "0x1d0f" and device.startswith("0xefa")


def _look(node: Node, devices: list[str]) -> dict[str, dict[str, object]]:
    return {name: _counters(node, f"{FOLDER}/{name}") for name in devices}


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


def _pairs(first: dict[str, object], second: dict[str, object]) -> dict[str, object]:
    return {name: [first.get(name), second.get(name)] for name in {**first, **second}}
