"""Parses /etc/fstab, `nvme list`, and Lustre's `lfs df` and `lctl get_param`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.evidence.parsing import CaptureError, Form, integer, objects, sections, short
from clusterproof.plugins.evidence.storage.collect_lustre import CACHE, DEACTIVATED, KINDS, TUNING
from clusterproof.plugins.evidence.storage.collect_mounts import MAX_FSTAB, PSEUDO
from clusterproof.plugins.evidence.storage.facts_lustre import parse_lfs_df
from clusterproof.plugins.evidence.storage.parse_findmnt import TREE, is_findmnt_table
from clusterproof.plugins.evidence.storage.parse_mounts import FSTAB_TITLE, LONGEST_LINE, mount_of, unescaped

# Whose sources have no form of their own: `beegfs_nodev`, `gpfs0`, `tank/home`; `none` of a bind mount.
_OF_ANY_SOURCE = "beegfs|weka(?:fs)?|gpfs|cifs|smb3|ceph|glusterfs|virtiofs|9p|fuse|zfs|none"
_FSTAB = re.compile(
    rf"(?:[^#\s]\S{{0,200}}(?=[ \t]{{1,80}}/(?!/)\S{{0,400}}[ \t]{{1,80}}(?:{_OF_ANY_SOURCE})\b)|"
    r"(?:UUID|LABEL|PARTUUID|PARTLABEL)=\S{1,200}|/dev/\S{1,200}|[^#\s]\S{0,200}@tcp:/\S{1,200}|[^#\s]\S{0,200}:/\S{0,400}"
    r"|tmpfs|none|fs-\S{1,60})[ \t]{1,80}(/\S{0,400})[ \t]{1,80}[a-z9][\w.]{1,20}(?:[ \t]{1,80}\S{1,800})?"
    r"(?:[ \t]{1,40}\d[ \t]{1,40}\d)?[ \t]*\Z"
)


def is_fstab(text: str) -> bool:
    """Whether the text has lines of /etc/fstab: such as no list of mounts has, or any lines below fstab's title."""
    return bool(_of_fstab(text))


def read_fstab(text: str) -> Mapping[str, object]:
    """The fstab entries of the collector `mounts`, without whether they are mounted. Raises CaptureError."""
    entries = [
        {
            "path": unescaped(row[1]).rstrip("/") or "/",
            "type": row[2],
            "source": unescaped(row[0]),
            "options": row[3] if len(row) > 3 else "defaults",
        }
        for row in map(str.split, _of_fstab(text))
        if not PSEUDO.fullmatch(row[2])
    ]
    if not entries:
        raise CaptureError("fstab mounts nothing")
    return {"mounts": {"fstab": entries[:MAX_FSTAB]}}


def _of_fstab(text: str) -> list[str]:
    title = FSTAB_TITLE.search(text)
    lines = [line[:LONGEST_LINE] for line in text[:400_000].split("\n")]
    if is_findmnt_table(text):  # whose rows begin with where each source, which may be a folder, is mounted
        lines = [line for line in lines if not line.lstrip(TREE).startswith("/") or line.startswith("/dev/")]
    return [line for line in lines if _FSTAB.match(line) and (title or not mount_of(line))]


def completed(data: object) -> object:
    """The collector `mounts` after all files are read: whether fstab's entries are mounted, if all mounts were
    listed.
    """
    if not isinstance(data, dict):
        return data
    value = {key: entry for key, entry in data.items() if key != "paths"}
    paths, entries = data.get("paths"), data.get("fstab")
    if isinstance(paths, list) and isinstance(entries, list):
        value["fstab"] = [{**entry, "mounted": entry.get("path") in paths} for entry in objects(entries)]
    if "mounts" in data:
        value["mounts"] = list(_of_the_node(objects(data["mounts"]), objects(entries)))
    return value


def _of_the_node(mounts: list[dict[str, Any]], fstab: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The mounts, without errors at those that a user may have mounted: df does not show who mounted them."""
    due = {entry.get("path") for entry in fstab}
    are_listed = any("options" in mount for mount in mounts if mount.get("path") == "/")  # so all but users' own
    for mount in mounts:
        alive = mount.get("alive", "yes")
        if alive == "yes" or "options" in mount or mount.get("path") in due or not isinstance(alive, str):
            yield mount
        elif not are_listed:
            yield {**mount, "alive": {"error": alive, "text": "df does not say who has mounted it"}}


MAX_CONTROLLERS = 256

_NVME = re.compile(
    r"^/dev/(nvme\d{1,4})(n\d{1,4})[ \t]{1,40}(?:/dev/ng\S{1,20}[ \t]{1,40})?(\S{1,40})[ \t]{1,40}"
    r"(\S.{0,60}?)[ \t]{1,40}(?:0x[0-9a-f]{1,8}|\d{1,8})[ \t]{1,40}[\d.]{1,10}[ \t]{1,4}[kMGTP]?B[ \t]{1,4}/",
    re.MULTILINE,
)


def is_nvme_list(text: str) -> bool:
    """Whether this is the table of `nvme list`."""
    return bool(_NVME.search(text))


def read_nvme_list(text: str) -> Mapping[str, object]:
    """The controllers of the collector `nvme`, without their states and what uses the disks. Raises CaptureError."""
    controllers: dict[str, dict[str, Any]] = {}
    for name, disk, serial, model in _NVME.findall(text)[:MAX_CONTROLLERS]:
        controller = controllers.setdefault(name, {"name": name, "model": short(model), "serial": serial, "disks": []})
        controller["disks"].append({"name": f"{name}{disk}"})
    if not controllers:
        raise CaptureError("nvme list has no disk")
    return {"nvme": {"controllers": list(controllers.values())}}


MAX_TARGETS = 1024
MAX_STATISTICS = 2000  # characters of one parameter

_HEADER = re.compile(r"^UUID\s{1,80}(?:bytes|1K-blocks|Inodes)\s{1,40}I?Used\b", re.MULTILINE)
_PARAMETER = re.compile(r"^(mgc|mdc|osc|llite)\.([\w.@:-]{1,120}?)\.(import|[a-z_]{3,40})=(.{0,200})$", re.MULTILINE)
_STATE = re.compile(r"^\s{1,16}state:\s{1,16}(\w{1,40})", re.MULTILINE)
_CURRENT = re.compile(r"^\s{0,16}current_state:\s{1,16}(\w{1,40})", re.MULTILINE)
_TARGET = re.compile(
    r"^[ \t]{0,16}target:[ \t]{1,16}([\w.@:-]{1,120})\n(?:[ \t]{0,16}current_connection:.{0,200}\n)?"
    r"[ \t]{0,16}state:[ \t]{1,16}(\w{1,40})[ \t]*$",
    re.MULTILINE,
)
_KINDS = {"MGS": "mgc", "MDT": "mdc", "OST": "osc"}  # the kind of client for each kind of server
_HEALTH = re.compile(
    r"^(?:lustre\.|/sys/fs/lustre/|/proc/fs/lustre/)?health_check[=:]\s{0,8}(\S.{0,199})$", re.MULTILINE
)
_VERSION = re.compile(r"^(?:lctl |lustre[.:=] ?|version[=:] ?)(\d{1,2}\.\d{1,3}[\w.-]{0,40})$", re.MULTILINE)


def is_lfs_df(text: str) -> bool:
    """Whether this is the table of `lfs df`."""
    return bool(_HEADER.search(text))


def read_lfs_df(text: str) -> Mapping[str, object]:
    """The collector `lustre_space`: inodes with -i, otherwise space. Raises CaptureError."""
    targets = parse_lfs_df(text)
    if not targets:
        raise CaptureError("lfs df lists no target")
    left_out = max(0, len(targets) - MAX_TARGETS)
    return {"lustre_space": {"targets": targets[:MAX_TARGETS], "left_out": left_out}}


def is_parameters(text: str) -> bool:
    """Whether this is the output of `lctl get_param` of a client's imports, tuning, cache or health."""
    return bool(_PARAMETER.search(text) or _HEALTH.search(text))


def read_parameters(text: str) -> Mapping[str, object]:
    """The collector `lustre`, as far as the parameters go."""
    lustre: dict[str, object] = {}
    if health := _HEALTH.search(text):
        lustre["health"] = health[1].strip()
    if version := _VERSION.search(text):
        lustre["version"] = version[1]
    clients: dict[str, dict[str, object]] = {}
    caches: dict[str, dict[str, object]] = {}
    for parameter, rest in sections(_PARAMETER, text, MAX_TARGETS * 8):
        kind, name, key, value = parameter.groups()
        if kind == "llite":
            if key in CACHE:
                caches.setdefault(name, {"name": name})[key] = f"{value}{rest}".strip()[:MAX_STATISTICS]
            continue
        client = clients.setdefault(name, {"kind": kind if kind in KINDS else "", "name": name})
        if key in ("import", "state"):
            client["state"] = _state(_STATE if key == "import" else _CURRENT, rest)
        elif key in TUNING:
            count = integer(value.strip())
            client[key] = short(value.strip()) if count is None else count
    if clients:
        lustre |= {"clients": list(clients.values())[:MAX_TARGETS], "left_out": max(0, len(clients) - MAX_TARGETS)}
    if caches:
        lustre["caches"] = list(caches.values())
    return {"lustre": lustre}


def _state(form: re.Pattern[str], text: str) -> object:
    """The state of an import, or that it is deactivated."""
    if "deactive" in text:
        return DEACTIVATED
    state = form.search(text)
    return state[1] if state else {"error": "EINVAL", "text": "an import without a state"}


def is_states(text: str) -> bool:
    """Whether the text is the lines of imports that `grep -E 'target|state:'` kept, without their parameters' names."""
    return bool(_TARGET.search(text)) and not _PARAMETER.search(text)


def read_states(text: str) -> Mapping[str, object]:
    """The clients of the collector `lustre`, named after their targets."""
    rows = [
        {"kind": next((kind for word, kind in _KINDS.items() if word in target), ""), "name": target, "state": state}
        for target, state in ((target.removesuffix("_UUID"), state) for target, state in _TARGET.findall(text))
    ]
    return {"lustre": {"clients": rows[:MAX_TARGETS], "left_out": max(0, len(rows) - MAX_TARGETS)}}


FORMS = (
    Form("fstab", is_fstab, read_fstab),
    Form("nvme list", is_nvme_list, read_nvme_list),
    Form("lfs df", is_lfs_df, read_lfs_df),
    Form("lctl get_param", is_parameters, read_parameters),
    Form("lctl get_param | grep", is_states, read_states, 40),
)
