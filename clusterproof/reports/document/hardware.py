"""What stands in one node, for its picture: GPUs, NVSwitches and network devices by NUMA node and PCI bus.

Read leniently, for a person, and never a reason for a verdict.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent
from clusterproof.plugins.evidence.kernel_log.wording import gpus_by_address
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.document.known import records, value_of
from clusterproof.reports.run import Run

MAX_DEVICES = 64  # of each kind
MAX_NAME = 24
MAX_XIDS = 8  # kinds of a GPU
NETWORK, DISPLAY, NVSWITCH, NVIDIA = "02", "03", "0680", "10de"  # PCI classes, and a vendor
RDMA_DRIVERS = ("efa", "mlx5_core", "bnxt_en", "irdma", "ice")
_BUS = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?([0-9a-fA-F]{2}):")
_ADDRESS_IN_NAME = re.compile(r"rdmap(\d{1,3})s\d+")  # as systemd and EFA's driver name a device by its bus
_GPU = re.compile(r"\bGPU (\d{1,2})\b")

Drawn = tuple[list[list[Any]], list[list[Any]], int]


def hardware(node: Node) -> Drawn | None:
    """GPUs `[index, bus, NUMA node, links as 1 and 0, PCIe lanes, lanes at most, whether it answers]`.

    Behind them network devices `[name, bus, NUMA node, state]`, and how many NVSwitches there are; -1 for what was not
    reported. None for a node without GPUs.
    """
    devices = {_text(device.get("address")): device for device in records(value_of(node, "pci").get("devices"))}
    reported = records(value_of(node, "nvml").get("gpus"))[:MAX_DEVICES]
    lost = _address_of_the_lost(reported, devices)
    gpus = [_gpu(gpu, _text(gpu.get("pci")) or lost, devices) for gpu in reported]
    switches = [
        device
        for device in devices.values()
        if device.get("vendor") == NVIDIA and _text(device.get("class")).startswith(NVSWITCH)
    ]
    return (gpus, list(_network(node, devices))[:MAX_DEVICES], len(switches)) if gpus else None


def _address_of_the_lost(gpus: Sequence[Mapping[str, Any]], devices: Mapping[str, Mapping[str, Any]]) -> str:
    """Where the one GPU is that does not say so: at the one address of a GPU that no other has; else empty."""
    named = {_text(gpu.get("pci")) for gpu in gpus}
    free = [
        address
        for address, device in devices.items()
        if device.get("vendor") == NVIDIA and _text(device.get("class")).startswith(DISPLAY) and address not in named
    ]
    silent = sum(not _text(gpu.get("pci")) for gpu in gpus)
    return free[0] if len(free) == silent == 1 else ""


def _gpu(gpu: Mapping[str, Any], address: str, devices: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    links = gpu.get("nvlinks")
    up = "".join("1" if link is True else "0" for link in links[:MAX_DEVICES]) if isinstance(links, list) else ""
    lanes = (_whole(gpu.get("pcie_width")), _whole(gpu.get("pcie_width_max")))
    numa = _whole(devices.get(address, {}).get("numa"))
    return [_whole(gpu.get("index")), _bus(address), numa, up, *lanes, 0 if gpu.get("lost") else 1]


def _network(node: Node, devices: Mapping[str, Mapping[str, Any]]) -> Iterator[list[Any]]:
    """RDMA devices, each where a device of PCI has its bus in its name; then PCI devices that none is named after."""
    by_bus = {
        _bus(address): device for address, device in devices.items() if _text(device.get("class")).startswith(NETWORK)
    }
    named: set[int] = set()
    for device in records(value_of(node, "rdma").get("devices")):
        name = _text(device.get("name"))
        found = _ADDRESS_IN_NAME.match(name)
        bus = int(found[1]) if found and int(found[1]) in by_bus else -1
        named.add(bus)
        states = [_text(port.get("state")).rpartition(": ")[2] for port in records(device.get("ports"))]
        yield [printable(name, MAX_NAME), bus, _whole(by_bus.get(bus, {}).get("numa")), ", ".join(states)[:MAX_NAME]]
    if not named - {-1}:
        for bus, device in by_bus.items():
            if device.get("driver") in RDMA_DRIVERS:
                yield [printable(f"{device['driver']} {bus:02x}", MAX_NAME), bus, _whole(device.get("numa")), ""]


def marks(run: Run, checks: Mapping[str, int], nodes: Mapping[str, int]) -> dict[int, dict[str, list[list[Any]]]]:
    """By node, for each of its devices that a finding names: `[number of the check, letter]`."""
    marked: dict[int, dict[str, list[list[Any]]]] = defaultdict(lambda: defaultdict(list))
    for result in run.results:
        if result.node not in nodes or not result.is_of_node or not result.verdict.is_finding:
            continue
        for part in result.by_verdict:
            if part.verdict in (Verdict.FAIL, Verdict.CONCERN):
                for device in _devices(part):
                    marked[nodes[part.node]][device].append([checks[part.check], part.verdict.letter])
    return marked


def _devices(result: Result) -> list[str]:
    named = result.devices or tuple(f"GPU {index}" for index in dict.fromkeys(_GPU.findall(result.message)))
    return [printable(device, MAX_NAME) for device in named[:MAX_DEVICES]]


def xids(node: Node) -> dict[int, list[str]]:
    """The Xids of each GPU in this boot: `48`, `79 × 3`."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    with suppress(Incomplete, NotApplicable):
        events = [event for event in node.kernel_events if isinstance(event, XidEvent)]
        gpus = gpus_by_address(node) if events else {}
        for event in events:
            if event.pci in gpus:
                counts[gpus[event.pci].index][event.code] += event.lines
    return {
        gpu: [f"{code} × {count}" if count > 1 else str(code) for code, count in sorted(of.items())[:MAX_XIDS]]
        for gpu, of in counts.items()
    }


def _bus(address: str) -> int:
    parts = _BUS.match(address)
    return int(parts[1], 16) if parts else -1


def _whole(data: object) -> int:
    return data if type(data) is int and 0 <= data < 1 << 16 else -1


def _text(data: object) -> str:
    return data if isinstance(data, str) else ""
