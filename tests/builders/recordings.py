"""Builds recordings of nodes that report what a test needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.evidence.recording import write_cluster, write_node


def node(name: str, **collectors: object) -> NodeEvidence:
    """A node whose collectors reported these values; a Collected is taken as it is."""
    collected = {
        collector: value if isinstance(value, Collected) else Collected(Status.READ, value, seconds=0.01)
        for collector, value in collectors.items()
    }
    return NodeEvidence(name, collected, seconds=0.5)


def unreached(name: str, why: Unreached = Unreached.REFUSED, detail: str = "") -> NodeEvidence:
    """A node that did not answer."""
    return NodeEvidence(name, unreached=why, detail=detail or f"{name}:22 refuses the connection")


def boot(kernel: str = "6.8.0-1021-aws", hostname: str = "gpu001", **more: object) -> dict[str, object]:
    """The `boot` collector's report on a node that has been up for a day."""
    return {
        "uptime_s": 86400.5,
        "boot_id": "5f0c8f6e-37f6-4b7e-9f0f-0d4b5f4b8d11",
        "hostname": hostname,
        "kernel": kernel,
        "os": "Ubuntu 22.04.5 LTS",
        "memory_kib": 2097152000,
        "cpus": 192,
        "now": 1763670000.0,
        "uid": 0,
        **more,
    }


def gpu(index: int, **more: object) -> dict[str, object]:
    """NVML's report on a GPU, as far as tests of reports need it."""
    return {
        "index": index,
        "lost": None,
        "uuid": f"GPU-{index:08x}-4f1a-9c3e-7b2d-5e8f10a2b3c4",
        "serial": f"165052302{index:04d}",
        "pci": f"0000:{0x53 + index:02x}:00.0",
        "recovery_action": 0,
        **more,
    }


def nvml(*gpus: Mapping[str, object], **more: object) -> dict[str, object]:
    """The `nvml` collector's report."""
    return {"init": None, "init_s": 0.2, "driver": "580.126.09", "count": len(gpus), "gpus": list(gpus), **more}


def recorded(folder: Path, nodes: Iterable[NodeEvidence], name: str = "small", **target: Any) -> str:
    """Write a recording and return its `--cluster` value. All nodes have the same `target`."""
    nodes = list(nodes)
    targets = tuple(Target(evidence.node, **target) for evidence in nodes)
    write_cluster(folder, Cluster(name, "ssh", targets))
    for evidence in nodes:
        write_node(folder, evidence)
    return f"replay:{folder}"
