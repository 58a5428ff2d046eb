"""The page's details of one node: tables, and a picture of its hardware.

Read leniently, for display only, never for a verdict.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evidence.field import number
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent
from clusterproof.plugins.evidence.kernel_log.wording import gpus_by_address
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.document.hardware import versions_of
from clusterproof.reports.run import Run

MAX_CELL = 200  # characters
MAX_ROWS = 64  # of a table

KIB_OF_GIB = 1 << 20
HOUR_S = 3600

Table = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]  # title, head, rows


def tables(node: Node) -> Iterator[Table]:
    """The node, its GPUs, RDMA devices, mounts, and versions, as far as reported."""
    yield "Node", (), tuple((word, value) for word, value in _itself(node) if value)
    listed = (
        ("GPUs", ("GPU", "UUID", "serial", "name", "PCI", "VBIOS"), _gpus(node)),
        ("RDMA devices", ("devices", "count", "driver", "firmware", "state", "rate"), _rdma(node)),
        ("Mounts", ("path", "type", "source", "answers"), _mounts(node)),
        ("Versions", ("component", "version"), tuple(sorted(versions_of(node).items()))),
    )
    for title, head, rows in listed:
        if rows:
            more = ((f"… and {number_of(len(rows) - MAX_ROWS, 'more row')}",),) if len(rows) > MAX_ROWS else ()
            yield title, head, (*rows[:MAX_ROWS], *more)


def _itself(node: Node) -> Iterator[tuple[str, str]]:
    target, boot, nvml = node.target, value_of(node, "boot"), value_of(node, "nvml")
    identity = _table(value_of(node, "imds").get("identity"))
    platform = value_of(node, "platform")
    unreached = node.evidence.unreached
    yield "unreachable", f"{unreached.value.replace('_', ' ')}: {_cell(node.evidence.detail)}" if unreached else ""
    yield "group", _cell(target.group)
    yield "instance type", node.type_name
    yield "instance id", _cell(identity.get("instance_id"))
    yield "zone", _cell(identity.get("availability_zone"))
    yield "image", _cell(identity.get("image_id"))
    yield "serial", _cell(platform.get("serial"))
    yield "host name", _cell(boot.get("hostname"))
    yield "system", _cell(boot.get("os"))
    yield "kernel", _cell(boot.get("kernel"))
    yield "driver", _cell(nvml.get("driver"))
    yield "CPUs", _cell(boot.get("cpus"))
    memory, uptime = _number(boot.get("memory_kib")), _number(boot.get("uptime_s"))
    yield "memory", "" if memory is None else f"{memory / KIB_OF_GIB:.0f} GiB"
    yield "up for", "" if uptime is None else f"{uptime / HOUR_S:.1f} h"
    yield "answered in", f"{node.evidence.seconds:.1f} s" if not unreached and node.evidence.collectors else ""


def _gpus(node: Node) -> tuple[tuple[str, ...], ...]:
    return _rows(value_of(node, "nvml").get("gpus"), ("index", "uuid", "serial", "name", "pci", "vbios"))


def _rdma(node: Node) -> tuple[tuple[str, ...], ...]:
    """Equal devices share a row."""
    by_values: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for device in records(value_of(node, "rdma").get("devices")):
        ports = records(device.get("ports"))
        states, rates = (", ".join(filter(None, (_cell(port.get(key)) for port in ports))) for key in ("state", "rate"))
        by_values[_cell(device.get("driver")), _cell(device.get("firmware")), states, rates].append(
            _cell(device.get("name"))
        )
    return tuple((_cell(fold(names)), str(len(names)), *rest) for rest, names in by_values.items())


def _mounts(node: Node) -> tuple[tuple[str, ...], ...]:
    return _rows(value_of(node, "mounts").get("mounts"), ("path", "type", "source", "alive"))


def _rows(value: object, keys: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(_cell(record.get(key)) for key in keys) for record in records(value))


def records(value: object) -> Sequence[Mapping[str, Any]]:
    """The records in a list that a node reported; empty if it is no list."""
    if not isinstance(value, list):
        return []
    return [record for record in value if isinstance(record, dict)]


def value_of(node: Node, collector: str) -> Mapping[str, Any]:
    """What a collector reported; empty if nothing."""
    collected = node.evidence.collectors.get(collector)
    return _table(collected.value) if collected else {}


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    """A finite number, None for anything else that a node may report."""
    try:
        return number(value)
    except TypeError:
        return None


def _cell(value: object) -> str:
    if isinstance(value, str):
        return printable(value, MAX_CELL)
    return str(value) if isinstance(value, (int, float)) else ""


MAX_DEVICES = 64  # of each kind
MAX_NAME = 24
MAX_XIDS = 8  # kinds per GPU
NETWORK, DISPLAY, NVSWITCH, NVIDIA = "02", "03", "0680", "10de"  # PCI classes, and a vendor
RDMA_DRIVERS = ("efa", "mlx5_core", "bnxt_en", "irdma", "ice")
_BUS = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?([0-9a-fA-F]{2}):")
_ADDRESS_IN_NAME = re.compile(r"rdmap(\d{1,3})s\d+")  # names that systemd and EFA's driver derive from the bus
_GPU = re.compile(r"\bGPU (\d{1,2})\b")

Drawn = tuple[list[list[Any]], list[list[Any]], int]


def hardware(node: Node) -> Drawn | None:
    """GPUs `[index, bus, NUMA node, links as 1 and 0, ? if unread, PCIe lanes, maximum lanes, whether it answers]`.

    Then network devices `[name, bus, NUMA node, state]`, and the number of NVSwitches; -1 for unreported values. None
    for a node without GPUs.
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
    """The address of a lost GPU: the only GPU address that no other GPU has; else empty."""
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
    states = links[:MAX_DEVICES] if isinstance(links, list) else []
    up = "".join(str(int(link)) if isinstance(link, bool) else "?" for link in states)
    lanes = (_whole(gpu.get("pcie_width")), _whole(gpu.get("pcie_width_max")))
    numa = _whole(devices.get(address, {}).get("numa"))
    return [_whole(gpu.get("index")), _bus(address), numa, up, *lanes, 0 if gpu.get("lost") else 1]


def _network(node: Node, devices: Mapping[str, Mapping[str, Any]]) -> Iterator[list[Any]]:
    """RDMA devices, each matched to the PCI device by the bus in its name; without any, PCI devices."""
    adapters = [
        (_bus(address), device) for address, device in devices.items() if _text(device.get("class")).startswith(NETWORK)
    ]
    by_bus = dict(adapters)
    rdma = records(value_of(node, "rdma").get("devices"))
    for device in rdma:
        name = _text(device.get("name"))
        match = _ADDRESS_IN_NAME.match(name)
        bus = int(match[1]) if match and int(match[1]) in by_bus else -1
        states = [_text(port.get("state")).rpartition(": ")[2] for port in records(device.get("ports"))]
        yield [printable(name, MAX_NAME), bus, _whole(by_bus.get(bus, {}).get("numa")), ", ".join(states)[:MAX_NAME]]
    for bus, device in () if rdma else adapters:
        if device.get("driver") in RDMA_DRIVERS:
            yield [printable(f"{device['driver']} {bus:02x}", MAX_NAME), bus, _whole(device.get("numa")), ""]


def marks(run: Run, checks: Mapping[str, int], nodes: Mapping[str, int]) -> dict[int, dict[str, list[list[Any]]]]:
    """By node, for each device that a finding names: `[number of the check, letter]`."""
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


def _whole(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 16 else -1


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
