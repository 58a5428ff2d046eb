"""How PCIe devices and bridges are set: `lspci -vvv`, as root."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.evidence.parsing import Form

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
_ORDER = re.compile(r"\s{1,8}RlxdOrd([+-])")
_SIZES = re.compile(r"\s{1,8}MaxPayload (\d{3,4}) bytes, MaxReadReq (\d{3,4}) bytes")
_ACS = re.compile(r"\s{1,8}ACSCtl:\s{1,4}((?:[A-Za-z]{8,12}[+-] ?){1,7})")


def is_settings(text: str) -> bool:
    """Whether there is a line of settings as lspci -vv prints it."""
    return any(_SIZES.match(line) or _ACS.match(line) for line in text.split("\n"))


def read_settings(text: str) -> Mapping[str, object]:
    """The collector `pci_config`, without the IOMMU and whether the machine is a virtual one."""
    functions: list[dict[str, Any]] = []
    for line in text.split("\n"):
        if found := _DEVICE.match(line):
            kind, model = _kind(found[2], found[3]), found[3].partition(" (rev")[0]
            functions.append({"address": f"0000:{found[1]}"[-12:], "kind": kind, "model": model, "settings": {}})
        elif functions:
            functions[-1]["settings"].update(_setting(line))
    nothing = {"max_payload": None, "max_read_request": None, "relaxed_ordering": None, "acs": None}
    rows = [{**one, "settings": {**nothing, **one["settings"]}} for one in functions if one["settings"]]
    return {"pci_config": {"functions": rows[:MAX_FUNCTIONS]}}


def _kind(kind: str, name: str) -> str:
    """`gpu` or `nic`, by the words of lspci; `port` for all else, which is compared with nothing."""
    if "NVIDIA" in name and kind.startswith(("3D", "VGA")):
        return "gpu"
    is_nic = ("Mellanox" in name and kind.startswith(("Infiniband", "Ethernet"))) or "Elastic Fabric Adapter" in name
    return "nic" if is_nic else "port"


def _setting(line: str) -> dict[str, object]:
    if found := _SIZES.match(line):
        return {"max_payload": int(found[1]), "max_read_request": int(found[2])}
    if found := _ORDER.match(line):
        return {"relaxed_ordering": found[1] == "+"}
    if found := _ACS.match(line):
        on = {word[:-1] for word in found[1].split() if word[-1] == "+"}
        return {"acs": sum(1 << bit for bit, name in enumerate(ACS_NAMES) if name in on)}
    return {}


FORMS = (Form("lspci -vvv", is_settings, read_settings),)
