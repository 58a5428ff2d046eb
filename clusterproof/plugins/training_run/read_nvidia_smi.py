"""What `nvidia-smi --query-gpu=timestamp,index,… --format=csv -l 10` writes, a file for each node."""

from __future__ import annotations

import csv
import re
from calendar import timegm
from collections.abc import Iterator, Mapping

from clusterproof.plugins.training_run.gpu_reading import (
    CLOCKS,
    DRAW,
    FREE,
    LIMIT,
    TOTAL,
    USED,
    UTIL,
    GpuReading,
    node_of,
)
from clusterproof.plugins.training_run.lines import Lines
from clusterproof.plugins.training_run.records import Cut, RunError
from clusterproof.plugins.training_run.samples import Sample
from clusterproof.plugins.training_run.unpacked import RunFile
from clusterproof.plugins.training_run.values import name, real

COLUMNS: Mapping[str, str] = {
    "utilization.gpu": UTIL,
    "clocks.sm": CLOCKS,
    "clocks.current.sm": CLOCKS,
    "memory.used": USED,
    "memory.free": FREE,
    "memory.total": TOTAL,
    "power.draw": DRAW,
    "power.draw.average": DRAW,
    "enforced.power.limit": LIMIT,
    "power.limit": LIMIT,
}
DEVICES = ("index", "pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "serial")  # what names a GPU, the best first
TIME = "timestamp"
_TIME = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)$")
_UNIT = re.compile(r" \[[^\[\]]*\]$")
_NO_VALUE = re.compile(r"\[.*\]$|N/A$|ERR!$|$")


def is_smi(head: bytes) -> bool:
    """Whether a file that begins so is such a table."""
    columns = _columns(head.partition(b"\n")[0].decode("utf-8", "replace"))
    return TIME in columns and any(column in COLUMNS for column in columns)


def read_smi(path: RunFile) -> Iterator[Sample | Cut]:
    """The samples of its GPUs. Raises RunError."""
    lines, node = Lines(path), node_of(path)
    columns: list[str] = []
    place = 0
    last = ""
    for line in lines:
        cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        if not columns or _columns(line) == columns:  # a loop of its own writes them each time
            columns, place = _columns(line), 0
            continue
        if not cells:
            continue
        if len(cells) != len(columns):
            if lines.is_cut:
                yield Cut()
                return
            raise RunError(f"{lines.where}: {len(cells)} values; expected {len(columns)}, as the first line names them")
        row = dict(zip(columns, cells, strict=True))
        place = place + 1 if row[TIME] == last else 0  # the GPU's own, where no column names it
        last = row[TIME]
        yield from _reading(row, node, place, lines.where).samples(lines.where)


def _columns(line: str) -> list[str]:
    return [_UNIT.sub("", column.strip()).strip() for column in line.removeprefix("\ufeff").split(",")]


def _reading(row: Mapping[str, str], node: str, place: int, where: str) -> GpuReading:
    device = next((row[column] for column in DEVICES if column in row), str(place))
    values = {
        meaning: real(row[column].partition(" ")[0], column, where)
        for column, meaning in COLUMNS.items()
        if column in row and not _NO_VALUE.match(row[column])
    }
    return GpuReading(node, f"gpu{name(device, 'the GPU', where)}", _seconds(row[TIME], where), values)


def _seconds(text: str, where: str) -> float:
    found = _TIME.match(text)
    if not found:
        raise RunError(f"{where}: timestamp is {text!r:.60}; expected one like 2026/11/23 01:31:44.123")
    year, month, day, hour, minute = (int(part) for part in found.groups()[:5])
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        raise RunError(f"{where}: timestamp is {text!r:.60}; expected a day of the calendar")
    return timegm((year, month, day, hour, minute, 0)) + float(found[6])
