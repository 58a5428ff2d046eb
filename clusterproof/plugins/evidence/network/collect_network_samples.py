"""Samples the network while a job runs: bytes, errors, and links that changed."""

from __future__ import annotations

import time

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.network.collect_interfaces import read as read_interfaces
from clusterproof.plugins.evidence.network.collect_rdma import read as read_rdma

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

COLUMNS = ("net_rx", "net_tx", "net_errors", "rdma_rx", "rdma_tx", "rdma_errors")
NET, RDMA = "/sys/class/net", "/sys/class/infiniband"
MAX_DEVICES = 128
MB = 1e6
RECEIVED = ("rx_bytes", "rdma_read_bytes", "rdma_write_recv_bytes")  # EFA's, under hw_counters
SENT = ("tx_bytes", "rdma_read_resp_bytes", "rdma_write_bytes")
ERRORS = (  # under a port: first EFA's, then InfiniBand's
    "hw_counters/rx_drops", "hw_counters/retrans_timeout_events", "hw_counters/rdma_read_wr_err",
    "hw_counters/rdma_write_wr_err", "hw_counters/unresponsive_remote_events",
    "counters/symbol_error", "counters/link_downed", "counters/link_error_recovery", "counters/port_rcv_errors",
)  # fmt: skip
WORDS_BYTES = 4  # InfiniBand counts 4-byte words


class Sampler:
    """Samples the interfaces and RDMA devices that the node has at the start."""

    def __init__(self, node: Node) -> None:
        names = [name for name in node.names(NET) if node.exists(f"{NET}/{name}/device")]
        self._interfaces = [f"{NET}/{name}/statistics" for name in names[:MAX_DEVICES]]
        self._ports = [f"{RDMA}/{name}/ports/1" for name in node.names(RDMA)[:MAX_DEVICES]]
        received = [(f"hw_counters/{name}", 1) for name in RECEIVED] + [("counters/port_rcv_data", WORDS_BYTES)]
        sent = [(f"hw_counters/{name}", 1) for name in SENT] + [("counters/port_xmit_data", WORDS_BYTES)]
        self._received, self._sent = self._there(node, received), self._there(node, sent)
        self._errors: dict[str, int] = {}
        self._turn = 0
        self._before: dict[str, tuple[float, int]] = {}
        self._links: dict[str, object] = {}  # the links as last sent

    def fixed(self) -> object:
        """Nothing: all values are sampled."""
        return None

    def sample(self, node: Node) -> dict[str, object]:
        """The values named by COLUMNS. RDMA errors of one device per sample, as each read queries the hardware."""
        rx, tx = ([(f"{folder}/{direction}_bytes", 1) for folder in self._interfaces] for direction in ("rx", "tx"))
        bad = [(f"{folder}/{direction}_errors", 1) for folder in self._interfaces for direction in ("rx", "tx")]
        if self._ports:
            port = self._ports[self._turn % len(self._ports)]
            self._errors[port] = _total(node, [(f"{port}/{name}", 1) for name in ERRORS]) or 0
            self._turn += 1
        return {
            "values": [
                self._rate(node, "rx", rx),
                self._rate(node, "tx", tx),
                _total(node, bad),
                self._rate(node, "received", self._received),
                self._rate(node, "sent", self._sent),
                sum(self._errors.values()) if self._ports else None,
            ],
            "facts": self._changed(node),
        }

    def _changed(self, node: Node) -> dict[str, object]:
        """What the collectors `interfaces` and `rdma` report, each only if one of its links has changed."""
        facts: dict[str, object] = {}
        interfaces: Any = read_interfaces(node)
        for name, links in {"interfaces": interfaces["physical"], "rdma": _ports(node)}.items():
            if self._links.get(name) != links:
                facts[name] = interfaces if name == "interfaces" else read_rdma(node)
                self._links[name] = links
        return facts

    def _there(self, node: Node, names: list[tuple[str, int]]) -> list[tuple[str, int]]:
        every = [(f"{port}/{name}", size) for port in self._ports for name, size in names]
        return [(path, size) for path, size in every if node.exists(path)]

    def _rate(self, node: Node, name: str, files: list[tuple[str, int]]) -> float | None:
        """Megabytes a second since the previous sample; None for the first one, and after a counter was reset."""
        total, now = _total(node, files), time.monotonic()
        if total is None:
            return None
        before, self._before[name] = self._before.get(name), (now, total)
        if before is None or now <= before[0] or total < before[1]:
            return None
        return round((total - before[1]) / MB / (now - before[0]), 2)


def _ports(node: Node) -> dict[str, object]:
    """The state and the rate of each port of each RDMA device."""
    ports = (f"{RDMA}/{name}/ports/{port}" for name in node.names(RDMA) for port in node.names(f"{RDMA}/{name}/ports"))
    return {port: (node.text(f"{port}/state"), node.text(f"{port}/rate")) for port in ports}


def _total(node: Node, files: list[tuple[str, int]]) -> int | None:
    """The sum of the counters; None if none can be read."""
    texts = [(node.text(path, absent=""), size) for path, size in files]
    numbers = [int(text) * size for text, size in texts if isinstance(text, str) and text.isdecimal()]
    return sum(numbers) if numbers else None
