"""RDMA devices and the modules they need: /sys/class/infiniband, /sys/module, /dev/infiniband."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node

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
    "nouveau",
)
COUNTERS = (  # of a port, under counters or hw_counters
    "port_rcv_errors",
    "port_xmit_discards",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
    "link_error_recovery",
    "local_ack_timeout_err",
    "packet_seq_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "rp_cnp_ignored",
)


def read(node: Node) -> object:
    """Every RDMA device with its ports, which modules are loaded, and the verbs devices."""
    others = {
        "modules": [name for name in MODULES if node.exists(f"/sys/module/{name}")],
        "uverbs": [name for name in node.names("/dev/infiniband") if name.startswith("uverbs")],
        "nvidia_taint": node.text("/sys/module/nvidia/taint", absent=""),
        "efa_version": node.text("/sys/module/efa/version", absent=""),
    }
    return node.each("devices", node.names(FOLDER), lambda name: _device(node, name), others)


def _device(node: Node, name: str) -> dict[str, object]:
    node.at(name)
    ports = (port for port in node.names(f"{FOLDER}/{name}/ports") if port.isdecimal())
    return {
        "name": name,
        "vendor": _hex(node, f"{FOLDER}/{name}/device/vendor"),
        "device": _hex(node, f"{FOLDER}/{name}/device/device"),
        "driver": node.linked(f"{FOLDER}/{name}/device/driver"),
        "firmware": node.text(f"{FOLDER}/{name}/fw_ver", absent=""),
        "board": node.text(f"{FOLDER}/{name}/board_id", absent=""),
        "p2p": _if_there(node, f"{FOLDER}/{name}/device/p2p"),
        "gdr": _if_there(node, f"{FOLDER}/{name}/device/gdr"),
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
        "link_downed": _counted(node, f"{at}/counters/link_downed"),
        "symbol_errors": _counted(node, f"{at}/counters/symbol_error"),
        "counters": {
            name: count
            for name in COUNTERS
            for folder in ("counters", "hw_counters")
            if (count := _counted(node, f"{at}/{folder}/{name}")) is not None
        },
    }


def _if_there(node: Node, path: str) -> object:
    return node.text(path) if node.exists(path) else None


def _counted(node: Node, path: str) -> object:
    """A counter's value; null if this port has none ("N/A (no PMA)")."""
    text = _if_there(node, path)
    if not isinstance(text, str) or text.startswith("N/A"):
        return None if isinstance(text, str) else text
    return int(text) if text.isdecimal() else {"error": "EINVAL", "text": f"{path}: {text[:40]!r}"}


def _hex(node: Node, path: str) -> object:
    """A vendor or device number without its 0x; empty for a software device, which is not on the PCI bus."""
    text = node.text(path, absent="")
    return text[2:] if isinstance(text, str) and text.startswith("0x") else text
