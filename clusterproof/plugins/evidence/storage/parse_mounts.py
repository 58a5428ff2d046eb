"""Mounted file systems: df in its forms, mount, /proc/mounts, /proc/self/mountinfo."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clusterproof.plugins.evidence.field import UNCAPTURED
from clusterproof.plugins.evidence.parsing import (
    CaptureError,
    Form,
    bytes_of,
    short,
    typed_above,
)
from clusterproof.plugins.evidence.storage.collect_mounts import ALWAYS, MAX_MOUNTS, OF_OTHERS, OF_USERS, PSEUDO

LONGEST_LINE = 2_000
FSTAB_TITLE = re.compile(r"^#.{0,80}/etc/fstab|^# <file system>", re.MULTILINE)

_ESCAPED = re.compile(r"\\([0-7]{3})")
_OF_MOUNT = re.compile(r"(\S.{0,400}?) on (/.{0,1000}?) type (\S{1,60}) \(([^()]{0,1000})\)(?: \[.{0,200}\])?\s*\Z")
_PROC = re.compile(
    r"(\S{1,400}) (/\S{0,1000}) (\S{1,60}) (r[wo](?:,\S{1,1200})?) 0 0\s*\Z"
)  # options in fstab seldom begin with rw
_INFO = re.compile(
    r"\d{1,9} \d{1,9} \d{1,6}:\d{1,6} \S{1,400} (/\S{0,1000}) (\S{1,400}) "
    r"[^-]{0,200}?- (\S{1,60}) (\S{1,400}) (\S{1,1200})"
)


def mount_of(line: str) -> dict[str, Any]:
    """The mount that a line describes; empty if it has another form."""
    if match := _OF_MOUNT.match(line):
        return mount(match[2], match[3], match[1], match[4])
    if match := _PROC.match(line):
        return mount(unescaped(match[2]), match[3], unescaped(match[1]), match[4])
    if match := _INFO.match(line):
        options = dict.fromkeys([*match[2].split(","), *match[5].split(",")])
        return mount(unescaped(match[1]), match[3], unescaped(match[4]), ",".join(options))
    return {}


def mount(path: str, kind: str, source: str, options: str) -> dict[str, Any]:
    """A mount without its sizes."""
    return {"path": path[:1000], "type": kind, "source": source[:400], "options": options[:1200]}


def unescaped(text: str) -> str:
    """A path without escapes: these files write blanks in octal."""
    return _ESCAPED.sub(lambda code: chr(int(code[1], 8)), text)


MAX_PATHS = 4096
UNKNOWN = {"error": UNCAPTURED, "text": "not in the list that was captured"}
KIB = 1024
_OF_ROOT = re.compile(r"/media/[^/]+")  # udisks mounts below users' names
PSEUDO_SOURCES = re.compile(r"(?:udev|none|shm|rootfs|cgmfs|efivarfs|cgroup.{0,20}|/dev/loop\d{1,4}|/proc/.{0,40})")


# A command of which something behind it, or an option of df or findmnt, may leave out some mounts.
_PARTIAL = re.compile(
    r"\||\bgrep\b|\s-[A-Za-z]{0,8}[tx]|\bdf .{0,80}?\s-[A-Za-z]{0,8}l|\s--(?:types?|exclude-type|local)\b"
)


def collected(mounts: Iterable[Mapping[str, Any]], command: str = "") -> dict[str, object]:
    """The mounts that the probe reports too, the root first; of several mounts on one path, the last.

    Mounts missing from a partial list (`df -h /fsx`, `df | grep -v tmpfs`) are unknown, not absent. Raises
    CaptureError.
    """
    by_path = {str(mount["path"]): mount for mount in mounts}
    if not by_path:
        raise CaptureError("no file system is listed")
    wanted = [mount for path, mount in by_path.items() if path in ALWAYS or not _is_passed_over(mount)]
    is_whole = _is_whole(by_path) and not _PARTIAL.search(command)
    if not is_whole:
        wanted += [{"path": path, "type": UNKNOWN, "alive": UNKNOWN} for path in ALWAYS if path not in by_path]
    wanted.sort(key=lambda mount: mount["path"] not in ALWAYS)
    paths = sorted(by_path)[:MAX_PATHS] if is_whole else None
    left_out = max(0, len(wanted) - MAX_MOUNTS)
    return {"mounts": {"mounts": wanted[:MAX_MOUNTS], "paths": paths, **({"left_out": left_out} if left_out else {})}}


def _is_whole(mounts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the list has all mounts: the root, /dev or /run, and a tmpfs, which every system has."""
    has_tmpfs = any("tmpfs" in (mount.get("type"), mount.get("source")) for mount in mounts.values())
    return "/" in mounts and ("/dev" in mounts or "/run" in mounts) and has_tmpfs


def _is_passed_over(mount: Mapping[str, Any]) -> bool:
    kind, source = str(mount.get("type", "")), str(mount.get("source", ""))
    is_pseudo = PSEUDO.fullmatch(kind) if kind else PSEUDO.fullmatch(source) or PSEUDO_SOURCES.fullmatch(source)
    is_users = OF_USERS.fullmatch(str(mount.get("options", "")))
    path = str(mount["path"])
    return bool(is_pseudo or is_users or (OF_OTHERS.match(path) and not _OF_ROOT.fullmatch(path)))


# df

_DF = re.compile(
    r"^Filesystem\s{1,80}(?P<type>Type\s{1,20})?(?:(?P<inodes>Inodes\s{1,20}I?Used)|(?P<size>[\dA-Za-z-]{1,20})\s{1,20}Used)"
    r"\s{1,20}I?(?:Avail(?:able)?|Free)\s{1,20}(?:I?Use%|Capacity)\s{1,20}Mounted on",
    re.MULTILINE,
)
_DF_ROW = re.compile(r"\s{1,80}(\S{1,24})\s{1,40}(\S{1,24})\s{1,40}(\S{1,24})\s{1,40}(\d{1,3}%|-)\s{1,20}(/.{0,1000})")
_UNIT = re.compile(r"(?:(\d{1,7})([KMG]?)B?-blocks|Size)")
_NO_ANSWER = {  # df's words for errors of mounted file systems that do not answer
    "Stale file handle": "ESTALE",
    "Stale NFS file handle": "ESTALE",
    "Input/output error": "EIO",
    "Transport endpoint is not connected": "ENOTCONN",
    "Cannot send after transport endpoint shutdown": "ESHUTDOWN",
    "No such device": "ENODEV",
    "Host is down": "EHOSTDOWN",
    "Connection timed out": "ETIMEDOUT",
    "Structure needs cleaning": "EUCLEAN",
}
_DF_ERROR = re.compile(
    rf"^df: ['`‘]?(/.{{0,1000}}?)['’]?: ({'|'.join(map(re.escape, _NO_ANSWER))})[ \t]*$", re.MULTILINE
)


def is_df(text: str) -> bool:
    """Whether this is the table of df, or df's error for a file system that does not answer."""
    return bool(_DF.search(text) or _DF_ERROR.search(text))


def read_df(text: str) -> Mapping[str, object]:
    """The sizes (with -i the inodes) for the collector `mounts`, and what does not answer. Raises CaptureError."""
    mounts: list[dict[str, Any]] = [
        {"path": short(path), "alive": _NO_ANSWER[problem]} for path, problem in _DF_ERROR.findall(text)
    ]
    if header := _DF.search(text):
        unit = _unit(header["size"] or "")
        mounts += _df_rows(text[header.end() :], bool(header["type"]), bool(header["inodes"]), unit)
    return collected(mounts, typed_above(text))


def _unit(heading: str) -> int:
    """How many bytes a plain number stands for."""
    match = _UNIT.fullmatch(heading)
    return int(match[1]) * (bytes_of(f"1{match[2]}") or 1) if match and match[1] else 1


def _df_rows(table: str, has_type: bool, counts_inodes: bool, unit: int) -> Iterator[dict[str, Any]]:
    """The rows of the table; a long name has a line to itself, before the rest of its row."""
    source = ""
    for line in table.split("\n"):
        line = line[:LONGEST_LINE]
        cells = line.split()
        if len(cells) == 1:
            source = cells[0]
            continue
        name = source if source and line[:1].isspace() else (cells or [""])[0]
        rest = line if source and line[:1].isspace() else line[len(name) :]
        kind = ""
        if has_type and rest.split():
            kind = rest.split()[0]
            rest = rest[rest.index(kind) + len(kind) :]
        row = _DF_ROW.match(rest)
        if row and name:
            source = ""
            yield {**_mount(name, kind, row[5].rstrip()), **_sizes(row, counts_inodes, unit)}


def _mount(source: str, kind: str, path: str) -> dict[str, Any]:
    """A row without its numbers; a tmpfs has that name unless somebody gave it another."""
    kind = kind or ("tmpfs" if source == "tmpfs" else "")
    return {"path": short(path), "source": short(source), **({"type": kind} if kind else {}), "alive": "yes"}


def _sizes(row: re.Match[str], counts_inodes: bool, unit: int) -> dict[str, object]:
    """Sizes as used and available together: df's size also includes what is reserved for root."""
    if counts_inodes:
        return {"inodes": _count(row[1]), "inodes_free": _count(row[3])}
    used, free = (_count(word, unit) for word in (row[2], row[3]))
    unread = next((count for count in (used, free) if not isinstance(count, int)), None)
    if not (isinstance(used, int) and isinstance(free, int)):
        return {"total_kib": unread, "free_kib": unread}
    return {"total_kib": (used // KIB) + (free // KIB), "free_kib": free // KIB}


def _count(word: str, unit: int = 1) -> int | dict[str, str] | None:
    """A number in any form of df, also `1.6M` and `1,6M`; None if df prints `-`."""
    count = bytes_of(word.replace(",", "."))
    if count is None:
        return None if word == "-" else {"error": UNCAPTURED, "text": f"df's {word} is no number"}
    return count * (unit if word.isdecimal() else 1)


# mount, /proc/mounts, mountinfo


def is_mount(text: str) -> bool:
    """Whether the text has lines of mount, /proc/mounts or mountinfo, and is not fstab."""
    return not FSTAB_TITLE.search(text) and any(mount_of(line[:LONGEST_LINE]) for line in text[:400_000].split("\n"))


def read_mount(text: str) -> Mapping[str, object]:
    """The collector `mounts` without sizes. Raises CaptureError."""
    rows = (row for line in text.split("\n") if (row := mount_of(line[:LONGEST_LINE])))
    return collected(rows, typed_above(text))


FORMS = (
    Form("df", is_df, read_df, 40),
    Form("mount", is_mount, read_mount),
)
