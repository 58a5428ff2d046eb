"""Readings of GPUs by tools, and the output of `nvidia-smi dmon` and `dcgmi dmon`, a file for each node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import CutFile, OtherLine, OutOfRange, RunError
from clusterproof.plugins.training_run.files import MAX_NAME, Format, Lines, RunFile, real, stem_of
from clusterproof.plugins.training_run.samples import (
    CAPPED,
    CLOCK,
    GPU,
    MAX_VALUE,
    MEMORY,
    POWER,
    SLOWED,
    TENSOR,
    GpuLost,
    Sample,
    range_of,
)

UTIL, TENSORS, CLOCKS = "util", "tensor", "clock"
USED, FREE, TOTAL = "used", "free", "total"
DRAW, LIMIT = "draw", "limit"
CAP, SLOW = "cap", "slow"


@record
class GpuReading:
    """One GPU at one time (seconds): % of UTIL, TENSORS, CAP and SLOW, MHz of CLOCKS; others in any one unit."""

    node: str
    device: str  # `gpu0`
    time_s: float
    values: Mapping[str, float]

    def samples(self) -> Iterator[Sample | OutOfRange]:
        """Its samples."""
        values = self.values
        of_all = values.get(TOTAL) or (values[USED] + values[FREE] if {USED, FREE} <= values.keys() else 0.0)
        for metric, percent in (
            (GPU, values.get(UTIL)),
            (TENSOR, values.get(TENSORS)),
            (CLOCK, values.get(CLOCKS)),
            (CAPPED, values.get(CAP)),
            (SLOWED, values.get(SLOW)),
            (MEMORY, 100 * values[USED] / of_all if of_all and USED in values else None),
            (POWER, 100 * values[DRAW] / values[LIMIT] if values.get(LIMIT) and DRAW in values else None),
        ):
            if percent is None:
                continue
            if 0 <= percent <= MAX_VALUE[metric]:
                yield Sample(self.node, metric, self.device, self.time_s, percent)
            else:
                yield OutOfRange(f"{metric} of {self.device} is {percent:g}; expected {range_of(metric)}")


REASONS: Mapping[str, tuple[str, int]] = {  # clock reasons: metric, and their bits (nvml.h, dcgm_fields.h)
    "sw_power_cap": (CAP, 0x4),
    "hw_slowdown": (SLOW, 0x8),
    "sw_thermal_slowdown": (SLOW, 0x20),
    "hw_thermal_slowdown": (SLOW, 0x40),
    "hw_power_brake_slowdown": (SLOW, 0x80),
}


def throttled_by(bits: int) -> dict[str, float]:
    """Whether the power cap, and the hardware, hold clocks down, in percent of the time."""
    return {held: 100.0 * any(bit & bits for of, bit in REASONS.values() if of == held) for held in (CAP, SLOW)}


def node_of(path: RunFile) -> str:
    """The node in a file's name: `gpu001.csv`, `gpu001.dmon.txt`; or in its folder's, if several have that name."""
    return (path.folder or stem_of(path.path))[:MAX_NAME]


_ERROR = re.compile(  # instead of one GPU's line, or of all
    r"(?:Unable to determine the device handle for (?:(?:GPU|gpu) ?(?:([0-9]{1,3}): ?)?)?"
    r"([0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{4,12})?"
    r"|No devices were found)"
)
_NO_DRIVER = re.compile(  # also in a container that has lost its devices, whose GPUs are fine
    r"Failed to initialize NVML: .*|NVIDIA-SMI has failed because [^.]*"
)
_GOES_ON = "NVML library version: "  # the second line of a version mismatch
_OF_SLURM = ("slurmstepd: ", "srun: ")  # who end a tool with its step
MAX_WORDS = 100  # characters of a complaint


def lost_gpu_in(line: str, node: str, time_s: float) -> GpuLost | None:
    """nvidia-smi's message about a GPU that it does not reach; without a device if it is about all, or the driver."""
    if without := _NO_DRIVER.match(line):
        return GpuLost(node, "", time_s, printable(without[0].strip(), MAX_WORDS), is_gone=False)
    error = _ERROR.match(line)
    if not error:
        return None
    device = f"gpu{int(error[1])}" if error[1] else (error[2] or "").rstrip(":.")
    return GpuLost(node, device, time_s, printable(line.strip(), MAX_WORDS))


def is_rest_of_error(line: str) -> bool:
    """Whether a line only continues the previous complaint."""
    return line.startswith(_GOES_ON)


EVERY_S = 1.0  # default of both without -d
OF_DCGM: Mapping[str, tuple[str, float]] = {  # short names of fields: metric and factor
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
OF_SMI: Mapping[str, tuple[str, float]] = {
    "sm": (UTIL, 1),
    "pclk": (CLOCKS, 1),
    "pviol": (CAP, 1),
    "tviol": (SLOW, 100),  # 1 or 0
}
EXPECTED = "expected what dcgmi dmon -e 203,1004,100,252,251 prints, or nvidia-smi dmon"
_DEVICE = re.compile(r"\s*(?:GPU\s+)?([0-9]{1,4})\s+")
_OTHER = re.compile(r"\s*(?:GPU-I|GPU-CI|Switch|CPU|Core|Link|NvSwitch|Hostname)\b", re.IGNORECASE)  # other entities
_HEAD = re.compile(r"#\s*(?:Date\s+)?(?:Time\s+)?(?:Entity(?:Id)?|gpu)\s+(.*)")
_CLOCK = re.compile(r"\s*(?:[0-9]{8}\s+)?([0-9]{2}):([0-9]{2}):([0-9]{2})\s+")  # of nvidia-smi dmon -o T, -o DT
DAY_S = 86_400


def is_dmon(head: bytes) -> bool:
    """Whether a file that begins like this is such a text."""
    return _names(head.lstrip().partition(b"\n")[0].decode("utf-8", "replace")) != []


def read_dmon(path: RunFile) -> Iterator[Sample | OutOfRange | GpuLost | OtherLine | CutFile]:
    """The samples of its GPUs, each a second after the previous one if lines have no time. Raises RunError."""
    lines, node = Lines(path), node_of(path)
    names: Sequence[str] = ()
    times: dict[str, int] = {}
    last_s = 0.0
    for line in lines:
        if lost := lost_gpu_in(line, node, last_s or max(times.values(), default=0) * EVERY_S):
            yield lost
            continue
        if is_rest_of_error(line):
            continue
        if line.startswith(_OF_SLURM):
            yield OtherLine(printable(line.strip(), MAX_WORDS))
            continue
        names = _names(line) or names
        clock = _CLOCK.match(line)
        if clock:
            line = line[clock.end() :]
            clock_s = 3600.0 * int(clock[1]) + 60 * int(clock[2]) + int(clock[3])
            last_s += (clock_s - last_s + DAY_S / 2) % DAY_S - DAY_S / 2  # the nearest, also after midnight
        device = _DEVICE.match(line)
        if not device:
            if line.strip() and not line.lstrip().startswith(("#", "ID", "Id")) and not _OTHER.match(line):
                raise RunError(f"{lines.where}: {line!r:.60} is no line of a GPU; {EXPECTED}")
            continue
        cells = line[device.end() :].split()
        if len(cells) != len(names):
            if lines.is_cut:
                yield CutFile()
                return
            raise RunError(f"{lines.where}: {len(cells)} values; expected {len(names)}, as the line of names has")
        name = f"gpu{device[1]}"
        times[name] = times.get(name, -1) + 1
        values = _values(zip(names, cells, strict=True), lines.where)
        time_s = last_s if clock else times[name] * EVERY_S
        yield from GpuReading(node, name, time_s, values).samples()
    yield from [CutFile()] if lines.has_gap else []


def _values(cells: Iterable[tuple[str, str]], where: str) -> dict[str, float]:
    """The values of a line, by our names and in our units. Raises RunError."""
    known = {**OF_DCGM, **OF_SMI}
    read = {column: real(cell, column, where) for column, cell in cells if column in known and cell not in ("N/A", "-")}
    if "GPUTL" in read:  # missing for a GPU with MIG
        read.pop("GRACT", None)
    if not read.get("tviol"):  # without thermal violation, something else may still slow it down
        read.pop("tviol", None)
    values = {known[column][0]: known[column][1] * value for column, value in read.items()}
    return {name: min(value, 100.0) if name in (CAP, SLOW) else value for name, value in values.items()}


def _names(line: str) -> list[str]:
    """The columns that a line names; empty if it names no known one."""
    match = _HEAD.match(line) if line.lstrip().startswith("#") else None
    names = match[1].split() if match else []
    is_of_processes = "pid" in names  # nvidia-smi pmon
    return names if any(name in OF_DCGM or name in OF_SMI for name in names) and not is_of_processes else []


FORMATS = (Format("dcgmi dmon", is_dmon, read_dmon),)
