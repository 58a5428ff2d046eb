"""Lustre as a person asks for it: `lfs df`, with -h and -i, and `lctl get_param` of imports and health."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.lustre.collect import KINDS, TUNING
from clusterproof.plugins.evidence.lustre.facts import parse_lfs_df
from clusterproof.plugins.evidence.parsing import CaptureError, Form, sections, short, whole

MAX_TARGETS = 1024

_HEADER = re.compile(r"^UUID\s{1,80}(?:bytes|1K-blocks|Inodes)\s{1,40}I?Used\b", re.MULTILINE)
_PARAMETER = re.compile(r"^(mgc|mdc|osc)\.([\w.@:-]{1,120}?)\.(import|[a-z_]{3,40})=(.{0,200})$", re.MULTILINE)
_STATE = re.compile(r"^\s{1,16}state:\s{1,16}(\w{1,40})", re.MULTILINE)
_HEALTH = re.compile(
    r"^(?:lustre\.|/sys/fs/lustre/|/proc/fs/lustre/)?health_check[=:]\s{0,8}(\S.{0,199})$", re.MULTILINE
)
_VERSION = re.compile(r"^(?:lctl |lustre[.:=] ?|version[=:] ?)(\d{1,2}\.\d{1,3}[\w.-]{0,40})$", re.MULTILINE)


def is_lfs_df(text: str) -> bool:
    """Whether it is the table of `lfs df`."""
    return bool(_HEADER.search(text))


def read_lfs_df(text: str) -> Mapping[str, object]:
    """The collector `lustre_space`; with -i inodes, without it space. Raises CaptureError."""
    targets = parse_lfs_df(text)
    if not targets:
        raise CaptureError("lfs df lists no target")
    left_out = max(0, len(targets) - MAX_TARGETS)
    return {"lustre_space": {"targets": targets[:MAX_TARGETS], "left_out": left_out}}


def is_parameters(text: str) -> bool:
    """Whether it is `lctl get_param` of a client's imports, tuning or health."""
    return bool(_PARAMETER.search(text) or _HEALTH.search(text))


def read_parameters(text: str) -> Mapping[str, object]:
    """The collector `lustre`, as far as the parameters go."""
    data: dict[str, object] = {}
    if health := _HEALTH.search(text):
        data["health"] = health[1].strip()
    if version := _VERSION.search(text):
        data["version"] = version[1]
    clients: dict[str, dict[str, object]] = {}
    for found, rest in sections(_PARAMETER, text, MAX_TARGETS * 8):
        kind, name, key, value = found.groups()
        client = clients.setdefault(name, {"kind": kind if kind in KINDS else "", "name": name})
        if key == "import":
            state = _STATE.search(rest)
            client["state"] = state[1] if state else {"error": "EINVAL", "text": "an import without a state"}
        elif key in TUNING:
            count = whole(value.strip())
            client[key] = short(value.strip()) if count is None else count
    if clients:
        data |= {"clients": list(clients.values())[:MAX_TARGETS], "left_out": max(0, len(clients) - MAX_TARGETS)}
    return {"lustre": data}


FORMS = (
    Form("lfs df", is_lfs_df, read_lfs_df),
    Form("lctl get_param", is_parameters, read_parameters),
)
