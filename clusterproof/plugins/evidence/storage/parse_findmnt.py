"""Mounted file systems, or those of fstab, as findmnt shows them: in JSON, or as a tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clusterproof.plugins.evidence.parsing import (
    Form,
    below_typed,
    bytes_of,
    document_in,
    objects,
    short,
    typed_above,
)
from clusterproof.plugins.evidence.storage.collect_mounts import PSEUDO
from clusterproof.plugins.evidence.storage.parse_mounts import KIB, LONGEST_LINE, collected, unescaped


def is_findmnt(text: str) -> bool:
    """Whether this is the output of `findmnt --json`."""
    body = below_typed(text).lstrip()
    return body[:1] == "{" and '"filesystems"' in body[:200]


def read_findmnt(text: str) -> Mapping[str, object]:
    """The collector `mounts`, with sizes if findmnt was asked for them. Raises CaptureError."""
    return _mounted_or_due(text, list(_of_findmnt(document_in(text).get("filesystems"))))


def _of_findmnt(data: object, depth: int = 0) -> Iterator[dict[str, Any]]:
    for entry in objects(data):
        path = entry.get("target")
        if isinstance(path, str) and path.startswith("/"):
            yield {key: value for key, value in _of_entry(path, entry).items() if value is not None}
        if depth < 32:
            yield from _of_findmnt(entry.get("children"), depth + 1)


def _of_entry(path: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """One file system; the source of a bind mount has its folder in brackets, which is cut off."""
    used, free = (_size(entry.get(key)) for key in ("used", "avail"))
    return {
        "path": path[:1000],
        "source": short(entry.get("source")).partition("[")[0] or None,
        "type": short(entry.get("fstype")) or None,
        "options": entry["options"][:1200] if isinstance(entry.get("options"), str) else None,
        "total_kib": None if used is None or free is None else used + free,
        "free_kib": free,
        "alive": "yes" if free is not None else None,
    }


def _size(data: object) -> int | None:
    size = bytes_of(short(data))
    return None if size is None else size // KIB


_FINDMNT = re.compile(r"^TARGET(?:[ \t]{1,200}[A-Z%-]{2,20}){1,12}[ \t]{0,8}$", re.MULTILINE)
_ASKED = re.compile(r"\bfindmnt .{0,200}?(?:-o|--output)[ =]?([A-Z,%-]{2,200})")
_OF_FSTAB = re.compile(r"\bfindmnt .{0,200}?(?:--fstab|-s\b)")
_BEFORE_OPTIONS = re.compile(r".*\s(?=r[ow](?:[,\s]|$))")  # of a mount: the last that begin like this are its own
TREE = " \t│├└─|`-"
_BRANCH = re.compile(r"[ │|]{0,100}[├└`|][─-]/")  # before the path of a mount below another
REST = (" ", "│", "|")  # how the rest of a row begins
CUT_LINES = 3  # two may be as long by chance
_KEYS = {"SOURCE": "source", "FSTYPE": "type", "OPTIONS": "options"}


def is_findmnt_table(text: str) -> bool:
    """Whether this is the tree of findmnt, or lines of it that grep kept, below the command."""
    return _columns(text)[:1] == ["TARGET"] and not is_findmnt(text)


def _columns(text: str) -> list[str]:
    header, option = _FINDMNT.search(text), _ASKED.search(typed_above(text))
    return header[0].split() if header else option[1].split(",") if option else []


def read_findmnt_table(text: str) -> Mapping[str, object]:
    """The collector `mounts` without sizes; or its fstab entries, if the output shows fstab. Raises CaptureError.

    Options that a terminal cut off are left out, unless they say `ro`.
    """
    entries = [
        {
            "path": unescaped(row["TARGET"])[:1000],
            **{_KEYS[title]: word[:1200] for title, word in row.items() if title in _KEYS},
            "source": row.get("SOURCE", "")[:1200].partition("[")[0],
        }
        for row in _rows(text, _columns(text))
    ]
    return _mounted_or_due(text, entries)


def _mounted_or_due(text: str, entries: list[dict[str, Any]]) -> dict[str, object]:
    """Findmnt's list: as fstab entries if it was asked for fstab, or an entry is not `rw` or `ro`, as each mount is."""
    options = [entry["options"].split(",") for entry in entries if "options" in entry]
    if _OF_FSTAB.search(typed_above(text)) or not all({"rw", "ro"} & {*some} for some in options):
        return {"mounts": {"fstab": [entry for entry in entries if not PSEUDO.fullmatch(entry.get("type", ""))]}}
    return collected(entries, typed_above(text))


def _rows(text: str, titles: Sequence[str]) -> Iterator[dict[str, str]]:
    """The text below each title; on a terminal the rest of a row whose path or source is long stands below it."""
    lines, begun = text.split("\n"), ""
    edge = _edge(lines)
    for line in lines:
        is_rest = begun and line[:1] in REST and not _BRANCH.match(line)
        row = f"{begun} {line.lstrip(TREE)}" if is_rest else line.lstrip(TREE)
        cells = dict(zip(titles, _cells(row, titles), strict=False))
        begun = row[:LONGEST_LINE] if not cells and row.startswith("/") else ""
        if len(line) == edge and not cells.get("OPTIONS", "ro").startswith("ro"):
            del cells["OPTIONS"]
        if cells:
            yield cells


def _edge(lines: Sequence[str]) -> int:
    """How wide the terminal was, where lines that end differently all reach as far; else 0."""
    width = max(map(len, lines))
    ends = {line.rpartition(" ")[2] for line in lines if len(line) == width}
    return width if len(ends) >= CUT_LINES else 0


def _cells(line: str, titles: Sequence[str]) -> list[str]:
    """The text below each title; empty if the line is not a row with a path."""
    row, count = line[:LONGEST_LINE], len(titles)
    before = _BEFORE_OPTIONS.match(row) if titles[-1] == "OPTIONS" else None  # which may have blanks: username=me too
    cells = [*before[0].rsplit(maxsplit=count - 2), row[before.end() :].rstrip()] if before else []
    cells = cells if len(cells) == count else row.rsplit(maxsplit=count - 1)
    return cells if len(cells) == count and cells[0].startswith("/") else []


FORMS = (
    Form("findmnt --json", is_findmnt, read_findmnt, 45),
    Form("findmnt", is_findmnt_table, read_findmnt_table),
)
