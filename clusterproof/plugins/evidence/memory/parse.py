"""The memory: free in any unit, /proc/meminfo."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.memory.collect import KEYS
from clusterproof.plugins.evidence.parsing import CaptureError, Form, bytes_of, whole

KIB = 1024
PAGE_KIB = 4  # what the kernel counts in: numbers in KiB are multiples of it, numbers in MiB are not

_MEMINFO = re.compile(r"^([A-Z][\w()]{2,30}):\s{1,30}(\d{1,15})(?: kB)?[ \t]*$", re.MULTILINE)
_HEADER = re.compile(r"^\s{2,40}total\s{1,20}used\s{1,20}free\b.{0,100}$", re.MULTILINE)
_ROW = re.compile(r"^(Mem|Swap):((?:\s{1,20}\S{1,20}){2,6})[ \t]*$", re.MULTILINE)


def is_meminfo(text: str) -> bool:
    """Whether it is /proc/meminfo, or its first lines."""
    return bool(re.search(r"^MemTotal:\s{1,30}\d{1,15} kB", text, re.MULTILINE))


def read_meminfo(text: str) -> Mapping[str, object]:
    """The collector `memory`, and the memory of `boot`."""
    rows = {key: int(value) for key, value in _MEMINFO.findall(text)}
    data: dict[str, object] = {key: rows[word] for key, word in KEYS.items() if word in rows}
    if {"Hugepagesize", "HugePages_Total", "HugePages_Free"} <= rows.keys():
        pages = {"size_kib": rows["Hugepagesize"], "pages": rows["HugePages_Total"], "free": rows["HugePages_Free"]}
        data["huge_pages"] = [pages]
    return {"memory": data, "boot": {"memory_kib": rows["MemTotal"]}} if "MemTotal" in rows else {"memory": data}


def is_free(text: str) -> bool:
    """Whether it is the table of free."""
    return bool(_HEADER.search(text) and _ROW.search(text))


def read_free(text: str) -> Mapping[str, object]:
    """The collector `memory`, and the memory of `boot`. Raises CaptureError where the unit is unknown."""
    header = _HEADER.search(text)
    columns = header[0].split() if header else []
    rows = {name: dict(zip(columns, words.split(), strict=False)) for name, words in _ROW.findall(text)}
    if "Mem" not in rows:
        raise CaptureError("free without its row Mem")
    numbers = [number for word in rows["Mem"].values() if (number := whole(word)) is not None]
    if len(numbers) == len(rows["Mem"]) and any(number % PAGE_KIB for number in numbers):
        raise CaptureError("free does not say its unit; expected it without options, or with -h")
    data: dict[str, object] = {}
    for key, (row, column) in _CELLS.items():
        size = _kib(rows.get(row, {}).get(column, ""))
        if size is not None:
            data[key] = size
    return {"memory": data, "boot": {"memory_kib": data["total_kib"]}} if "total_kib" in data else {"memory": data}


_CELLS = {
    "total_kib": ("Mem", "total"),
    "available_kib": ("Mem", "available"),
    "swap_total_kib": ("Swap", "total"),
    "swap_free_kib": ("Swap", "free"),
}


def _kib(word: str) -> int | None:
    """A number without a unit is in KiB."""
    if word.isdecimal():
        return whole(word)
    size = bytes_of(word)
    return None if size is None else size // KIB


_TRANSPARENT = re.compile(r"^(?:always|\[always\]) (?:madvise|\[madvise\]) (?:never|\[never\])$", re.MULTILINE)


def is_transparent(text: str) -> bool:
    """Whether it is /sys/kernel/mm/transparent_hugepage/enabled."""
    return bool(_TRANSPARENT.search(text))


def read_transparent(text: str) -> Mapping[str, object]:
    """How transparent huge pages are used, of the collector `memory`. Raises CaptureError."""
    found = _TRANSPARENT.search(text)
    if not found:
        raise CaptureError("no mode of transparent huge pages")
    return {"memory": {"transparent": found[0]}}


FORMS = (
    Form("transparent_hugepage/enabled", is_transparent, read_transparent),
    Form("/proc/meminfo", is_meminfo, read_meminfo, 55),
    Form("free", is_free, read_free, 40),
)
