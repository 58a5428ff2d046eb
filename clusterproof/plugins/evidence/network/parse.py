"""Parses lsmod, ls and `fi_info` (what RDMA needs), and short lists of ports and interfaces: ibstatus and others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.evidence.field import MAX_OUTPUT
from clusterproof.plugins.evidence.network.collect_rdma import MODULES
from clusterproof.plugins.evidence.network.facts import IFF_UP
from clusterproof.plugins.evidence.network.facts_fabric import error
from clusterproof.plugins.evidence.network.parse_rdma import MAX_DEVICES, PHYSICAL, STATES, as_in_sysfs, named
from clusterproof.plugins.evidence.parsing import CaptureError, Form, sections, short, typed_above

_PROVIDER = re.compile(
    r"^(?:\[\d{1,6},\d{1,6}\]<std(?:out|err)>:|\d{1,6}: )?[ \t]{0,8}(?:provider|domain):[ \t]{1,8}\S", re.MULTILINE
)


def is_fi_info(text: str) -> bool:
    """Whether the text lists providers as fi_info does, or says that there is none."""
    return (bool(_PROVIDER.search(text)) and "fabric" in text) or bool(error(text[:MAX_OUTPUT]))


def read_fi_info(text: str) -> Mapping[str, object]:
    """The collector `libfabric`; the exit status is unknown. Raises CaptureError if the output is too long."""
    if len(text) > MAX_OUTPUT:
        raise CaptureError(f"fi_info's output has {len(text)} characters; expected at most {MAX_OUTPUT}")
    return {"libfabric": {"command": "fi_info", "output": text}}


_OF_EFA = re.compile(r"\bfi_info (?=.{0,80}-p efa\b)(?=.{0,80}-t FI_EP_RDM\b)")
_DOMAIN = re.compile(r"^[ \t]{0,8}domain: (\S{1,100})$", re.MULTILINE)


def is_domains(text: str) -> bool:
    """Whether the text is the output of fi_info piped to `grep domain`, with the command above it."""
    return bool(_OF_EFA.search(typed_above(text)) and _DOMAIN.search(text)) and not is_fi_info(text)


def read_domains(text: str) -> Mapping[str, object]:
    """The collector `libfabric`: the domains, with the provider and the endpoint type that the command asked for."""
    domains = _DOMAIN.findall(text)[:MAX_FILES]
    output = "".join(f"provider: efa\n    domain: {domain}\n    type: FI_EP_RDM\n" for domain in domains)
    return {"libfabric": {"command": "fi_info", "output": output}}


MAX_FILES = 512

_LSMOD = re.compile(r"^Module\s{1,40}Size\s{1,20}Used by", re.MULTILINE)
_FILE = re.compile(
    r"(?:/dev/infiniband/)?(uverbs\d{1,4}|rdma_cm|u(?:mad|cm)\d{1,4}|issm\d{1,4}|by-ibdev|by-path|hfi1_\d{1,3})"
)


def is_lsmod(text: str) -> bool:
    """Whether this is the output of lsmod."""
    return bool(_LSMOD.search(text))


def read_lsmod(text: str) -> Mapping[str, object]:
    """The modules of the collector `rdma`."""
    loaded = {cells[0] for line in text.split("\n") if len(cells := line.split()) >= 3 and cells[1].isdecimal()}
    return {"rdma": {"modules": [name for name in MODULES if name in loaded]}}


def is_device_files(text: str) -> bool:
    """Whether the text is the output of `ls /dev/infiniband`, in one line or several."""
    names = list(_files(text))
    return bool(names) and all(_FILE.fullmatch(name) for name in names) and any("uverbs" in name for name in names)


def read_device_files(text: str) -> Mapping[str, object]:
    """The device files of the collector `rdma`."""
    files = (_FILE.fullmatch(name) for name in _files(text))
    return {"rdma": {"uverbs": [name[1] for name in files if name and name[1].startswith("uverbs")][:MAX_FILES]}}


def _files(text: str) -> Iterator[str]:
    """The names that `ls` lists; with -l the last word of each line, without the folder's own."""
    for line in text[:100_000].split("\n"):
        cells = line.split()
        if len(cells) > 6 and cells[0][:1] in "cdlb-":
            yield from {cells[-1].rstrip("/")} - {".", ".."}
        elif cells[:1] not in (["total"], ["/dev/infiniband:"]):
            yield from cells


# ibstatus

_PORT = re.compile(r"^Infiniband device '([\w.-]{1,64})' port (\d{1,3}) status:", re.MULTILINE)
_ROW = re.compile(r"^[ \t]{1,8}(state|phys state|rate|link_layer):[ \t]{1,8}(\S.{0,120})$", re.MULTILINE)
_KEYS = {"phys state": "physical_state"}


def is_ibstatus(text: str) -> bool:
    """Whether this is the output of ibstatus."""
    return bool(_PORT.search(text))


def read_ibstatus(text: str) -> Mapping[str, object]:
    """The devices of the collector `rdma`: ibstatus prints the values of sysfs."""
    devices: dict[str, dict[str, Any]] = {}
    for head, rest in sections(_PORT, text, MAX_DEVICES):
        rows = {_KEYS.get(key, key): short(value.strip()) for key, value in _ROW.findall(rest)}
        identity = named(head[1], f"Link layer: {rows.get('link_layer', '')}")
        device = devices.setdefault(head[1], {**identity, "ports": []})
        device["ports"].append({"port": int(head[2]), **rows})
    return {"rdma": {"devices": list(devices.values())}}


# ibdev2netdev, also in columns: with -v the port's state stands before the arrow, the interface's after it

_PAIR = re.compile(
    r"^(?:[0-9a-f:.]{7,12} {1,8})?([\w.-]{1,64}) {1,60}(?:\([^()\n]{1,80}\)[^\n]{0,200}? )?port {1,8}(\d{1,3}) {1,8}"
    r"(?:\(([A-Z]{2,12})[ \t]{0,8}\) {1,8})?==> {1,8}([\w.-]{1,15}) {1,20}\((Up|Down)\)[ \t]*(?:#.{0,200})?$",
    re.MULTILINE,
)

_OF_ETHERNET = re.compile(r"en|eth|em\d|p\d{1,3}p|rdma")  # names of interfaces


def is_ibdev2netdev(text: str) -> bool:
    """Whether the text is the output of ibdev2netdev, with or without -v."""
    return bool(_PAIR.search(text))


def read_ibdev2netdev(text: str) -> Mapping[str, object]:
    """The devices of the collector `rdma`, with states only if -v was given; and which network interfaces are up.

    An Ethernet port that is down is disabled: drivers report no other state.
    """
    devices: dict[str, dict[str, Any]] = {}
    interfaces: list[dict[str, object]] = []
    for name, port, state, interface, is_up in _PAIR.findall(text)[:MAX_DEVICES]:
        row = {"port": int(port), **({"state": as_in_sysfs(STATES, state)} if state else {})}
        if state == "DOWN" and _OF_ETHERNET.match(interface):
            row["physical_state"] = PHYSICAL["disabled"]
        devices.setdefault(name, {**named(name), "ports": []})["ports"].append(row)
        interfaces.append({"name": interface, **({"carrier": True} if is_up == "Up" else {})})
    return {"rdma": {"devices": list(devices.values())}, "interfaces": {"physical": interfaces}}


# ip link, ip addr; in brief with -br

MAX_INTERFACES = 1024
_STATES = "UNKNOWN|UP|DOWN|LOWERLAYERDOWN|DORMANT|NOTPRESENT|TESTING"
_LINK = re.compile(
    rf"^([\w.@-]{{1,40}})[ \t]{{1,40}}({_STATES})[ \t]{{1,40}}"
    r"[0-9a-f:]{2,60}[ \t]{1,8}<([A-Z0-9_,-]{1,200})>[ \t]*$",
    re.MULTILINE,
)
_LONG = re.compile(
    rf"^\d{{1,6}}: ([\w.@-]{{1,40}}): <([A-Z0-9_,-]{{1,200}})> mtu (\d{{1,6}}) [^\n]{{0,200}}?\bstate ({_STATES})\b",
    re.MULTILINE,
)
# Names of interfaces with a device of their own: by systemd and the kernel, by biosdevname (em1, p1p2), of OCI (rdma0).
_PHYSICAL = re.compile(r"(?:en|eth|ib|em|rdma)\w{1,14}|p\d{1,3}p\d{1,3}")


def is_links(text: str) -> bool:
    """Whether this is the output of `ip -br link`."""
    return bool(_LINK.search(text))


def read_links(text: str) -> Mapping[str, object]:
    """The collector `interfaces`; names tell which interfaces have a device of their own."""
    rows = _LINK.findall(text)[:MAX_INTERFACES]
    physical = [_interface(name, state, flags.split(",")) for name, state, flags in rows if _PHYSICAL.fullmatch(name)]
    return {"interfaces": {"names": [name.partition("@")[0] for name, _, _ in rows], "physical": physical}}


def is_long_links(text: str) -> bool:
    """Whether this is the output of `ip link` or `ip addr` of all interfaces."""
    return any(name == "lo" for name, *_ in _LONG.findall(text))


def read_long_links(text: str) -> Mapping[str, object]:
    """The same as of the brief list, and the MTU of each."""
    rows = _LONG.findall(text)[:MAX_INTERFACES]
    physical = [
        {**_interface(name, state, flags.split(",")), "mtu": int(mtu)}
        for name, flags, mtu, state in rows
        if _PHYSICAL.fullmatch(name)
    ]
    return {"interfaces": {"names": [name.partition("@")[0] for name, *_ in rows], "physical": physical}}


def _interface(name: str, state: str, flags: list[str]) -> dict[str, object]:
    is_on = "UP" in flags
    link = {"carrier": "LOWER_UP" in flags} if is_on else {"carrier": None}
    return {"name": name, "state": state.lower(), "flags": IFF_UP if is_on else 0, **link}


_NONE = re.compile(r"^(No IB devices found|Failed to get IB devices)(?: list: .{0,100})?$", re.MULTILINE)


def is_none(text: str) -> bool:
    """Whether the text is what ibv_devinfo prints if verbs find no device."""
    return bool(_NONE.search(text))


def read_none(text: str) -> Mapping[str, object]:
    """The collector `rdma`, with an error: that verbs show no device does not prove that there is none."""
    match = _NONE.search(text)
    return {"rdma": {"devices": {"error": f"ibv_devinfo: {match[1] if match else ''}"}}}


# mlxlink, whose output does not name the device: the command above it does

_LINK_ROW = re.compile(r"^(State|Physical state) {1,40}: (\S.{0,60}?)[ \t]*$", re.MULTILINE)
_DEVICE_OPTION = re.compile(r"\s(?:-d|--device)[ =]?(mlx5_\d{1,4})(?!\w)")
_PORT_OPTION = re.compile(r"\s(?:-p|--port)[ =]?(\d{1,3})\b")
_UP, _OFF, _UNREAD = "Active", "Disable", "N/A"  # mlxlink's words; any other means that the link is not up
_LINKS = frozenset({"linkup", "polling", "disabled", "sleep"})  # physical states that sysfs has too


def is_mlxlink(text: str) -> bool:
    """Whether this is the output of mlxlink."""
    return "Operational Info" in text and bool(_LINK_ROW.search(text))


def read_mlxlink(text: str) -> Mapping[str, object]:
    """The port for the collector `rdma`, without its rate. Raises CaptureError."""
    typed, rows = typed_above(text), dict(_LINK_ROW.findall(text))
    device, port = _DEVICE_OPTION.search(typed), _PORT_OPTION.search(typed)
    if not device:
        raise CaptureError("mlxlink does not say of which device; expected its command above it, with -d mlx5_0")
    state, physical = rows.get("State", ""), rows.get("Physical state", "")
    row: dict[str, object] = {"port": int(port[1]) if port else 1}
    if state not in ("", _UNREAD):
        row["state"] = as_in_sysfs(STATES, "active" if state == _UP else "down")
    if physical.lower() in _LINKS or state == _OFF:
        row["physical_state"] = as_in_sysfs(PHYSICAL, "disabled" if state == _OFF else physical)
    return {"rdma": {"devices": [{**named(device[1]), "alone": True, "ports": [row]}]}}


FORMS = (
    Form("lsmod", is_lsmod, read_lsmod),
    Form("ls /dev/infiniband", is_device_files, read_device_files),
    Form("fi_info", is_fi_info, read_fi_info),
    Form("fi_info | grep domain", is_domains, read_domains, 40),
    Form("ibstatus", is_ibstatus, read_ibstatus, 58),
    Form("ibdev2netdev", is_ibdev2netdev, read_ibdev2netdev, 42),
    Form("ip -br link", is_links, read_links),
    Form("ip link", is_long_links, read_long_links),
    Form("ibv_devinfo's error", is_none, read_none, 20),
    Form("mlxlink", is_mlxlink, read_mlxlink, 35),
)
