"""RDMA devices: ibstat, ibv_devinfo, ibv_devices, `rdma dev` and `rdma link`, sysfs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from clusterproof.plugins.evidence.field import UNCAPTURED
from clusterproof.plugins.evidence.network.collect_rdma import COUNTERS
from clusterproof.plugins.evidence.network.facts import AMAZON, ETHERNET
from clusterproof.plugins.evidence.parsing import CaptureError, Form, integer, sections, short

MAX_DEVICES = 512

STATES = {"down": "1: DOWN", "initializing": "2: INIT", "init": "2: INIT", "armed": "3: ARMED", "active": "4: ACTIVE"}
PHYSICAL = {
    "sleep": "1: Sleep",
    "polling": "2: Polling",
    "disabled": "3: Disabled",
    "portconfigurationtraining": "4: PortConfigurationTraining",
    "linkup": "5: LinkUp",
    "linkerrorrecovery": "6: LinkErrorRecovery",
    "phy test": "7: Phy Test",
    "phytest": "7: Phy Test",
}
MELLANOX = "15b3"
MELLANOX_OUI = "02c9"  # what verbs print as the vendor of a Mellanox device, in place of its PCI number

_NAME = r"([\w.-]{1,64})"
_OF_MELLANOX = re.compile(r"mlx\d_(?:bond_)?\d{1,4}")
_OF_EFA = re.compile(r"rdmap\d{1,5}s\d{1,5}|efa_\d{1,4}")  # rdma-core's `rdmap`: neither InfiniBand, RoCE nor iWARP

_OF_OTHERS = re.compile(r"netdev|Link layer: (?!Un)")


def named(name: str, link: str = "netdev") -> dict[str, Any]:
    """A device whose vendor is not printed: Mellanox devices are recognised by their name.

    EFA devices also by their link: no network interface, and a link layer that is neither InfiniBand nor Ethernet.
    """
    if _OF_EFA.fullmatch(name) and not _OF_OTHERS.search(link):
        return {"name": name, "vendor": AMAZON, "device": "efa"}
    return {"name": name, "vendor": MELLANOX} if _OF_MELLANOX.fullmatch(name) else {"name": name}


def as_in_sysfs(table: Mapping[str, str], state: str) -> str:
    """A state in the words of sysfs: `Active` and `LINK_UP` become `4: ACTIVE` and `5: LinkUp`."""
    plain = state.strip().lower()
    return table.get(plain) or table.get(plain.replace("_", "").replace(" ", "")) or short(state.strip())


# ibstat

_CA = re.compile(rf"^CA:? '{_NAME}'", re.MULTILINE)
_ROW = re.compile(r"\s{0,40}([A-Za-z][\w ]{1,30}):\s{0,40}(.{0,120})")
_PORT = re.compile(r"\s{0,40}Port (\d{1,3}):\s*\Z")
_PANIC = re.compile(rf"^ibpanic: .{{0,200}}?'{_NAME}'(?: failed: )?(.{{0,120}})", re.MULTILINE)


def is_ibstat(text: str) -> bool:
    """Whether this is the output of ibstat."""
    return bool(_CA.search(text) or _PANIC.search(text))


def read_ibstat(text: str) -> Mapping[str, object]:
    """The devices of the collector `rdma`. If ibstat stopped at a device, its ports count as unread."""
    devices = [
        {**_ca(head[1], rest), **({"alone": True} if head[0].startswith("CA:") else {})}
        for head, rest in sections(_CA, text, MAX_DEVICES)
    ]
    for name, why in _PANIC.findall(text)[:MAX_DEVICES]:
        devices.append({**named(name), "ports": {"error": short(why.strip()) or "ibpanic", "text": "ibstat stopped"}})
    return {"rdma": {"devices": devices}}


def _ca(name: str, text: str) -> dict[str, object]:
    """One device; with -s only the number of its ports is known, and with -l not even that."""
    device: dict[str, Any] = named(name, text)
    for line in text.split("\n"):
        port, row = _PORT.match(line), _ROW.match(line)
        if port:
            device.setdefault("ports", []).append({"port": int(port[1])})
        elif row:
            _add_ca_row(device, row[1].strip().lower(), row[2].strip())
    return device


def _add_ca_row(device: dict[str, Any], key: str, value: str) -> None:
    port = device["ports"][-1] if "ports" in device else {}
    if key == "ca type" and re.fullmatch(r"MT\d{4,5}", value):
        device |= {"vendor": MELLANOX, "device": f"{int(value[2:]):x}"}
    elif key == "number of ports" and value == "0":
        device["ports"] = []
    elif key == "firmware version":
        device["firmware"] = short(value)
    elif key == "state":
        port["state"] = as_in_sysfs(STATES, value)
    elif key == "physical state":
        port["physical_state"] = as_in_sysfs(PHYSICAL, value)
    elif key == "rate":
        port["rate"] = f"{short(value)} Gb/sec"
    elif key == "link layer":
        port["link_layer"] = short(value)


# ibv_devinfo, ibv_devices

_HCA = re.compile(rf"^hca_id:\s{{1,20}}{_NAME}", re.MULTILINE)
_DEVICES = re.compile(r"^\s{1,10}device\s{1,20}node GUID[ \t]*\n\s{1,10}-{3,20}\s{1,20}-{3,20}[ \t]*\n", re.MULTILINE)
_LANES, _GBPS = re.compile(r"(\d{1,2})X"), re.compile(r"(\d{1,4}(?:\.\d{1,2})?) Gbps")


def is_ibv_devinfo(text: str) -> bool:
    """Whether this is the output of ibv_devinfo, with or without -v."""
    return bool(_HCA.search(text))


def read_ibv_devinfo(text: str) -> Mapping[str, object]:
    """The devices of the collector `rdma`; physical state and rate only if -v was given."""
    return {"rdma": {"devices": [_hca(head[1], rest) for head, rest in sections(_HCA, text, MAX_DEVICES)]}}


def _hca(name: str, text: str) -> dict[str, object]:
    device: dict[str, Any] = {"name": name, "ports": []}
    for line in text.split("\n"):
        key, separated, value = (part.strip() for part in line[:200].partition(":"))
        if separated and key == "port" and integer(value) is not None:
            device["ports"].append({"port": int(value)})
        elif separated:
            _add_hca_row(device, key, value)
    for port in device["ports"]:
        width, speed = _LANES.match(port.pop("width", "")), _GBPS.match(port.pop("speed", ""))
        if width and speed:
            port["rate"] = f"{int(width[1]) * float(speed[1]):g} Gb/sec ({width[0]})"
        if port.get("link_layer") == ETHERNET and port.get("state") == STATES["down"]:
            port.setdefault("physical_state", PHYSICAL["disabled"])  # without -v; drivers report no other
    return device


def _add_hca_row(device: dict[str, Any], key: str, value: str) -> None:
    port = device["ports"][-1] if device["ports"] else {}
    number = re.match(r"(?:PORT_)?([A-Za-z_]{2,30}) \((\d)\)", value)
    if key == "vendor_id":
        vendor = short(value).removeprefix("0x")
        device["vendor"] = MELLANOX if vendor == MELLANOX_OUI else vendor
    elif key == "vendor_part_id" and integer(value) is not None:
        device["device"] = f"{int(value):x}"
    elif key in ("fw_ver", "board_id"):
        device[_KEYS[key]] = short(value)
    elif key == "state" and number:
        port["state"] = f"{number[2]}: {number[1]}"
    elif key == "phys_state" and number:
        port["physical_state"] = as_in_sysfs(PHYSICAL, number[1])
    elif key == "link_layer":
        port["link_layer"] = short(value)
    elif key in ("active_width", "active_speed"):
        port[key.removeprefix("active_")] = value


def is_ibv_devices(text: str) -> bool:
    """Whether this is the table of ibv_devices."""
    return bool(_DEVICES.search(text))


def read_ibv_devices(text: str) -> Mapping[str, object]:
    """The names of the devices of the collector `rdma`. Raises CaptureError."""
    header = _DEVICES.search(text)
    rows = [line.split() for line in text[header.end() :].split("\n")] if header else []
    names = [row[0] for row in rows if len(row) == 2 and re.fullmatch(r"[0-9a-f]{16}", row[1])]
    if not names:
        raise CaptureError("ibv_devices lists no device")
    return {"rdma": {"devices": [named(name) for name in names[:MAX_DEVICES]]}}


# rdma dev, rdma link

_LINK = re.compile(
    rf"^(?:link |\d{{1,4}}/\d{{1,3}}: ){_NAME}/(\d{{1,3}}):?\s{{1,4}}(.{{0,300}}\bstate .{{0,200}})", re.MULTILINE
)
_DEV = re.compile(rf"^\d{{1,4}}: {_NAME}: node_type \w{{1,20}} (.{{0,300}})", re.MULTILINE)


def is_rdma_tool(text: str) -> bool:
    """Whether this is the output of `rdma link` or `rdma dev`."""
    return bool(_LINK.search(text) or _DEV.search(text))


def read_rdma_tool(text: str) -> Mapping[str, object]:
    """The devices of the collector `rdma`; the tool shows no rate, and only the name tells the vendor."""
    devices: dict[str, dict[str, Any]] = {}
    for name, rest in _DEV.findall(text)[:MAX_DEVICES]:
        firmware = re.search(r"\bfw (\S{1,40})", rest)
        devices[name] = {**named(name), **({"firmware": firmware[1]} if firmware else {})}
    for name, port, rest in _LINK.findall(text)[:MAX_DEVICES]:
        row: dict[str, object] = {"port": int(port)}
        for key, table, word in (("state", STATES, "state"), ("physical_state", PHYSICAL, "physical_state")):
            if match := re.search(rf"(?:^|\s){word} (\w{{1,40}})", rest):
                row[key] = as_in_sysfs(table, match[1])
        devices.setdefault(name, named(name, rest)).setdefault("ports", []).append(row)
    return {"rdma": {"devices": list(devices.values())}}


# sysfs

_COUNTERS = "|".join(COUNTERS)
_SYSFS = re.compile(
    rf"^/sys/class/infiniband/{_NAME}/"
    rf"(?:ports/(\d{{1,3}})/(state|phys_state|rate|link_layer|(?:hw_)?counters/(?:link_downed|symbol_error|{_COUNTERS}))"
    r"|(fw_ver|board_id|device/vendor|device/device)):(.{0,120})$",
    re.MULTILINE,
)
_HARDWARE = re.compile(rf"^/sys/class/infiniband/{_NAME}/ports/(\d{{1,3}})/hw_counters/\w", re.MULTILINE)
# Each port with a folder `counters` has all of these in it; what `hw_counters` has depends on the driver.
_OF_EACH_PORT = tuple(name for name in COUNTERS if name.startswith(("port_", "excessive_", "link_", "local_link_")))
_ELSEWHERE = {"error": UNCAPTURED, "text": "not in the text that was captured"}
_PORT_KEYS = {
    "phys_state": "physical_state",
    "counters/link_downed": "link_downed",
    "counters/symbol_error": "symbol_errors",
}
_KEYS = {"fw_ver": "firmware", "board_id": "board", "device/vendor": "vendor", "device/device": "device"}


def is_sysfs(text: str) -> bool:
    """Whether this is the output of `grep -r . /sys/class/infiniband`."""
    return bool(_SYSFS.search(text))


def read_sysfs(text: str) -> Mapping[str, object]:
    """The devices of the collector `rdma`."""
    devices: dict[str, dict[str, Any]] = {}
    ports: dict[tuple[str, int], dict[str, Any]] = {}
    for name, port, key, own, value in _SYSFS.findall(text)[: MAX_DEVICES * 20]:
        device = devices.setdefault(name, {"name": name})
        if own:
            device[_KEYS[own]] = short(value.strip().removeprefix("0x"))
            continue
        entry = ports.get((name, int(port)))
        if entry is None:
            entry = ports[name, int(port)] = {"port": int(port)}
            device.setdefault("ports", []).append(entry)
        folder, _, counter = key.rpartition("/")
        if not folder:
            entry[_PORT_KEYS.get(key, key)] = short(value.strip())
        elif key in _PORT_KEYS:
            entry[_PORT_KEYS[key]] = _count(value.strip())
        else:
            entry.setdefault("counters", {})[counter] = _count(value.strip())
    with_hardware = {(name, int(port)) for name, port in _HARDWARE.findall(text)}
    for at, entry in ports.items():
        if "counters" in entry:
            entry["counters"] = _counters(entry["counters"], _OF_EACH_PORT if at in with_hardware else COUNTERS)
    return {"rdma": {"devices": list(devices.values())}}


def _counters(captured: Mapping[str, object], due: Iterable[str]) -> dict[str, object]:
    """What a port counts, without what it does not (`N/A`); an error for what was not captured."""
    counters = {**dict.fromkeys(due, _ELSEWHERE), **captured}
    return {name: count for name, count in counters.items() if count is not None}


def _count(text: str) -> object:
    """A counter; None where this port has none ("N/A (no PMA)")."""
    count = integer(text)
    return count if count is not None or text.startswith("N/A") else {"error": "EINVAL", "text": short(text)}


FORMS = (
    Form("ibv_devinfo", is_ibv_devinfo, read_ibv_devinfo, 55),
    Form("ibstat", is_ibstat, read_ibstat),
    Form("sysfs infiniband", is_sysfs, read_sysfs, 60),
    Form("rdma", is_rdma_tool, read_rdma_tool, 45),
    Form("ibv_devices", is_ibv_devices, read_ibv_devices, 40),
)
