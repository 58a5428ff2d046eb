"""Memory, by free, `swapon --show` and numactl."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.parsing import CaptureError, Form, bytes_of, integer, typed_above

KIB = 1024
PAGE_KIB = 4  # what the kernel counts in: numbers in KiB are multiples of it, numbers in MiB are not
MAX_KIB = 2**36  # 64 TiB: a node with more was counted in bytes
UNITS_KIB = {"b": 1 / KIB, "k": 1, "m": KIB, "g": KIB**2}

# free

_OPTION = re.compile(r"\bfree (?:-\w{1,8} ){0,8}-[a-z]{0,4}?([bkmg])(?![\w-])")
_HEADER = re.compile(r"^\s{2,40}total\s{1,20}used\s{1,20}free\b.{0,100}$", re.MULTILINE)
_ROW = re.compile(r"^(Mem|Swap):((?:\s{1,20}\S{1,20}){2,7})[ \t]*$", re.MULTILINE)


def is_free(text: str) -> bool:
    """Whether this is the table of free."""
    return bool(_HEADER.search(text) and _ROW.search(text))


def read_free(text: str) -> Mapping[str, object]:
    """The collector `memory`, and the memory of `boot`. Raises CaptureError where the unit is unknown."""
    header = _HEADER.search(text)
    columns = header[0].split() if header else []
    rows = {name: dict(zip(columns, cells.split(), strict=False)) for name, cells in _ROW.findall(text)}
    if "Mem" not in rows:
        raise CaptureError("free without its row Mem")
    option = _OPTION.search(typed_above(text))
    numbers = [number for word in rows["Mem"].values() if (number := integer(word)) is not None]
    is_odd = any(number % PAGE_KIB for number in numbers) or max(numbers, default=0) > MAX_KIB
    if len(numbers) == len(rows["Mem"]) and is_odd and not option:
        raise CaptureError("free does not say its unit; expected its command above it, or -h")
    memory: dict[str, object] = {}
    for key, (row, column) in _CELLS.items():
        size = _kib(rows.get(row, {}).get(column, ""), UNITS_KIB[option[1]] if option else 1)
        may_be_some = key == "swap_total_kib" and option and option[1] == "g"  # 0 GiB may be nearly 1
        if size or (size == 0 and not may_be_some):
            memory[key] = size
    return (
        {"memory": memory, "boot": {"memory_kib": memory["total_kib"]}} if "total_kib" in memory else {"memory": memory}
    )


_CELLS = {
    "total_kib": ("Mem", "total"),
    "available_kib": ("Mem", "available"),
    "swap_total_kib": ("Swap", "total"),
    "swap_free_kib": ("Swap", "free"),
}


def _kib(word: str, unit_kib: float = 1) -> int | None:
    """A size; a number without a unit is in `unit_kib`."""
    if (number := integer(word)) is not None:
        return int(number * unit_kib)
    size = bytes_of(word)
    return None if size is None else size // KIB


# swapon, /proc/swaps

_SWAPS = re.compile(r"^(?:NAME +TYPE +SIZE +USED\b|Filename\s{1,80}Type\s{1,40}Size\s{1,40}Used\b)", re.MULTILINE)
_SWAP = re.compile(
    r"^/\S{1,200}\s{1,80}(?:file|partition)\s{1,40}(\S{1,20})\s{1,40}(\S{1,20})(?:\s.{0,80})?$", re.MULTILINE
)


def is_swapon(text: str) -> bool:
    """Whether this is the output of `swapon --show`, or /proc/swaps."""
    return bool(_SWAPS.search(text) and _SWAP.search(text))


def read_swapon(text: str) -> Mapping[str, object]:
    """The swap of the collector `memory`. Raises CaptureError."""
    sizes = [(_kib(size), _kib(used)) for size, used in _SWAP.findall(text)]
    total, used = (sum(size for pair in sizes if (size := pair[column]) is not None) for column in (0, 1))
    if not total or any(None in pair for pair in sizes):
        raise CaptureError("swapon shows no size")
    return {"memory": {"swap_total_kib": total, "swap_free_kib": max(0, total - used)}}


# numactl

MAX_NODES = 1024
_NUMA = re.compile(r"^node (\d{1,4}) (cpus|size): ?([\d ]{0,40000})(?: MB)?$", re.MULTILINE)


def is_numactl(text: str) -> bool:
    """Whether this is the output of `numactl --hardware`."""
    return "node 0 size:" in text and bool(_NUMA.search(text))


def read_numactl(text: str) -> Mapping[str, object]:
    """The NUMA nodes of the collector `memory`: what numactl calls MB are MiB."""
    nodes: dict[str, dict[str, object]] = {}
    for number, key, value in _NUMA.findall(text)[: MAX_NODES * 2]:
        node = nodes.setdefault(number, {"node": int(number)})
        size = integer(value.strip())
        if key == "cpus":
            node["cpus"] = ",".join(value.split())
        elif size is not None:
            node["memory_kib"] = size * KIB
    return {"memory": {"numa": list(nodes.values())}}


FORMS = (
    Form("free", is_free, read_free, 40),
    Form("swapon", is_swapon, read_swapon, 45),
    Form("numactl --hardware", is_numactl, read_numactl, 55),
)
