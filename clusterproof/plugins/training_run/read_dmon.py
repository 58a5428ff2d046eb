"""What `dcgmi dmon -e …` and `nvidia-smi dmon` print, a file for each node: few have a time on their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.training_run.gpu_reading import (
    CLOCKS,
    DRAW,
    FREE,
    LIMIT,
    TENSORS,
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
from clusterproof.plugins.training_run.values import real

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
_TIME = re.compile(r"\s*(?:[0-9]{8}\s+)?([0-9]{2}):([0-9]{2}):([0-9]{2})\s+")  # of nvidia-smi dmon -o T, -o DT
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
        clock = _TIME.match(line)
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
    found = _HEAD.match(line) if line.lstrip().startswith("#") else None
    names = found[1].split() if found else []
    return names if any(name in OF_DCGM or name in OF_SMI for name in names) else []
