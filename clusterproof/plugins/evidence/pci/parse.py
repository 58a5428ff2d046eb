"""Parses devices on the PCI bus from lspci, with -n, -nn, -k, -v and more, -mm, -t or no option; settings from -vvv."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.evidence.parsing import CaptureError, Form, short
from clusterproof.plugins.evidence.pci.facts import NO_ANSWER_LANES
from clusterproof.plugins.evidence.pci.facts_config import PciSettings

MAX_DEVICES = 1024
LONGEST_LINE = 400
NVIDIA, AMAZON, MELLANOX = "10de", "1d0f", "15b3"
VENDORS = {"NVIDIA Corporation": NVIDIA, "Amazon.com, Inc.": AMAZON, "Mellanox Technologies": MELLANOX}
CLASSES = {  # lspci's names of relevant classes
    "3D controller": "030200",
    "VGA compatible controller": "030000",
    "Bridge": "068000",
    "Infiniband controller": "020700",
    "Ethernet controller": "020000",
}
EFA, NEURON = "Elastic Fabric Adapter", "NeuronDevice"

_ADDRESS = r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_NUMBERS = re.compile(rf"^{_ADDRESS} ([0-9a-f]{{4}}): ([0-9a-f]{{4}}):([0-9a-f]{{4}})\b")  # -n
_NAMED = re.compile(rf"^{_ADDRESS} ([A-Z0-9][^:\[]{{2,60}}?)(?: \[([0-9a-f]{{4}})\])?: (.{{1,300}})")
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\](?!.{0,200}\[[0-9a-f]{4}:)")
_LINK = re.compile(  # whose speed is unknown to an lspci that is older than the device
    r"\s{1,40}Lnk(Cap|Sta):\s.{0,100}?\bSpeed (?:(\d{1,3}(?:\.\d)?)GT/s|unknown)(?: \([a-z]{1,12}\))?, "
    r"Width x(\d{1,2})\b"
)
_MODEL = re.compile(r"Mellanox Technologies (MT[\w ]{1,40}(?:\[[^\[\]]{1,60}\])?)")
_NAMELESS = re.compile(r"(?:^| )Device ([0-9a-f]{4})(?= |$)")  # of a device that is newer than the machine's pci.ids
_NEURON = re.compile(rf"7[0-9]6[0-9]|{NEURON}")
_NUMA = re.compile(r"\s{1,40}NUMA node: (\d{1,4})\s*\Z")
_DRIVER = re.compile(r"\s{1,40}Kernel driver in use: (\S{1,60})")
_GONE = re.compile(r"\(rev ff\)")
_AVAILABLE = re.compile(r"\s{1,40}Kernel modules: \S")  # printed after the driver in use, if there is one
_SLOT = re.compile(rf"^Slot:\s{{1,8}}{_ADDRESS}[ \t]*$", re.MULTILINE)
_TREE = re.compile(r"^\s{0,4}[-\\|+ ]{0,8}-?\[(?:([0-9a-f]{4}):)?([0-9a-f]{2})\]", re.MULTILINE)
_COLLECTOR = re.compile(r"[-+\\]-{1,4}([0-9a-f]{2}\.[0-7])  (.{1,200})")


def is_lspci(text: str) -> bool:
    """Whether the text has a device line of lspci."""
    return any(_NUMBERS.match(line) or _NAMED.match(line) for line in _lines(text))


def read_lspci(text: str) -> Mapping[str, object]:
    """The collector `pci`. Without -n an EFA device is `efa`, whatever its generation. Raises CaptureError."""
    devices: list[dict[str, Any]] = []
    for line in _lines(text):
        if match := _NUMBERS.match(line):
            devices.append(_device(match[1], f"{match[2]}00", match[3], match[4]) | _all_ones(line))
        elif match := _NAMED.match(line):
            devices.append(_named(match) | _all_ones(line))
        elif devices and line[:1] in " \t":
            _detail(devices[-1], line)
    return _collector(devices)


def _named(match: re.Match[str]) -> dict[str, Any]:
    """A device with its names; with -nn numbers in brackets."""
    title = match[4]
    ids = _IDS.search(title)
    vendor = ids[1] if ids else next((number for name, number in VENDORS.items() if title.startswith(name)), "")
    device = ids[2] if ids else _by_name(title)
    return _device(match[1], f"{match[3]}00" if match[3] else CLASSES.get(match[2], ""), vendor, device)


def _by_name(title: str) -> str:
    """Amazon's relevant devices, without their generation; Mellanox's models by name; others by number, if any."""
    if match := _MODEL.match(title) or _NAMELESS.search(title):
        return match[1]
    return "efa" if EFA in title else NEURON if NEURON in title else ""


def _device(address: str, kind: str, vendor: str, device: str) -> dict[str, Any]:
    """The device, without unknown values."""
    ids = {"class": kind, "vendor": vendor, "device": device}
    is_neuron = vendor == AMAZON and bool(_NEURON.fullmatch(device))
    marked = {"neuron": True} if is_neuron else {}
    return {"address": _whole(address), **{key: value for key, value in ids.items() if value}, **marked}


def _whole(address: str) -> str:
    """An address with its domain, in four digits at least: `0000:53:00.0`."""
    domain, bus, function = ("0:" * (2 - address.count(":")) + address).split(":")
    return f"{domain.lstrip('0'):0>4}:{bus}:{function}"


def _all_ones(line: str) -> dict[str, Any]:
    """The link of a device that has left the bus: all its registers read as ones, the revision too."""
    return {"width": NO_ANSWER_LANES} if _GONE.search(line) else {}


def _detail(device: dict[str, Any], line: str) -> None:
    if link := _LINK.match(line):
        which = "_max" if link[1] == "Cap" else ""
        device[f"width{which}"] = int(link[3])
        if link[2]:
            device[f"speed{which}"] = f"{float(link[2])} GT/s PCIe"
    elif driver := _DRIVER.match(line):
        device["driver"] = driver[1]
    elif _AVAILABLE.match(line) and "driver" not in device:
        device["driver"] = ""
        if device.get("vendor") == NVIDIA and device["address"].endswith(":00.0"):
            device["function_of"] = ""  # a GPU's virtual functions are other devices or functions of its bus
    elif numa := _NUMA.match(line):
        device["numa"] = int(numa[1])


def is_records(text: str) -> bool:
    """Whether this is the output of `lspci -vmm`, with or without numbers."""
    return bool(_SLOT.search(text))


def read_records(text: str) -> Mapping[str, object]:
    """The collector `pci`. Raises CaptureError."""
    devices = []
    for record in re.split(r"\n[ \t]*\n", text)[: MAX_DEVICES * 16]:
        slot = _SLOT.search(record)
        if not slot:
            continue
        rows = {key: value.strip() for key, _, value in (line.partition(":") for line in record.split("\n"))}
        kind, vendor, device = (rows.get(key, "")[:LONGEST_LINE] for key in ("Class", "Vendor", "Device"))
        known = next((number for name, number in VENDORS.items() if vendor.startswith(name)), "")
        name = kind.partition(" [")[0]
        entry = _device(
            slot[1],
            f"{number}00" if (number := _number(kind)) else CLASSES.get(name, ""),
            _number(vendor) or known,
            _number(device) or _by_name(device),
        ) | _all_ones(f"(rev {rows.get('Rev', '')})")
        if rows.get("Driver"):
            entry["driver"] = short(rows["Driver"])
        devices.append(entry)
    return _collector(devices)


def _number(text: str) -> str:
    match = re.fullmatch(r"(?:.{0,300}\[)?([0-9a-f]{4})\]?", text)
    return match[1] if match else ""


def is_tree(text: str) -> bool:
    """Whether this is the output of `lspci -tv`."""
    return bool(_TREE.search(text)) and any(_COLLECTOR.search(line) for line in _lines(text))


def read_tree(text: str) -> Mapping[str, object]:
    """The collector `pci`; the tree has no classes, so NVIDIA's GPUs are not known as such. Raises CaptureError."""
    devices = []
    domain, bus = "0000", "00"
    for line in _lines(text):
        for match in re.finditer(r"\[(?:([0-9a-f]{4}):)?([0-9a-f]{2})(?:-[0-9a-f]{2})?\]", line):
            domain, bus = match[1] or domain, match[2]
        collector = _COLLECTOR.search(line)
        if collector:
            vendor = next((number for name, number in VENDORS.items() if collector[2].startswith(name)), "")
            devices.append(_device(f"{domain}:{bus}:{collector[1]}", "", vendor, _by_name(collector[2])))
    return _collector(devices)


def _collector(devices: list[dict[str, Any]]) -> dict[str, object]:
    """The devices that the probe reports too. Raises CaptureError if the text has no device at all."""
    if not devices:
        raise CaptureError("lspci lists no device")
    wanted = [device for device in devices if _matters(device)]
    neuron = sum(1 for device in devices if device.pop("neuron", False))
    collected: dict[str, object] = {"pci": {"devices": wanted[:MAX_DEVICES]}}
    return {**collected, "neuron": {"on_bus": neuron}} if neuron else collected


def _matters(device: Mapping[str, Any]) -> bool:
    vendor = device.get("vendor")
    return vendor in (NVIDIA, MELLANOX) or (vendor == AMAZON and str(device.get("device", "")).startswith("efa"))


def _lines(text: str) -> Iterator[str]:
    return (line[:LONGEST_LINE] for line in text.split("\n"))


MAX_FUNCTIONS = 1024
ACS_NAMES = (
    "SrcValid",
    "TransBlk",
    "ReqRedir",
    "CmpltRedir",
    "UpstreamFwd",
    "EgressCtrl",
    "DirectTrans",
)  # bit 0 first

_DEVICE = re.compile(r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:]{2,60}): (.{1,200})")
_ORDER = re.compile(r"\s{1,40}RlxdOrd([+-])")
_SIZES = re.compile(r"\s{1,40}MaxPayload (\d{3,4}) bytes, MaxReadReq (\d{3,4}) bytes")
_ACS = re.compile(r"\s{1,40}ACSCtl:\s{1,4}((?:[A-Za-z]{8,12}[+-] ?){1,7})")


def is_settings(text: str) -> bool:
    """Whether the text has a line of settings of lspci -vv."""
    return any(_SIZES.match(line) or _ACS.match(line) for line in text.split("\n"))


def read_settings(text: str) -> Mapping[str, object]:
    """The collector `pci_config`, without the IOMMU's mode and whether the machine is virtual. Raises CaptureError."""
    functions: list[dict[str, Any]] = []
    nowhere: list[dict[str, object]] = []
    for line in text.split("\n"):
        if match := _DEVICE.match(line):
            kind, model = _kind(match[2], match[3]), match[3].partition(" (rev")[0]
            functions.append({"address": _whole(match[1]), "kind": kind, "model": model, "settings": {}})
        elif functions:
            functions[-1]["settings"].update(_setting(line))
        else:
            nowhere.append(_setting(line))
    if not functions:
        redirecting = sum(bool(PciSettings(setting).redirects) for setting in nowhere if "acs" in setting)
        has_acs = f", of which {redirecting} have ACS on" if redirecting else ""
        raise CaptureError(f"it has settings without their devices{has_acs}; expected grep -E '^[0-9a-f]|ACSCtl'")
    nothing = {"max_payload": None, "max_read_request": None, "relaxed_ordering": None, "acs": None}
    rows = [
        {**function, "settings": {**nothing, **function["settings"]}} for function in functions if function["settings"]
    ]
    return {"pci_config": {"functions": rows[:MAX_FUNCTIONS]}}


def _kind(kind: str, name: str) -> str:
    """`gpu` or `nic`, by lspci's words; `port` for everything else, which is not compared."""
    if "NVIDIA" in name and kind.startswith(("3D", "VGA")):
        return "gpu"
    is_nic = ("Mellanox" in name and kind.startswith(("Infiniband", "Ethernet"))) or "Elastic Fabric Adapter" in name
    return "nic" if is_nic else "port"


def _setting(line: str) -> dict[str, object]:
    if match := _SIZES.match(line):
        return {"max_payload": int(match[1]), "max_read_request": int(match[2])}
    if match := _ORDER.match(line):
        return {"relaxed_ordering": match[1] == "+"}
    if match := _ACS.match(line):
        on = {word[:-1] for word in match[1].split() if word[-1] == "+"}
        return {"acs": sum(1 << bit for bit, name in enumerate(ACS_NAMES) if name in on)}
    return {}


FORMS = (
    Form("lspci", is_lspci, read_lspci),
    Form("lspci -vmm", is_records, read_records),
    Form("lspci -tv", is_tree, read_tree, 30),
    Form("lspci -vvv", is_settings, read_settings),
)
