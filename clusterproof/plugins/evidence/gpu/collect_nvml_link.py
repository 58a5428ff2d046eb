"""What connects one GPU to others through NVML: the state and the error counters of its NVLinks, and its fabric."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pynvml

from clusterproof.plugins.evidence.gpu.collect_nvml_call import answer_to, fields, is_unsupported, newest

# Up to Hopper a link's counters are read one by one; the fields that also report them are always 0 on Hopper.
COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}  # nvmlNvLinkErrorCounter_t
# Since Blackwell only fields report them, of other kinds: NVML_FI_DEV_NVLINK_COUNT_….
FIELDS = {
    "malformed": 206,
    "overrun": 207,
    "receive": 208,
    "integrity": 211,
    "recovery": 213,  # that succeeded
    "recovery_failed": 214,
}
MAX_LINKS = 36  # of any GPU so far; one with fewer calls the next an invalid argument
UP = (1, 2)  # active, and asleep to save power; 3 is active with its traffic disabled


def nvlinks(handle: object) -> tuple[object, object]:
    """The states of the links, and the counters of their errors."""
    states = _states(handle)
    return states, answer_to(_errors, handle, len(states)) if isinstance(states, list) else states


def _states(handle: object) -> object:
    """Each link's state, to the last that the GPU has; one error where it has none at all."""
    links: list[object] = []
    for link in range(MAX_LINKS):
        state = answer_to(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if isinstance(state, dict) and state["error"] == "INVALID_ARGUMENT":
            break
        links.append(state if isinstance(state, dict) else state in UP)
    first = links[0] if links else None
    while links and _has_no_link(links[-1]):
        links.pop()
    return links or first or []


def _has_no_link(state: object) -> bool:
    return isinstance(state, dict) and state["error"] == "NOT_SUPPORTED"


def _errors(handle: object, links: int) -> object:
    """By kind, the links whose counter is not zero or cannot be read; one error where no kind is supported."""
    replays = _counted([answer_to(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, 0) for link in range(links)])
    if is_unsupported(replays):
        kinds = {kind: _of_field(handle, field, links) for kind, field in FIELDS.items()}
    else:
        kinds = {kind: replays if kind == "replay" else _of_kind(handle, kind, links) for kind in COUNTERS}
    unsupported = [answer for answer in kinds.values() if is_unsupported(answer)]
    return unsupported[0] if len(unsupported) == len(kinds) else kinds


def _of_kind(handle: object, kind: str, links: int) -> object:
    asked = (answer_to(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, COUNTERS[kind]) for link in range(links))
    return _counted(list(asked))


def _of_field(handle: object, field: int, links: int) -> object:
    answer = answer_to(fields, handle, [(field, link) for link in range(links)])
    return _counted(list(answer)) if isinstance(answer, tuple) else answer


def _counted(answers: list[object]) -> object:
    if answers and all(is_unsupported(answer) for answer in answers):
        return answers[0]
    return {str(link): answer for link, answer in enumerate(answers) if answer}


class _FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_v3_t; without its end the second form, without its version the first.

    Declared here, for nvidia-ml-py up to 13.595 gives the cluster's UUID 80 bytes, and so misses all that follows.
    """

    _fields_ = [
        ("version", ctypes.c_uint),
        ("cluster_uuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("health_mask", ctypes.c_uint),
        ("health_summary", ctypes.c_ubyte),
    ]


def _fabric(name: str, version: int) -> Callable[[object], object]:
    """The fabric as this call returns it in this version of the struct; version 0 is the struct without one."""

    def ask(handle: object) -> object:
        info = _FabricInfo(version=version)
        getattr(pynvml, name)(handle, ctypes.byref(info, 0 if version else _FabricInfo.cluster_uuid.offset))
        data = {key: getattr(info, key) for key in ("state", "status", "health_mask", "health_summary", "clique")}
        return {**data, "cluster_uuid": bytes(info.cluster_uuid).hex()}

    return ask


fabric = newest(
    _fabric("nvmlDeviceGetGpuFabricInfoV", 0x03000028),
    _fabric("nvmlDeviceGetGpuFabricInfoV", 0x02000024),
    _fabric("nvmlDeviceGetGpuFabricInfo", 0),
)
