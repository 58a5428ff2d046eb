"""Main memory errors counted by memory controllers: /sys/devices/system/edac/mc."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node

FOLDER = "/sys/devices/system/edac/mc"
MODULES = ("dimm", "rank", "csrow")  # how kernels name memory modules; a controller may show two of these


def read(node: Node) -> object:
    """Every memory controller; none on a machine without such counters, as most virtual ones are."""
    names = [name for name in node.names(FOLDER) if _is(name, "mc")]
    return node.each("controllers", names, lambda name: _controller(node, name))


def _controller(node: Node, name: str) -> dict[str, object]:
    node.at(name)
    at = f"{FOLDER}/{name}"
    return {
        "name": name,
        "type": node.text(f"{at}/mc_name", absent=""),
        "corrected": _count(node, f"{at}/ce_count"),
        "uncorrected": _count(node, f"{at}/ue_count"),
        "counted_s": _count(node, f"{at}/seconds_since_reset"),
        "modules": _modules(node, at),
    }


def _modules(node: Node, at: str) -> list[dict[str, object]]:
    """The memory modules that have counted errors."""
    names = [name for name in node.names(at) if any(_is(name, kind) for kind in MODULES)]
    modules = (_module(node, f"{at}/{name}", name) for name in names)
    return [module for module in modules if module["corrected"] != 0 or module["uncorrected"] != 0]


def _module(node: Node, at: str, name: str) -> dict[str, object]:
    prefix = "" if name.startswith("csrow") else "dimm_"
    label = node.text(f"{at}/dimm_label", absent="")
    return {
        "name": label[:100] if isinstance(label, str) and label else name,
        "corrected": _count(node, f"{at}/{prefix}ce_count"),
        "uncorrected": _count(node, f"{at}/{prefix}ue_count"),
    }


def _count(node: Node, path: str) -> object:
    """A number, or an error object."""
    text = node.text(path)
    if not isinstance(text, str):
        return text
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return int(text)
    return {"error": "EINVAL", "text": f"{path}: {text[:60]!r} is no number"}


def _is(name: str, kind: str) -> bool:
    return name.startswith(kind) and name[len(kind) :].isdecimal()
