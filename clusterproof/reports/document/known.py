"""What is known of one node, as tables for its page: read leniently, for a person, and never a reason for a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.field import number
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.document.versions import versions_of

MAX_CELL = 200  # characters
MAX_ROWS = 64  # of a table

KIB_OF_GIB = 1 << 20
HOUR_S = 3600

Table = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]  # title, head, rows


def tables(node: Node) -> Iterator[Table]:
    """The node itself, its GPUs, its RDMA devices, what is mounted, and its versions, as far as they were reported."""
    yield "Node", (), tuple((word, data) for word, data in _itself(node) if data)
    listed = (
        ("GPUs", ("GPU", "UUID", "serial", "name", "PCI", "VBIOS"), _gpus(node)),
        ("RDMA devices", ("devices", "count", "driver", "firmware", "state", "rate"), _rdma(node)),
        ("Mounts", ("path", "type", "source", "answers"), _mounts(node)),
        ("Versions", ("component", "version"), tuple(sorted(versions_of(node).items()))),
    )
    for title, head, rows in listed:
        if rows:
            yield title, head, tuple(rows[:MAX_ROWS])


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
    """Devices that are alike share a row."""
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for device in records(value_of(node, "rdma").get("devices")):
        ports = records(device.get("ports"))
        states, rates = (", ".join(filter(None, (_cell(port.get(key)) for port in ports))) for key in ("state", "rate"))
        alike[_cell(device.get("driver")), _cell(device.get("firmware")), states, rates].append(
            _cell(device.get("name"))
        )
    return tuple((_cell(fold(names)), str(len(names)), *rest) for rest, names in alike.items())


def _mounts(node: Node) -> tuple[tuple[str, ...], ...]:
    return _rows(value_of(node, "mounts").get("mounts"), ("path", "type", "source", "alive"))


def _rows(data: object, keys: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(_cell(record.get(key)) for key in keys) for record in records(data))


def records(data: object) -> Sequence[Mapping[str, Any]]:
    """The records of a list that a node reported; none where it is no list."""
    if not isinstance(data, list):
        return []
    return [record for record in data if isinstance(record, dict)][:MAX_ROWS]


def value_of(node: Node, collector: str) -> Mapping[str, Any]:
    """What a collector reported; empty where it reported nothing."""
    collected = node.evidence.collectors.get(collector)
    return _table(collected.value) if collected else {}


def _table(data: object) -> Mapping[str, Any]:
    return data if isinstance(data, dict) else {}


def _number(data: object) -> float | None:
    """A number that one can calculate with, None for all else that a node may report."""
    try:
        return number(data)
    except TypeError:
        return None


def _cell(data: object) -> str:
    if isinstance(data, str):
        return printable(data, MAX_CELL)
    return str(data) if isinstance(data, (int, float)) else ""
