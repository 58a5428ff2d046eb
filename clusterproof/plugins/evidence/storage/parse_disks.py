"""Disks and memory controllers: `nvme list`, and the counters of EDAC."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.evidence.parsing import CaptureError, Form, short

MAX_CONTROLLERS = 256

_NVME = re.compile(
    r"^/dev/(nvme\d{1,4})(n\d{1,4})[ \t]{1,40}(?:/dev/ng\S{1,20}[ \t]{1,40})?(\S{1,40})[ \t]{1,40}"
    r"(\S.{0,60}?)[ \t]{1,40}(?:0x)?\d{1,8}[ \t]{1,40}[\d.]{1,10}[ \t]{1,4}[kMGTP]?B[ \t]{1,4}/",
    re.MULTILINE,
)
_EDAC = re.compile(
    r"^/sys/devices/system/edac/mc/(mc\d{1,4})/(ce_count|ue_count|mc_name|seconds_since_reset):(.{0,100})$",
    re.MULTILINE,
)
_EDAC_KEYS = {"ce_count": "corrected", "ue_count": "uncorrected", "seconds_since_reset": "counted_s"}


def is_nvme_list(text: str) -> bool:
    """Whether it is the table of `nvme list`."""
    return bool(_NVME.search(text))


def read_nvme_list(text: str) -> Mapping[str, object]:
    """The controllers of the collector `nvme`, without their states and who uses the disks. Raises CaptureError."""
    controllers: dict[str, dict[str, Any]] = {}
    for name, disk, serial, model in _NVME.findall(text)[:MAX_CONTROLLERS]:
        data = controllers.setdefault(name, {"name": name, "model": short(model), "serial": serial, "disks": []})
        data["disks"].append({"name": f"{name}{disk}"})
    if not controllers:
        raise CaptureError("nvme list has no disk")
    return {"nvme": {"controllers": list(controllers.values())}}


def is_edac(text: str) -> bool:
    """Whether it is `grep . /sys/devices/system/edac/mc/mc*/*`."""
    return bool(_EDAC.search(text))


def read_edac(text: str) -> Mapping[str, object]:
    """The memory controllers of the collector `edac`, without their modules."""
    controllers: dict[str, dict[str, Any]] = {}
    for name, file, value in _EDAC.findall(text)[: MAX_CONTROLLERS * 4]:
        data = controllers.setdefault(name, {"name": name, "modules": []})
        if file == "mc_name":
            data["type"] = short(value.strip())
        elif value.strip().isdecimal():
            data[_EDAC_KEYS[file]] = int(value)
        else:
            data[_EDAC_KEYS[file]] = {"error": "EINVAL", "text": short(value)}
    return {"edac": {"controllers": list(controllers.values())}}


FORMS = (
    Form("nvme list", is_nvme_list, read_nvme_list),
    Form("sysfs edac", is_edac, read_edac),
)
