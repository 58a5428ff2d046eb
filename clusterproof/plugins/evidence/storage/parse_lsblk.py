"""Parses NVMe disks and their mounts from lsblk; and disks used together, from `zpool status` and `multipath -ll`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.evidence.parsing import (
    CaptureError,
    Form,
    bytes_of,
    document_in,
    integer,
    objects,
    sections,
    short,
)

KIB = 1024
MAX_DEVICES, MAX_DEPTH, LONGEST_LINE = 4_096, 16, 1_000

_HEADER = re.compile(r"^NAME((?: {1,60}[A-Z%:-]{2,20}){1,30}) *$", re.MULTILINE)
_SHOWS = ("SIZE", "TYPE", "MOUNTPOINT", "MOUNTPOINTS", "MODEL")
_BRANCH = re.compile(r"[ │├└─|`-]{0,80}")
_NAME = re.compile(r"[A-Za-z][\w.!:+-]{0,80}")
_PAIR = re.compile(r'([A-Z:%-]{2,20})="([^"\n]{0,300})"')
_NVME = re.compile(r"(nvme\d{1,4})n\d{1,4}")
_TOKEN = re.compile(r"\S{1,400}")


@dataclass(slots=True)
class Block:
    """One block device of lsblk."""

    name: str
    cells: dict[str, str] = field(default_factory=dict)
    mounts: list[str] = field(default_factory=list)
    above: list[Block] = field(default_factory=list)

    def all(self, deepest: int = MAX_DEPTH) -> Iterator[Block]:
        """This device, and all that is built on it."""
        yield self
        for block in self.above if deepest else ():
            yield from block.all(deepest - 1)


def is_table(text: str) -> bool:
    """Whether this is the table of lsblk."""
    header = _HEADER.search(text)
    titles = {*header[1].split()} if header else set()
    return bool(titles & {*_SHOWS} and titles & {"MAJ:MIN", "TYPE"} and "PRIO" not in titles)  # which swapon has


def read_table(text: str) -> Mapping[str, object]:
    """The collector `nvme`, without states. Raises CaptureError."""
    header = _HEADER.search(text)
    if not header:
        raise CaptureError("lsblk has no titles")
    titles = [(match[0], *match.span()) for match in _TOKEN.finditer(header[0])]
    roots: list[Block] = []
    path: list[tuple[int, Block]] = []  # the devices that the next line may be part of, with their indentation
    for line in text[header.end() :].split("\n")[1:MAX_DEVICES]:
        cells = _cells(line[:LONGEST_LINE], titles)
        indent = len((_BRANCH.match(line) or [""])[0])
        name = cells.pop("NAME", "").lstrip("│├└─|`- ")
        mount = cells.get("MOUNTPOINT", cells.get("MOUNTPOINTS", ""))
        if not name and path and mount.startswith("/"):
            path[-1][1].mounts.append(mount)
        elif _NAME.fullmatch(name):
            path = [(depth, block) for depth, block in path if depth < indent]
            block = Block(name, cells, [mount] if mount.startswith("/") else [])
            (path[-1][1].above if path else roots).append(block)
            path.append((indent, block))
        elif line.strip():
            break
    return _collector(roots, {title for title, *_ in titles})


def _cells(line: str, titles: list[tuple[str, int, int]]) -> dict[str, str]:
    """The text below each title: a word belongs to the title that it overlaps, otherwise to the one on its left."""
    cells: dict[str, str] = {}
    for word in _TOKEN.finditer(line):
        start, end = word.span()
        reached = [title for title, begins, ends in titles if start < ends and end > begins]
        left = [title for title, begins, _ in titles if begins <= start]
        title = next((title for title in reached if title not in cells), (left or ["NAME"])[-1])
        cells[title] = f"{cells[title]} {word[0]}" if title in cells else word[0]
    return cells


def is_pairs(text: str) -> bool:
    """Whether this is the output of `lsblk -P`."""
    first = text.lstrip().partition("\n")[0][:LONGEST_LINE]
    return 'NAME="' in first and bool({"SIZE", "TYPE", "MODEL"} & {key for key, _ in _PAIR.findall(first)})


def read_pairs(text: str) -> Mapping[str, object]:
    """The collector `nvme`, without states; what is built on a disk is known only with PKNAME. Raises CaptureError."""
    blocks: dict[str, Block] = {}
    titles: set[str] = set()
    for line in text.split("\n")[:MAX_DEVICES]:
        row: dict[str, str] = dict(_PAIR.findall(line[: 4 * LONGEST_LINE]))
        name, parent = (row.get(key, "").removeprefix("/dev/") for key in ("NAME", "PKNAME"))
        if not name or name in blocks:
            continue
        mount = row.get("MOUNTPOINT") or row.get("MOUNTPOINTS") or ""
        block = Block(name, row, [mount] if mount.startswith("/") else [])
        titles |= row.keys()
        if parent in blocks:
            blocks[parent].above.append(block)
        blocks[name] = block
    return _collector(list(blocks.values()), titles if "PKNAME" in titles else titles - {"MOUNTPOINT", "MOUNTPOINTS"})


def is_json(text: str) -> bool:
    """Whether this is the output of `lsblk --json`."""
    return text.lstrip()[:1] == "{" and '"blockdevices"' in text[:200]


def read_json(text: str) -> Mapping[str, object]:
    """The collector `nvme`, without states. Raises CaptureError."""
    devices = objects(document_in(text).get("blockdevices"))[:MAX_DEVICES]
    titles = {key.upper() for device in devices for key in device}
    return _collector([_of_json(device, MAX_DEPTH) for device in devices], titles)


def _of_json(device: Mapping[str, Any], deepest: int) -> Block:
    mounts = device.get("mountpoints")
    mounts = mounts if isinstance(mounts, list) else [device.get("mountpoint")]
    above = objects(device.get("children"))[:MAX_DEVICES] if deepest else []
    cells = {key.upper(): short(device.get(key)) for key in ("size", "model", "serial", "type")}
    return Block(
        short(device.get("name")).removeprefix("/dev/"),
        cells,
        [mount for mount in map(short, mounts[:64]) if mount.startswith("/")],
        [_of_json(child, deepest - 1) for child in above],
    )


def _collector(roots: list[Block], titles: set[str]) -> Mapping[str, object]:
    """The controllers of NVMe disks.

    Raises CaptureError if the root's disk is missing from the list: then others may be missing too.
    """
    if not any("/" in block.mounts for root in roots for block in root.all()):
        raise CaptureError("lsblk does not show where / is mounted; expected it of all devices, with MOUNTPOINT")
    controllers: dict[str, dict[str, Any]] = {}
    for block in roots:
        if not (named := _NVME.fullmatch(block.name)):
            continue
        controller = controllers.setdefault(named[1], {"name": named[1], "disks": []})
        if "MODEL" in titles:
            controller["model"] = block.cells.get("MODEL", "").strip()
        if block.cells.get("SERIAL"):
            controller["serial"] = block.cells["SERIAL"]
        disk: dict[str, object] = {"name": block.name}
        size = integer(block.cells.get("SIZE", ""))
        size = bytes_of(block.cells.get("SIZE", "")) if size is None else size
        if size is not None:
            disk["kib"] = size // KIB
        if titles & {"MOUNTPOINT", "MOUNTPOINTS"}:
            disk["mounted"] = sorted({mount for part in block.all() for mount in part.mounts})[:64]
            disk["used_by"] = [part.name for part in block.all()][1:64]
        controller["disks"].append(disk)
    return {"nvme": {"controllers": list(controllers.values())}}


MAX_POOLS, MAX_DISKS = 256, 4096

_POOL = re.compile(r"^ {0,4}pool: (\S{1,255})\n {0,4}state: ([A-Z]{1,20})$", re.MULTILINE)
_WELL = re.compile(r"^(?:all pools are healthy|pool '\S{1,255}' is healthy)$", re.MULTILINE)
_LOST = ("SUSPENDED", "FAULTED", "UNAVAIL")
_LOST_DATA = re.compile(r"^errors: (Permanent errors .{1,80}|\d{1,18} data errors.{0,80})$", re.MULTILINE)
_DISK = re.compile(r"^[ \t]{1,40}(\S{1,255})[ \t]{1,200}(?:FAULTED|UNAVAIL|REMOVED|OFFLINE)[ \t]{1,20}\d", re.MULTILINE)
_ERRORS = re.compile(
    r"^[ \t]{1,40}(\S{1,255})[ \t]{1,200}(?:ONLINE|DEGRADED)((?:[ \t]{1,20}\d[\d.]{0,8}[KMGTPE]?){3})(?=\s|$)",
    re.MULTILINE,
)
_OF_DISKS = re.compile(r"(?:mirror|raidz\d?|draid\S{0,20}|replacing|spare)-\d{1,4}")
UNNAMED = "a disk"

_PATH = re.compile(
    r"^[ |`+_\\-]{1,12}[\d#]{1,6}(?::[\d#]{1,10}){3} {1,12}(\S{1,40}) {1,12}\d{1,5}:\d{1,5} {1,12}"
    r"(active|failed|undef|offline) {1,12}(i/o pending|i/o timeout|\w{1,12})(?: {1,12}\w{1,16})?$",
    re.MULTILINE,
)
_MAP = re.compile(r"^(\S{1,128})(?: \(\S{1,128}\))? (?:dm-\d{1,5} |undef )", re.MULTILINE)


def is_zpool(text: str) -> bool:
    """Whether this is the output of `zpool status`."""
    return bool(_POOL.search(text) or _WELL.search(text))


def read_zpool(text: str) -> Mapping[str, object]:
    """The pools, and as health reports lost data and the disks with errors.

    A degraded pool that shows no disk at fault lacks `a disk`.
    """
    arrays, logs = [], []
    for head, rest in sections(_POOL, text, MAX_POOLS):
        failed = [disk for disk in _DISK.findall(rest)[:MAX_DISKS] if disk != head[1] and not _OF_DISKS.fullmatch(disk)]
        is_lost, ill = head[2] in _LOST, [*_with_errors(head[1], rest)]
        unnamed = [UNNAMED] if head[2] != "ONLINE" and not (is_lost or failed or ill) else []
        arrays.append({**_array(head[1], "zfs", failed + unnamed), "is_lost": is_lost})
        if lost := _LOST_DATA.search(rest):
            logs.append({"name": head[1], "said": lost[1]})
        logs += ill
    return {"nvme": {"arrays": arrays, **({"smart": {"logs": logs}} if logs else {})}}


def _with_errors(pool: str, rows: str) -> Iterator[dict[str, str]]:
    """The disks in use that count errors, also those that ZFS has corrected."""
    for name, counts in _ERRORS.findall(rows)[:MAX_DISKS]:
        read, write, checksum = counts.split()
        if {read, write, checksum} != {"0"} and name != pool and not _OF_DISKS.fullmatch(name):
            yield {"name": name, "said": f"{read} read, {write} write and {checksum} checksum errors"}


def is_multipath(text: str) -> bool:
    """Whether this is the output of `multipath -ll`, or the lines of its paths that grep kept."""
    return bool(_PATH.search(text))


def read_multipath(text: str) -> Mapping[str, object]:
    """The maps and their failed paths; the number of paths is known only if the map's name is in the text."""
    first = _MAP.search(text)
    above = text[: first.start()] if first else text
    arrays = [_map(head[1], rest, is_whole=True) for head, rest in sections(_MAP, text, MAX_POOLS)]
    return {"nvme": {"arrays": [_map("multipath", above, is_whole=False)] * bool(_PATH.search(above)) + arrays}}


def _map(name: str, rest: str, *, is_whole: bool) -> dict[str, object]:
    paths = _PATH.findall(rest)[:MAX_DISKS]
    failed = [
        disk
        for disk, device_mapper, checker in paths
        if "failed" in device_mapper or checker in ("faulty", "shaky", "i/o timeout")
    ]
    counts = {"disks": len(paths), "working": len(paths) - len(failed)} if is_whole and paths else {}
    return {**_array(name, "multipath", failed), **counts}


def _array(name: str, level: str, failed: list[str]) -> dict[str, object]:
    return {"name": name, "level": level, "is_active": True, "failed": failed}


FORMS = (
    Form("lsblk", is_table, read_table, 40),
    Form("lsblk -P", is_pairs, read_pairs, 40),
    Form("lsblk --json", is_json, read_json, 40),
    Form("zpool status", is_zpool, read_zpool),
    Form("multipath -ll", is_multipath, read_multipath),
)
