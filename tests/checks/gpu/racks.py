"""Trays of an NVLink rack, as the probe reports them."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Result
from tests.builders.evaluated import result_of
from tests.builders.recordings import boot, gpu, node, nvml
from tests.testbed.imex import domain

DRIVER = "580.126.09"
RACK_1, RACK_2 = "1" * 32, "2" * 32
ADDRESSES = tuple(f"10.1.2.{number}" for number in range(18))
NAMES = tuple(f"tray{number:02}" for number in range(18))
RUNS = {"load": "loaded", "active": "active", "sub": "running", "enabled": "enabled", "active_s": 86400.0}
P6E = "p6e-gb200.36xlarge"


def tray(
    number: int,
    cluster: str = RACK_1,
    *,
    nodes: tuple[str, ...] = ADDRESSES,
    output: str = "",
    service: Any = RUNS,
    imex: Any = None,
    has_address: bool = True,
    **more: Any,
) -> NodeEvidence:
    """A tray in a rack of 18; `output` is its nvidia-imex-ctl's output, by default that of a complete domain."""
    fabric = {"state": 3, "status": 0, "health_mask": 0xAA, "health_summary": 1, "clique": 7, "cluster_uuid": cluster}
    values = {"name": "NVIDIA GB200", "vbios": "97.00", "nvlinks": [True] * 18, "fabric": fabric, **more}
    printed = output or domain(DRIVER, addresses=ADDRESSES, names=NAMES)
    answer = {"command": "nvidia-imex-ctl -N -j -H", "exit": 0, "output": printed}
    address = {"name": "eth0", "driver": "ena", "mac": f"0a:00:00:00:00:{number:02x}", "ipv4": f"10.1.2.{number}"}
    return node(
        f"tray{number:02}",
        boot=boot(hostname=f"tray{number:02}"),
        nvml=nvml(*(gpu(at, **values) for at in range(4))),
        naming={
            "hostname": "",
            "hosts": [],
            "nameservers": [],
            "addresses": [address] if has_address else [],
            "duplicates": [],
        },
        services={"services": {"nvidia-imex": service} if service else {}, "failed": []},
        imex=imex or {"nodes": list(nodes), "channels": [0], "channel_count": 2048, "domain": answer},
        pci={"devices": []},
    )


def rack(cluster: str = RACK_1, first: int = 0, trays: int = 18) -> list[NodeEvidence]:
    """The trays of one rack."""
    return [tray(first + number, cluster) for number in range(trays)]


def evaluated(check: str, own: NodeEvidence, *others: NodeEvidence, **target: Any) -> Result:
    return result_of(f"gpu.{check}", own, *others, instance_type=P6E, **target)
