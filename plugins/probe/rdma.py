"""RDMA devices and the modules they need: /sys/class/infiniband, /sys/module, /dev/infiniband."""

from __future__ import annotations

from clusterproof.plugins.probe.reading import Node

FOLDER = "/sys/class/infiniband"
MODULES = (
    "efa",
    "ib_core",
    "ib_uverbs",
    "gdrdrv",
    "nvidia",
    "nvidia_uvm",
    "nvidia_peermem",
    "nvidia_fs",
    "lustre",
    "mlx5_core",
    "mlx5_ib",
    "ena",
    "neuron",
)


def read(node: Node) -> object:
    """Every RDMA device with its ports, which modules are loaded, and the verbs devices."""
    return {
        "devices": [_device(node, name) for name in node.names(FOLDER)],
        "modules": [name for name in MODULES if node.exists(f"/sys/module/{name}")],
        "uverbs": [name for name in node.names("/dev/infiniband") if name.startswith("uverbs")],
    }


def _device(node: Node, name: str) -> dict[str, object]:
    node.at(name)
    ports = (port for port in node.names(f"{FOLDER}/{name}/ports") if port.isdigit())
    return {
        "name": name,
        "vendor": _hex(node, f"{FOLDER}/{name}/device/vendor"),
        "device": _hex(node, f"{FOLDER}/{name}/device/device"),
        "driver": node.linked(f"{FOLDER}/{name}/device/driver"),
        "ports": [_port(node, name, int(port)) for port in ports],
    }


def _port(node: Node, name: str, port: int) -> dict[str, object]:
    at = f"{FOLDER}/{name}/ports/{port}"
    return {
        "port": port,
        "state": node.text(f"{at}/state"),
        "physical_state": node.text(f"{at}/phys_state"),
        "rate": node.text(f"{at}/rate"),
        "link_layer": node.text(f"{at}/link_layer"),
    }


def _hex(node: Node, path: str) -> object:
    """A vendor or device number without its 0x."""
    told = node.text(path)
    return told[2:] if isinstance(told, str) and told.startswith("0x") else told
