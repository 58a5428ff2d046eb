"""Network interfaces: /sys/class/net."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node

FOLDER = "/sys/class/net"


def read(node: Node) -> object:
    """The names of all interfaces, and the state of those that have a device of their own."""
    names = [name for name in node.names(FOLDER) if node.exists(f"{FOLDER}/{name}/mtu")]
    physical = [name for name in names if node.exists(f"{FOLDER}/{name}/device")]
    return node.each("physical", physical, lambda name: _interface(node, name), {"names": names})


def _interface(node: Node, name: str) -> dict[str, object]:
    folder = f"{FOLDER}/{name}"
    node.at(folder)
    speed = str(node.text(f"{folder}/speed"))  # an error while there is no link; -1 from drivers that do not know it
    return {
        "name": name,
        "driver": node.linked(f"{folder}/device/driver"),
        "mtu": _number(node.text(f"{folder}/mtu")),
        "state": node.text(f"{folder}/operstate"),
        "flags": _number(node.text(f"{folder}/flags"), 16),
        "carrier": _carrier(node.text(f"{folder}/carrier")),
        "speed_mbit_s": int(speed) if speed.isdecimal() else None,
    }


def _number(text: object, base: int = 10) -> object:
    """The number in a file; an error in its place if the file holds anything else."""
    if not isinstance(text, str):
        return text
    try:
        return int(text, base)
    except ValueError:
        return {"error": "EINVAL", "text": f"no number: {text[:40]!r}"}


def _carrier(text: object) -> object:
    """Whether there is a link; null while the interface is administratively down, as the kernel reports none then."""
    if isinstance(text, dict):
        return None if text["error"] == "EINVAL" else text
    return {"0": False, "1": True}.get(str(text), {"error": "EINVAL", "text": f"carrier: {str(text)[:40]!r}"})
