"""Nodes with EFA devices, as the probe reports them."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from tests.builders.evaluated import result_of

SAYS = {25: "25 Gb/sec (1X EDR)", 30: "30 Gb/sec (12X SDR)", 50: "50 Gb/sec (1X HDR)", 100: "100 Gb/sec (4X EDR)",
        200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (8X HDR)"}  # fmt: skip


def device(number: int, gbps: int = 100) -> dict[str, Any]:
    """An EFA device as the driver shows it."""
    port = {"port": 1, "state": "4: ACTIVE", "physical_state": "5: LinkUp", "rate": SAYS[gbps]}
    fields = {"name": f"rdmap{number}s0", "vendor": "1d0f", "device": "efa2", "firmware": "", "p2p": "", "gdr": None}
    return {**fields, "ports": [{**port, "link_layer": "Unspecified", "link_downed": None, "symbol_errors": None}]}


def on_bus(number: int) -> dict[str, Any]:
    """The same on the PCI bus."""
    return {"address": f"0000:{number:02x}:00.0", "vendor": "1d0f", "device": "efa2", "class": "020000"}


def evidence(
    name: str, instance_type: str, count: int, bus: int | None = None, gbps: int = 100, driver: str | None = "2.17.3g"
) -> NodeEvidence:
    """The report of a node with this many EFA devices."""
    collectors: dict[str, Any] = {
        "platform": {"vendor": "Amazon EC2", "product": instance_type, "serial": ""},
        "boot": {"uptime_s": 86400.0},
        "rdma": {
            "devices": [device(number, gbps) for number in range(count)],
            "modules": [],
            "uverbs": [],
            "efa_version": driver,
        },
        "pci": {"devices": [on_bus(number) for number in range(count if bus is None else bus)]},
        "limits": {"login": {"memlock": 65536}, "daemons": {}},
    }
    return NodeEvidence(name, {collector: Collected(Status.READ, value) for collector, value in collectors.items()})


def evaluated(check: str, *nodes: NodeEvidence, **target: Any) -> Result:
    """A check's result on the first of some nodes."""
    return result_of(check, *nodes, **target)


def group(instance_type: str, *counts: int, **values: Any) -> list[NodeEvidence]:
    """Nodes of one group, with these numbers of EFA devices."""
    return [evidence(f"n{number}", instance_type, count, **values) for number, count in enumerate(counts)]


def output_of(name: str = "n0", count: int = 2, **collectors: Any) -> NodeEvidence:
    """A p5 with this many EFA devices that also reports these collectors; a Collected is taken as it is."""
    plain = evidence(name, "p5.48xlarge", count)
    more = {
        collector: value if isinstance(value, Collected) else Collected(Status.READ, value)
        for collector, value in collectors.items()
    }
    return NodeEvidence(name, {**plain.collectors, **more})
