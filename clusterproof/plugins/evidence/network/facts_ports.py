"""Ports of RDMA devices: which are alike, and which nobody uses."""

from __future__ import annotations

from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.network.facts import Port, RdmaDevice

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

WITHOUT_USE = ("is_disabled", "is_unaddressed", "is_silent")  # facts of a port
# NVIDIA's virtual functions (MLX5_PCI_DEV_IS_VF in Linux 6.12, drivers/net/ethernet/mellanox/mlx5/core/main.c).
VIRTUAL = frozenset({f"15b3:{device}" for device in ("1014", "1016", "1018", "101a", "101c", "101e", "a2d3")})

# Sub devices of type SMI, by the names of rdma-dev(8) and others: their ports are the planes of another's (ConnectX-8).
PLANES = "smi"


def kind(device: RdmaDevice, port: Port) -> str:
    """The model and the link layer of a port, and whether it is a plane of one. Raises Incomplete."""
    is_plane = readings(device, "name")[0].get("name", "").startswith(PLANES)
    return f"{device.model} {port.link_layer}{' plane' if is_plane else ''}"


def is_without_use(node: Node, device: RdmaDevice, port: Port) -> bool:
    """Whether a port is switched off, has no address, reports no state, or is a spare virtual function's."""
    return any(readings(port, *WITHOUT_USE)[0].values()) or _is_spare(node, device, port)


def _is_spare(node: Node, device: RdmaDevice, port: Port) -> bool:
    """Whether it is down on the link of an active physical port, as until a virtual machine or a pod gets it."""
    reading = readings(port, "state", "is_linked")[0]
    is_off = reading.get("state", "").endswith("DOWN") and reading.get("is_linked")
    return bool(is_off and _is_virtual(device)) and any(map(_is_active, node.ib_devices))


def _is_virtual(device: RdmaDevice) -> bool:
    return readings(device, "model")[0].get("model") in VIRTUAL


def _is_active(device: RdmaDevice) -> bool:
    """Whether a physical device has an active port."""
    ports = readings(device, "ports")[0].get("ports", ())
    return not _is_virtual(device) and any(readings(port, "is_active")[0].get("is_active") for port in ports)
