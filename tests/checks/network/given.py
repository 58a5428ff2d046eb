"""A test's network devices for a node, and a check's result on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node
from tests.builders.recordings import boot, node


def verdict(check: str, collectors: Mapping[str, Any], **target: Any) -> Result:
    """A check's result on a single node that reported these collectors."""
    collected = {name: Collected(Status.READ, value) for name, value in collectors.items()}
    return evaluate(node_checks()[check], Node(Target("gpu001", **target), NodeEvidence("gpu001", collected)))


def port(**values: Any) -> dict[str, Any]:
    """An active port."""
    fields = {"port": 1, "state": "4: ACTIVE", "physical_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    return {**fields, "link_layer": "InfiniBand", "link_downed": None, "symbol_errors": None, "counters": {}, **values}


def mlx5(number: int, *ports: dict[str, Any], device: str = "1021") -> dict[str, Any]:
    """A ConnectX device."""
    fields = {"name": f"mlx5_{number}", "vendor": "15b3", "device": device, "firmware": "28.39.1002"}
    return {**fields, "p2p": None, "gdr": None, "ports": list(ports)}


def rails(third: dict[str, Any], *, name: object = "mlx5_0") -> dict[str, Any]:
    """Three InfiniBand devices, the first of this name, the port of the third with other values."""
    return {"devices": [{**mlx5(0, port()), "name": name}, mlx5(1, port()), mlx5(2, port(**third))]}


def rdma(*devices: dict[str, Any]) -> dict[str, Any]:
    """A node with these RDMA devices, up for a day."""
    return {"rdma": {"devices": list(devices)}, "boot": {"uptime_s": 86400.0}}


def with_ports(name: str, *ports: dict[str, Any]) -> NodeEvidence:
    """A node with a device of one model for each of these ports."""
    return node(name, **rdma(*map(mlx5, range(len(ports)), ports)))


def roce_port(number: int, **more: Any) -> dict[str, Any]:
    """An active RoCE port of a rail."""
    gids = [{"index": 3, "type": "RoCE v2", "kind": "ipv4"}]
    ecn = {"notifies": "1" * 8, "reacts": "1" * 8, "traffic_class": "106", "gids": gids}
    ecn |= {"pfc": "00010000", "dscp": "".join(str(dscp >> 3) for dscp in range(64))}
    rail = {"model": "15b3:1021", "rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE"}
    return {"device": f"mlx5_{number}", "port": 1, **rail, **ecn, **more}


def roce_host(*ports: dict[str, Any], name: str = "gpu001") -> NodeEvidence:
    """A node with these RoCE ports."""
    return node(name, boot=boot(), roce={"ports": list(ports)})


def efa(**values: Any) -> dict[str, Any]:
    """An EFA device."""
    fields = {"name": "rdmap79s0", "vendor": "1d0f", "device": "efa2", "firmware": "", "p2p": None, "gdr": None}
    return {**fields, "ports": [], **values}


def interface(name: str, mtu: int, driver: str = "mlx5_core", *, flags: int = 3, carrier: Any = True) -> dict[str, Any]:
    """A physical interface."""
    return {"name": name, "driver": driver, "mtu": mtu, "state": "up", "flags": flags, "carrier": carrier}
