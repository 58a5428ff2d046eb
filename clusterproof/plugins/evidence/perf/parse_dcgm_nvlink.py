"""What DCGM's command line prints of NVLinks: `dcgmi nvlink -s` and `dcgmi nvlink -e -j`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.parsing import CaptureError, Form, document_in, short, whole

MAX_GPUS = 128
MAX_LINKS = 64

_LINKS = re.compile(
    r"^[ \t]{0,16}gpuId[ \t]{1,4}(\d{1,3}):[ \t]{0,16}\n[ \t]{0,16}([UDXN_](?:[ \t]{1,8}[UDXN_]){0,63})[ \t]{0,16}$",
    re.MULTILINE,
)


def is_nvlink_status(text: str) -> bool:
    """Whether it is the grid of `dcgmi nvlink -s`."""
    return bool(_LINKS.search(text))


def read_nvlink_status(text: str) -> Mapping[str, object]:
    """The links of the collector `nvml`, U up and D down; what is disabled is no link. Raises CaptureError."""
    gpus = [{"index": int(number), **_links(states.split())} for number, states in _LINKS.findall(text)[:MAX_GPUS]]
    if not gpus:
        raise CaptureError("dcgmi nvlink -s names no GPU")
    return {"nvml": {"init": None, "gpus": gpus}}


def _links(states: list[str]) -> dict[str, list[bool] | list[int]]:
    """The links of one GPU, and their numbers."""
    numbers = [number for number, state in enumerate(states) if state in ("U", "D")]
    return {"nvlinks": [states[number] == "U" for number in numbers], "nvlink_numbers": numbers}


_COUNTERS = {
    "CRC FLIT Error": "crc_flit",
    "CRC Data Error": "crc_data",
    "Replay Error": "replay",
    "Recovery Error": "recovery",
}
_OF_ALL_LINKS = "Error Detail"  # since Blackwell it counts those of a GPU together, as far as the driver does
_COUNTERS_OF_ALL = {
    "Malformed Packet Error": "malformed",
    "Buffer Overrun Error": "overrun",
    "Rx Error": "receive",
    "Link Integrity Error": "integrity",
}


def is_nvlink_errors(text: str) -> bool:
    """Whether it is the JSON of `dcgmi nvlink -e -j`."""
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
            count = whole(short(row.get("value"))) if isinstance(row, dict) else None
            if count != 0:
                number = "all" if is_of_all else short(link).removeprefix("Link ")
                counted[number] = {"error": "NOT_UNDERSTOOD", "text": short(title)} if count is None else count
    gpu = {"index": int(named[1]), "nvlink_errors": errors}
    return {"nvml": {"init": None, "gpus": [gpu]}}


FORMS = (
    Form("dcgmi nvlink -e -j", is_nvlink_errors, read_nvlink_errors, 30),
    Form("dcgmi nvlink -s", is_nvlink_status, read_nvlink_status, 30),
)
