"""Disks that are used together, as `zpool status` and `multipath -ll` show them: arrays of the collector `nvme`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.parsing import Form, sections

MAX_POOLS, MAX_DISKS = 256, 4096

_POOL = re.compile(r"^ {0,4}pool: (\S{1,255})\n {0,4}state: ([A-Z]{1,20})$", re.MULTILINE)
_WELL = re.compile(r"^(?:all pools are healthy|pool '\S{1,255}' is healthy)$", re.MULTILINE)
_LOST = ("SUSPENDED", "FAULTED", "UNAVAIL")
_DISK = re.compile(r"^\s{1,40}(\S{1,255})\s{1,200}(?:FAULTED|UNAVAIL|REMOVED|OFFLINE)\s{1,20}\d", re.MULTILINE)
_OF_DISKS = re.compile(r"(?:mirror|raidz\d?|draid\S{0,20}|replacing|spare)-\d{1,4}")
UNNAMED = "a disk"

_PATH = re.compile(
    r"^[ |`+_\\-]{1,12}[\d#]{1,6}(?::[\d#]{1,10}){3} {1,12}(\S{1,40}) {1,12}\d{1,5}:\d{1,5} {1,12}"
    r"(active|failed|undef|offline) {1,12}(\w{1,12})(?: {1,12}\w{1,16})?$",
    re.MULTILINE,
)
_MAP = re.compile(r"^(\S{1,128})(?: \(\S{1,128}\))? (?:dm-\d{1,5} |undef )", re.MULTILINE)


def is_zpool(text: str) -> bool:
    """Whether it is `zpool status`."""
    return bool(_POOL.search(text) or _WELL.search(text))


def read_zpool(text: str) -> Mapping[str, object]:
    """The pools; one that goes on without a disk that is not shown lacks `a disk`."""
    arrays = []
    for head, rest in sections(_POOL, text, MAX_POOLS):
        failed = [disk for disk in _DISK.findall(rest)[:MAX_DISKS] if disk != head[1] and not _OF_DISKS.fullmatch(disk)]
        is_lost = head[2] in _LOST
        unnamed = [UNNAMED] if head[2] != "ONLINE" and not is_lost and not failed else []
        arrays.append({**_array(head[1], "zfs", failed + unnamed), "is_lost": is_lost})
    return {"nvme": {"arrays": arrays}}


def is_multipath(text: str) -> bool:
    """Whether it is `multipath -ll`, or what grep leaves of its paths."""
    return bool(_PATH.search(text))


def read_multipath(text: str) -> Mapping[str, object]:
    """The maps, with the paths that failed; how many each has is known only below its name."""
    first = _MAP.search(text)
    above = text[: first.start()] if first else text
    arrays = [_map(head[1], rest, is_whole=True) for head, rest in sections(_MAP, text, MAX_POOLS)]
    return {"nvme": {"arrays": [_map("multipath", above, is_whole=False)] * bool(_PATH.search(above)) + arrays}}


def _map(name: str, rest: str, *, is_whole: bool) -> dict[str, object]:
    paths = _PATH.findall(rest)[:MAX_DISKS]
    failed = [
        disk for disk, device_mapper, checker in paths if "failed" in device_mapper or checker in ("faulty", "shaky")
    ]
    counts = {"disks": len(paths), "working": len(paths) - len(failed)} if is_whole and paths else {}
    return {**_array(name, "multipath", failed), **counts}


def _array(name: str, level: str, failed: list[str]) -> dict[str, object]:
    return {"name": name, "level": level, "is_active": True, "failed": failed}


FORMS = (
    Form("zpool status", is_zpool, read_zpool),
    Form("multipath -ll", is_multipath, read_multipath),
)
