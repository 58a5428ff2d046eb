"""CSV of a loop of nvidia-smi, a file for each node: a line for each GPU and time."""

from __future__ import annotations

import csv
import re
from calendar import timegm
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.training_run import CutFile, OtherLine, OutOfRange, RunError
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, name, real
from clusterproof.plugins.training_run.formats.gpu_tools import (
    CLOCKS,
    DRAW,
    FREE,
    LIMIT,
    MAX_WORDS,
    REASONS,
    TOTAL,
    USED,
    UTIL,
    GpuReading,
    is_rest_of_error,
    lost_gpu_in,
    node_of,
    throttled_by,
)
from clusterproof.plugins.training_run.samples import GpuLost, Sample

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
OF_REASONS = ("clocks_event_reasons.", "clocks_throttle_reasons.")
DEVICES = ("index", "pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "serial")  # identify a GPU, the best first
TIME = "timestamp"
_TIME = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)$")
_UNIT = re.compile(r" \[[^\[\]]*\]$")
_NO_VALUE = re.compile(r"\[.*\]$|N/A$|ERR!$|$")
_GONE = re.compile(r"\[(GPU is lost|GPU requires reset)\]$")
_UNREAD = ("[Unknown Error]", "ERR!")
_BITS = re.compile(r"0x[0-9a-fA-F]{1,16}")
MAX_GPUS = 256  # of a node


def is_smi(head: bytes) -> bool:
    """Whether a file that begins so is such a table, perhaps behind what nvidia-smi says of a GPU, or is only that."""
    has_error = False
    *whole, last = head.decode("utf-8", "replace").split("\n")
    for line in whole or [last]:  # the last may be cut
        if lost := lost_gpu_in(line, "", 0.0):
            has_error |= bool(lost.device) or not lost.is_gone  # a host that never had a GPU has no devices
        elif line.strip() and not is_rest_of_error(line):
            columns = _columns(line)
            return TIME in columns and any(column in COLUMNS for column in columns)
    return has_error


def read_smi(path: RunFile) -> Iterator[Sample | OutOfRange | GpuLost | OtherLine | CutFile]:
    """The samples of its GPUs, and which of them are lost; a warning on an infoROM, or srun's message, is none.

    Raises RunError.
    """
    lines, table = Lines(path), _Table(node_of(path))
    for line in lines:
        if lost := lost_gpu_in(line, table.node, table.time_s):
            yield lost
            continue
        if is_rest_of_error(line):
            continue
        cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        if not cells:
            continue
        if not table.columns or _columns(line) == table.columns:  # repeated if the loop is a shell's
            table.begin(_columns(line))
            continue
        if len(cells) != len(table.columns):
            if lines.is_cut:
                yield CutFile()
                return
            if not any(map(_TIME.match, cells)):
                yield OtherLine(printable(line.strip(), MAX_WORDS))
                continue
            many = f"{len(cells)} values; expected {len(table.columns)}, as the first line names them"
            raise RunError(f"{lines.where}: {many}")
        yield from table.take(dict(zip(table.columns, cells, strict=True)), lines.where)
    yield from [CutFile()] if lines.has_gap else []


@dataclass
class _Table:
    """A node's table so far: its columns, and the GPUs in the order of each round."""

    node: str
    columns: list[str] = field(default_factory=list)
    index: int = 0  # of a line among those of one time
    last: str = ""
    time_s: float = 0.0
    order: list[str] = field(default_factory=list)
    at: int = -1  # in it

    def begin(self, columns: list[str]) -> None:
        """Parse the header line."""
        self.columns, self.index = columns, 0

    def take(self, row: Mapping[str, str], where: str) -> Iterator[Sample | OutOfRange | GpuLost]:
        """Parse the line of a GPU. Raises RunError."""
        self.index = self.index + 1 if row[TIME] == self.last else 0  # the GPU's number, if no column has it
        self.last = row[TIME]
        self.time_s = _seconds(row[TIME], where)
        named = next((row[column] for column in DEVICES if column in row), str(self.index))
        gone = next((match[1] for cell in row.values() if (match := _GONE.match(cell))), "")
        device = self._next() if _NO_VALUE.match(named) else f"gpu{name(named, 'the GPU', where)}"
        self._follow(device)
        values = _values(row, where)
        unread = next((cell.strip("[]") for cell in row.values() if cell in _UNREAD), "")
        if gone or (unread and not values):
            yield GpuLost(self.node, device, self.time_s, gone or unread, is_gone=bool(gone))
        yield from GpuReading(self.node, device, self.time_s, values).samples()

    def _next(self) -> str:
        """The GPU of the next line, if the line does not identify it."""
        return self.order[(self.at + 1) % len(self.order)] if self.order else "a GPU"

    def _follow(self, device: str) -> None:
        if device not in self.order and len(self.order) < MAX_GPUS:
            self.order.append(device)
        self.at = self.order.index(device) if device in self.order else self.at


def _columns(line: str) -> list[str]:
    return [_UNIT.sub("", column.strip()).strip() for column in line.removeprefix("\ufeff").split(",")]


def _values(row: Mapping[str, str], where: str) -> dict[str, float]:
    """The values in a line. Raises RunError."""
    values = {
        meaning: real(row[column].partition(" ")[0], column, where)
        for column, meaning in COLUMNS.items()
        if column in row and not _NO_VALUE.match(row[column])
    }
    for begin in OF_REASONS:
        if _BITS.fullmatch(bits := row.get(f"{begin}active", "")):
            values |= throttled_by(int(bits, 16))
    return {**_held(row), **values}


def _held(row: Mapping[str, str]) -> dict[str, float]:
    """What holds the clocks down, from columns for single reasons: any of them, or none if all columns are there."""
    states: dict[str, list[str]] = {}
    for reason, (held, _) in REASONS.items():
        states.setdefault(held, []).append(
            next((row[f"{of}{reason}"] for of in OF_REASONS if f"{of}{reason}" in row), "")
        )
    return {
        held: 100.0 * ("Active" in values)
        for held, values in states.items()
        if "Active" in values or set(values) == {"Not Active"}
    }


def _seconds(text: str, where: str) -> float:
    match = _TIME.match(text)
    if not match:
        raise RunError(f"{where}: timestamp is {text!r:.60}; expected one like 2026/11/23 01:31:44.123")
    year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        raise RunError(f"{where}: timestamp is {text!r:.60}; expected a day of the calendar")
    return timegm((year, month, day, hour, minute, 0)) + float(match[6])


FORMATS = (Format("nvidia-smi --query-gpu=timestamp,… --format=csv", is_smi, read_smi),)
