"""PCIe settings between GPUs and network devices: configuration space, and the IOMMU's mode."""

from __future__ import annotations

import os
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Node, error
from clusterproof.plugins.evidence.pci.collect import FOLDER, MELLANOX, NVIDIA, path_of

GPUS = ("0x0302", "0x0300")  # classes: 3D and display controllers
AMAZON, EFA, NETWORK = "0x1d0f", "0xefa", "0x02"
CAPABILITIES, EXPRESS, ACS = 0x34, 0x10, 0x0D  # where their list begins; ids of PCI Express and access control services
EXTENDED, WHOLE = 0x100, 4096  # where extended capabilities begin, and the size of a function with some
FIRST_PROCESSOR = 8192  # bytes of /proc/cpuinfo
MOST = 64  # capabilities of one function, in case their list is a loop


def read(node: Node) -> object:
    """GPUs, network devices and the bridges above them, with their settings, which mostly only root can read."""
    endpoints = {address: kind for address in node.names(FOLDER) if (kind := _kind(node, address))}
    ports = {port: "port" for address in endpoints for port in path_of(node, address)[1:]}
    rows = {address: _known(node, address, kind) for address, kind in (*ports.items(), *endpoints.items())}
    others = {"machine": os.uname().machine, "is_virtual": _is_virtual(node)}
    return node.each("functions", rows, lambda address: _function(node, address, rows[address]), others)


def _kind(node: Node, address: str) -> str:
    """`gpu` or `nic`; empty for any other device, and for a virtual function, which has few settings of its own."""
    vendor, device, kind = (str(node.text(f"{FOLDER}/{address}/{name}", "")) for name in ("vendor", "device", "class"))
    if node.linked(f"{FOLDER}/{address}/physfn"):
        return ""
    if vendor == NVIDIA and kind.startswith(GPUS):
        return "gpu"
    has_rdma = vendor == MELLANOX or node.exists(f"{FOLDER}/{address}/infiniband")
    is_nic = (has_rdma and kind.startswith(NETWORK)) or (vendor == AMAZON and device.startswith(EFA))
    return "nic" if is_nic else ""


def _is_virtual(node: Node) -> bool:
    """Whether the first CPU's flags show a hypervisor (x86)."""
    try:
        with open(node.path("/proc/cpuinfo"), "rb") as file:
            return b" hypervisor" in file.read(FIRST_PROCESSOR)
    except OSError:
        return False


def _known(node: Node, address: str, kind: str) -> dict[str, object]:
    """What the kernel knows about a function without reading its configuration space."""
    at = f"{FOLDER}/{address}"
    return {
        "address": address,
        "kind": kind,
        "model": ":".join(str(node.text(f"{at}/{name}", absent=""))[2:] for name in ("vendor", "device")),
        "path": path_of(node, address),
        "iommu": node.text(f"{at}/iommu_group/type", absent=""),
    }


def _function(node: Node, address: str, row: dict[str, object]) -> dict[str, object]:
    node.at(address)
    at = f"{FOLDER}/{address}"
    if node.text(f"{at}/power/runtime_status", absent="") in ("suspended", "suspending", "resuming"):
        return row  # reading would wake it
    try:
        file = os.open(node.path(f"{at}/config"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return row
    except OSError as problem:
        return {**row, "settings": error(problem)}
    try:
        return {**row, "settings": _settings(file)}
    except OSError as problem:
        return {**row, "settings": error(problem)}
    finally:
        os.close(file)


def _settings(file: int) -> dict[str, object]:
    """The settings of a PCI Express function. Raises OSError."""
    express = next((at for kind, at in _capabilities(file) if kind == EXPRESS), None)
    if express is None:
        return {"max_payload": None, "max_read_request": None, "relaxed_ordering": None, "acs": None}
    control = _word(file, express + 8)
    access = next((at for kind, at in _extended(file) if kind == ACS), None)
    return {
        "max_payload": 128 << (control >> 5 & 7),
        "max_read_request": 128 << (control >> 12 & 7),
        "relaxed_ordering": bool(control & 0x10),
        "acs": None if access is None else _word(file, access + 6),
    }


def _capabilities(file: int) -> Iterator[tuple[int, int]]:
    at = _word(file, CAPABILITIES) & 0xFC
    for _ in range(MOST):
        if not at:
            return
        head = _word(file, at)
        yield head & 0xFF, at
        at = head >> 8 & 0xFC


def _extended(file: int) -> Iterator[tuple[int, int]]:
    at = EXTENDED if os.fstat(file).st_size >= WHOLE else 0
    for _ in range(MOST):
        if at < EXTENDED:
            return
        kind, further = _word(file, at), _word(file, at + 2)
        if kind in (0, 0xFFFF):
            return
        yield kind, at
        at = further >> 4


def _word(file: int, at: int) -> int:
    """Two bytes of configuration space. Raises PermissionError if only root may read that far."""
    data = os.pread(file, 2, at)
    if len(data) < 2:
        raise PermissionError(1, "only root may read it", "configuration space")
    return int.from_bytes(data, "little")
