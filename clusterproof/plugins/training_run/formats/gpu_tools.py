"""What nvidia-smi and dcgmi print of GPUs, a file for each node: CSV with a time on each line, or dmon's columns."""

from __future__ import annotations

import csv
import re
from calendar import timegm
from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import Cut, RunError
from clusterproof.plugins.training_run.files import MAX_NAME, Format, Lines, RunFile, name, real
from clusterproof.plugins.training_run.samples import CLOCK, GPU, MAX_VALUE, MEMORY, POWER, TENSOR, Sample

UTIL, TENSORS, CLOCKS = "util", "tensor", "clock"
USED, FREE, TOTAL = "used", "free", "total"
DRAW, LIMIT = "draw", "limit"


@record
class GpuReading:
    """One GPU at one time, in seconds: of UTIL and TENSORS percent, of CLOCKS MHz; of the others any one unit."""

    node: str
    device: str  # `gpu0`
    time_s: float
    values: Mapping[str, float]

    def samples(self, where: str) -> Iterator[Sample]:
        """Its samples. Raises RunError."""
        values = self.values
        of_all = values.get(TOTAL) or (values[USED] + values[FREE] if {USED, FREE} <= values.keys() else 0.0)
        for metric, percent in (
            (GPU, values.get(UTIL)),
            (TENSOR, values.get(TENSORS)),
            (CLOCK, values.get(CLOCKS)),
            (MEMORY, 100 * values[USED] / of_all if of_all and USED in values else None),
            (POWER, 100 * values[DRAW] / values[LIMIT] if values.get(LIMIT) and DRAW in values else None),
        ):
            if percent is None:
                continue
            if not 0 <= percent <= MAX_VALUE[metric]:
                raise RunError(
                    f"{where}: {metric} of {self.device} is {percent:g}; expected 0 to {MAX_VALUE[metric]:g}"
                )
            yield Sample(self.node, metric, self.device, self.time_s, percent)


def node_of(path: RunFile) -> str:
    """The node that a file's name says: `gpu001.csv`, `gpu001.dmon.txt`."""
    return (path.name.partition(".")[0] or path.name)[:MAX_NAME]


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
    match = _TIME.match(text)
    if not match:
        raise RunError(f"{where}: timestamp is {text!r:.60}; expected one like 2026/11/23 01:31:44.123")
    year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        raise RunError(f"{where}: timestamp is {text!r:.60}; expected a day of the calendar")
    return timegm((year, month, day, hour, minute, 0)) + float(match[6])


EVERY_S = 1.0  # what both take without -d
OF_DCGM: Mapping[str, tuple[str, float]] = {  # short names of fields: what they mean, and times what
    "GPUTL": (UTIL, 1),  # 203
    "GRACT": (UTIL, 100),  # 1001
    "TENSO": (TENSORS, 100),  # 1004
    "SMCLK": (CLOCKS, 1),  # 100
    "FBUSD": (USED, 1),  # 252
    "FBFRE": (FREE, 1),  # 251
    "FBTTL": (TOTAL, 1),  # 250
    "POWER": (DRAW, 1),  # 155
    "PMLMT": (LIMIT, 1),  # 160
}
OF_SMI: Mapping[str, tuple[str, float]] = {"sm": (UTIL, 1), "pclk": (CLOCKS, 1)}
EXPECTED = "expected what dcgmi dmon -e 203,1004,100,252,251 prints, or nvidia-smi dmon"
_DEVICE = re.compile(r"\s*(?:GPU\s+)?([0-9]{1,4})\s+")
_OTHER = re.compile(r"\s*(?:GPU-I|GPU-CI|Switch|CPU|Core|Link|NvSwitch|Hostname)\b", re.IGNORECASE)  # other entities
_HEAD = re.compile(r"#\s*(?:Date\s+)?(?:Time\s+)?(?:Entity(?:Id)?|gpu)\s+(.*)")
_CLOCK = re.compile(r"\s*(?:[0-9]{8}\s+)?([0-9]{2}):([0-9]{2}):([0-9]{2})\s+")  # of nvidia-smi dmon -o T, -o DT
DAY_S = 86_400


def is_dmon(head: bytes) -> bool:
    """Whether a file that begins so is such a text."""
    return _names(head.lstrip().partition(b"\n")[0].decode("utf-8", "replace")) != []


def read_dmon(path: RunFile) -> Iterator[Sample | Cut]:
    """The samples of its GPUs, each a second behind the one before where no line has a time. Raises RunError."""
    lines, node = Lines(path), node_of(path)
    names: Sequence[str] = ()
    times: dict[str, int] = {}
    last_s = 0.0
    for line in lines:
        names = _names(line) or names
        clock = _CLOCK.match(line)
        if clock:
            line = line[clock.end() :]
            clock_s = 3600.0 * int(clock[1]) + 60 * int(clock[2]) + int(clock[3])
            last_s += (clock_s - last_s + DAY_S / 2) % DAY_S - DAY_S / 2  # the nearest, also behind midnight
        device = _DEVICE.match(line)
        if not device:
            if line.strip() and not line.lstrip().startswith(("#", "ID", "Id")) and not _OTHER.match(line):
                raise RunError(f"{lines.where}: {line!r:.60} is no line of a GPU; {EXPECTED}")
            continue
        cells = line[device.end() :].split()
        if len(cells) != len(names):
            if lines.is_cut:
                yield Cut()
                return
            raise RunError(f"{lines.where}: {len(cells)} values; expected {len(names)}, as the line of names has")
        name = f"gpu{device[1]}"
        times[name] = times.get(name, -1) + 1
        known = {**OF_DCGM, **OF_SMI}
        values = {
            known[column][0]: known[column][1] * real(cell, column, lines.where)
            for column, cell in zip(names, cells, strict=True)
            if column in known and cell not in ("N/A", "-")
        }
        time_s = last_s if clock else times[name] * EVERY_S
        yield from GpuReading(node, name, time_s, values).samples(lines.where)


def _names(line: str) -> list[str]:
    """The columns that a line names; none where it names none that is known."""
    match = _HEAD.match(line) if line.lstrip().startswith("#") else None
    names = match[1].split() if match else []
    return names if any(name in OF_DCGM or name in OF_SMI for name in names) else []


FORMATS = (
    Format("nvidia-smi --query-gpu=timestamp,… --format=csv", is_smi, read_smi),
    Format("dcgmi dmon", is_dmon, read_dmon),
)
