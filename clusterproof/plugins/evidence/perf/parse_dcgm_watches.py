"""What DCGM has watched: `dcgmi health -c`, the last Xid of each GPU by `dcgmi dmon -e 230`, NVLinks by `dcgmi nvlink`.

Any user of a node can put values into its host engine (`dcgmi test --inject`): its report is at most a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from clusterproof.plugins.catalog.nvidia import xid
from clusterproof.plugins.evidence.gpu.parse_nvidia_words import bit_error_rate
from clusterproof.plugins.evidence.parsing import CaptureError, Form, document_in, integer, short, typed_above
from clusterproof.plugins.evidence.perf.parse_dcgm import diag_log

MAX_INCIDENTS = 256
HEALTHY = "Healthy"
_REPORT, _OVERALL = "Health Monitor Report", "Overall Health"
_ROW = re.compile(r"\|(.{1,120})\|(.{1,200})\|\s*\Z")
_OLD_GPU = re.compile(r"GPU ID: (\d{1,3})")
_SYSTEM = re.compile(r"(?:PCIe|NVLINK|PMU|MCU|Memory|SM|InfoROM|Thermal|Power) system|Driver|NvSwitch\b.{0,40}", re.I)


class Incidents:
    """The problems in a report, by device: `3` is a GPU, `NvSwitch 0` is not."""

    def __init__(self) -> None:
        self.overall = ""
        self.by_device: dict[str, list[str]] = {}

    def log(self, title: str) -> Mapping[str, object]:
        """The collector `dcgm_diag` with a warning for each device; empty if all devices are well."""
        results = [
            {
                "gpu": device,
                "status": "warn",
                "messages": [{"text": short(" ".join(reasons)), "severity": None}] if reasons else [],
            }
            for device, reasons in list(self.by_device.items())[:MAX_INCIDENTS]
        ]
        if not results and self.overall not in ("", HEALTHY):
            results = [{"gpu": "", "status": "warn", "messages": [{"text": self.overall, "severity": None}]}]
        tests = [{"name": title, "category": "", "results": results}]
        return diag_log("", "", tests) if results else {}


def is_health(text: str) -> bool:
    """Whether this is the table of `dcgmi health -c`."""
    return _REPORT in text and _OVERALL in text and text.lstrip()[:1] != "{"


def read_health(text: str) -> Mapping[str, object]:
    """The collector `dcgm_diag`, if something is not healthy. Raises CaptureError."""
    incidents = Incidents()
    group = device = ""
    for line in text.split("\n"):
        row = _ROW.match(line)
        left, right = (row[1].rstrip(), row[2].strip()) if row else ("", "")
        if left.strip().startswith(_OVERALL):
            incidents.overall = right
        elif old := _OLD_GPU.search(left):
            group, device = "GPU", old[1]
        elif left.startswith(" -> "):
            device = left[4:].strip()
        elif left.startswith("  ") and (left.strip().startswith("-> ") or not left.strip()):
            pass
        elif left.strip() and not right:
            group, device = left.strip(), ""
        if device and right and right != HEALTHY:
            reasons = incidents.by_device.setdefault(device if group == "GPU" else f"{group} {device}", [])
            system = left.strip().removeprefix("-> ")
            reasons += [f"{system}:"] if _SYSTEM.fullmatch(system) else [right] if not system else []
    if not incidents.overall:
        raise CaptureError("dcgmi health does not say how healthy all is")
    return incidents.log("dcgmi health")


def is_health_json(text: str) -> bool:
    """Whether this is the JSON of `dcgmi health -c -j`."""
    return text.lstrip()[:1] == "{" and f'"{_REPORT}"' in text and f'"{_OVERALL}"' in text


def read_health_json(text: str) -> Mapping[str, object]:
    """The collector `dcgm_diag`, if something is not healthy. Raises CaptureError."""
    body = _table(document_in(text).get("body"))
    incidents = Incidents()
    incidents.overall = short(_table(body.get(_OVERALL)).get("value"))
    for group, entry in body.items():
        for number, device in _children(entry).items():
            if (status := short(_table(device).get("value"))) and status != HEALTHY:
                name = number if group == "GPU" else f"{group} {number}"
                systems = _children(_children(device).get("Errors"))
                incidents.by_device[short(name)] = [word for system in systems.items() for word in _incidents(*system)]
    if not incidents.overall:
        raise CaptureError("dcgmi health does not say how healthy all is")
    return incidents.log("dcgmi health")


def _incidents(system: str, entry: object) -> Iterable[str]:
    more = _table(entry).get("overflow")
    return [f"{short(system)}:", *(map(short, more) if isinstance(more, list) else ())]


def _children(entry: object) -> dict[str, Any]:
    return _table(_table(entry).get("children"))


def _table(entry: object) -> dict[str, Any]:
    return entry if isinstance(entry, dict) else {}


# dcgmi dmon

_HEADER = re.compile(r"^# ?Entity((?: {1,40}[A-Z0-9_]{2,20}){1,64}) *$", re.MULTILINE)
_ASKED = re.compile(r"\bdcgmi dmon .{0,100}?-e ?([\d,]{1,200})")
_OF_GPU = re.compile(r"^GPU (\d{1,3})((?: {1,40}\S{1,24}){1,64}) *$", re.MULTILINE)
_XID, _FIELD = "XIDER", "230"
OF_PROGRAMS = ("none", "repeat-concern")  # verdicts of Xids that a program's own fault can cause too


def is_dmon(text: str) -> bool:
    """Whether this is the output of `dcgmi dmon` with the last Xids among its columns."""
    return _xid_column(text) is not None and bool(_OF_GPU.search(text))


def _xid_column(text: str) -> int | None:
    """The index of the column with Xids."""
    header, requested = _HEADER.search(text), _ASKED.search(typed_above(text))
    if header:
        return next((index for index, name in enumerate(header[1].split()) if name.startswith(_XID)), None)
    fields = requested[1].split(",") if requested else []
    return fields.index(_FIELD) if _FIELD in fields else None


def read_dmon(text: str) -> Mapping[str, object]:
    """The collector `dcgm_diag`, if the last Xid of a GPU is not one that a program can cause. Raises CaptureError."""
    codes: dict[str, dict[int, None]] = {}
    column = _xid_column(text) or 0
    for gpu, values in _OF_GPU.findall(text)[:100_000]:
        cells = values.split()
        code = cells[column] if column < len(cells) else ""
        if code.isdecimal() and int(code) and xid(int(code)).verdict not in OF_PROGRAMS:
            codes.setdefault(gpu, {})[int(code)] = None
    incidents = Incidents()
    for gpu, of_gpu in codes.items():
        incidents.by_device[gpu] = [f"its last Xid is {', then '.join(f'{code}: {xid(code).name}' for code in of_gpu)}"]
    return incidents.log("dcgmi dmon")


MAX_GPUS = 128
MAX_LINKS = 64

_LINKS = re.compile(
    r"^[ \t]{0,16}gpuId[ \t]{1,4}(\d{1,3}):[ \t]{0,16}\n[ \t]{0,16}([UDXN_](?:[ \t]{1,8}[UDXN_]){0,63})[ \t]{0,16}$",
    re.MULTILINE,
)


def is_nvlink_status(text: str) -> bool:
    """Whether this is the grid of `dcgmi nvlink -s`."""
    return bool(_LINKS.search(text))


def read_nvlink_status(text: str) -> Mapping[str, object]:
    """The links for the collector `nvml`, U up and D down; a disabled one is no link. Raises CaptureError."""
    gpus = [{"index": int(number), **_links(states.split())} for number, states in _LINKS.findall(text)[:MAX_GPUS]]
    if not gpus:
        raise CaptureError("dcgmi nvlink -s names no GPU")
    return {"nvml": {"init": None, "gpus": gpus}}


def _links(states: list[str]) -> dict[str, list[bool] | list[int]]:
    """The states of the links of one GPU, and their numbers."""
    numbers = [number for number, state in enumerate(states) if state in ("U", "D")]
    return {"nvlinks": [states[number] == "U" for number in numbers], "nvlink_numbers": numbers}


_COUNTERS = {
    "CRC FLIT Error": "crc_flit",
    "CRC Data Error": "crc_data",
    "Replay Error": "replay",
    "Recovery Error": "recovery",
}
_OF_ALL_LINKS = "Error Detail"  # since Blackwell it has one count for all links of a GPU, as the driver does
_COUNTERS_OF_ALL = {
    "Malformed Packet Error": "malformed",
    "Buffer Overrun Error": "overrun",
    "Rx Error": "receive",
    "Link Integrity Error": "integrity",
    "Effective BER": "effective_ber",
    "Symbol BER": "symbol_ber",
}


def is_nvlink_errors(text: str) -> bool:
    """Whether this is the JSON of `dcgmi nvlink -e -j`."""
    return '"NVLINK Error Counts"' in text[:2_000_000]


def read_nvlink_errors(text: str) -> Mapping[str, object]:
    """The counters of the links of one GPU of the collector `nvml`. Raises CaptureError."""
    document = document_in(text)
    header, links = document.get("header"), document.get("body")
    titles = " ".join(short(title) for title in header) if isinstance(header, list) else ""
    named = re.search(r"\bGPU (\d{1,3})\b", titles)
    if not named or not isinstance(links, dict):
        raise CaptureError("dcgmi nvlink -e does not say of which GPU")
    errors: dict[str, dict[str, object]] = {}
    for link, counters in list(links.items())[:MAX_LINKS]:
        children = counters.get("children") if isinstance(counters, dict) else None
        rows = children if isinstance(children, dict) else {}
        is_of_all = link == _OF_ALL_LINKS
        kinds = {title: kind for title, kind in _COUNTERS_OF_ALL.items() if title in rows} if is_of_all else _COUNTERS
        for title, kind in kinds.items():
            row, counted = rows.get(title), errors.setdefault(kind, {})
            read = bit_error_rate if kind.endswith("_ber") else integer
            count = read(short(row.get("value"))) if isinstance(row, dict) else None
            if count != 0:
                number = "all" if is_of_all else short(link).removeprefix("Link ")
                counted[number] = {"error": "NOT_UNDERSTOOD", "text": short(title)} if count is None else count
    gpu = {"index": int(named[1]), "nvlink_errors": errors}
    return {"nvml": {"init": None, "gpus": [gpu]}}


FORMS = (
    Form("dcgmi health -c", is_health, read_health),
    Form("dcgmi health -c -j", is_health_json, read_health_json),
    Form("dcgmi dmon", is_dmon, read_dmon),
    Form("dcgmi nvlink -e -j", is_nvlink_errors, read_nvlink_errors, 30),
    Form("dcgmi nvlink -s", is_nvlink_status, read_nvlink_status, 30),
)
