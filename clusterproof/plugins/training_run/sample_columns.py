"""Samples of nodes during a job: columns with units, their header line, and how they are written.

They are JSON lines in closed zstd frames, so that a truncated file only loses its end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from clusterproof.plugins.core.opened import append, appendable
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.files import integer, name, real
from clusterproof.plugins.training_run.rank_processes import SOURCE, RankLook

SCHEMA = 1
HEADER = "clusterproof.samples"  # the key by which the line is known; its value is the schema
SUFFIX = ".samples.jsonl.zst"
KERNEL_LOG = "kernel"  # the source of an event that is a line of the kernel log
NOT_WATCHED = "nobody watched"  # why there is a gap, other than the node's silence
STEPS_FILE = "steps.jsonl"
MAX_COLUMNS, MAX_GPUS = 4_096, 128

# Of each GPU, by short name: shares and rates are means since the previous sample, errors are counted since boot.
GPU_COLUMNS: Mapping[str, str] = {
    "util": "%",  # of the time in which some kernel ran
    "sm": "%",  # of the SMs that had work (GPM)
    "tensor": "%",  # of the tensor cores' cycles (GPM)
    "nvlink": "MB/s",  # both ways (GPM)
    "pcie": "MB/s",  # both ways (GPM)
    "mem": "MiB",  # used
    "clock": "MHz",  # of the SMs
    "power": "W",
    "temp": "C",
    "capped": "%",  # of the time in which the power cap held the clocks down
    "slowed": "%",  # of the time in which the hardware slowed it down: heat, power brake
    "ecc": "count",  # uncorrected
    "ecc_corrected": "count",
    "link_errors": "count",  # of all its NVLinks
}
HOST_COLUMNS: Mapping[str, str] = {
    "cpu": "%",  # of all CPUs together
    "iowait": "%",
    "psi_cpu": "%",  # of the time in which some task waited for a CPU
    "psi_io": "%",  # of the time in which all tasks waited for I/O
    "psi_memory": "%",
    "mem_free": "MiB",  # available
    "blocked": "count",  # tasks that wait for I/O now
    "net_rx": "MB/s",  # of the interfaces with a device of their own
    "net_tx": "MB/s",
    "net_errors": "count",
    "rdma_rx": "MB/s",
    "rdma_tx": "MB/s",
    "rdma_errors": "count",
    "lustre_read": "MB/s",
    "lustre_write": "MB/s",
}


@record
class SampledGpu:
    """A sampled GPU's constant properties, as far as the driver reported them."""

    uuid: str = ""
    memory_mib: float | None = None
    power_limit_w: float | None = None


@record
class Header:
    """The header of samples: their node and boot, start time, and the meaning of each value.

    `began` is in seconds since 1970 by the node's own clock; samples have seconds since then by a monotonic clock. A
    file has a header for each connection to the node.
    """

    node: str
    boot_id: str
    began: float
    every_s: float
    gpus: tuple[SampledGpu, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)  # units by name, in the order of the values

    def to_json(self) -> dict[str, Any]:
        """The line as an object."""
        return {
            HEADER: SCHEMA,
            "node": self.node,
            "boot_id": self.boot_id,
            "began": round(self.began, 3),
            "every_s": self.every_s,
            "gpus": [
                {"uuid": gpu.uuid, "memory_mib": gpu.memory_mib, "power_limit_w": gpu.power_limit_w}
                for gpu in self.gpus
            ],
            "columns": [[column, unit] for column, unit in self.columns.items()],
        }


def columns_for(gpus: int) -> dict[str, str]:
    """The columns of a node with so many GPUs, in order: `gpu0.util`, …, then the host's."""
    of_gpus = {f"gpu{index}.{column}": unit for index in range(gpus) for column, unit in GPU_COLUMNS.items()}
    return {**of_gpus, **HOST_COLUMNS}


def header_of(record: Mapping[str, Any], where: str) -> Header:
    """Parse a header. Raises RunError."""
    if record.get(HEADER) != SCHEMA:
        seen = f"{HEADER} is {record.get(HEADER)!r:.20}"
        raise RunError(f"{where}: {seen}; expected {SCHEMA}: read it with a newer version")
    columns = dict(_columns(record.get("columns"), where))
    if len(columns) != len(record["columns"]):
        raise RunError(f"{where}: a column is there twice; expected each once")
    gpus = record.get("gpus", [])
    if not isinstance(gpus, list) or len(gpus) > MAX_GPUS or not all(isinstance(gpu, dict) for gpu in gpus):
        raise RunError(f"{where}: gpus is {str(gpus)!r:.60}; expected a list of {MAX_GPUS} at most")
    every_s = real(record.get("every_s"), "every_s", where)
    if every_s <= 0:
        raise RunError(f"{where}: every_s is {every_s:g}; expected seconds between samples")
    return Header(
        name(record.get("node"), "node", where),
        str(record.get("boot_id") or "")[:64],
        real(record.get("began"), "began", where),
        every_s,
        tuple(_gpu(gpu, where) for gpu in gpus),
        columns,
    )


def _columns(value: object, where: str) -> Iterable[tuple[str, str]]:
    if not isinstance(value, list) or len(value) > MAX_COLUMNS:
        raise RunError(f"{where}: columns is {str(value)!r:.60}; expected a list of {MAX_COLUMNS:,} at most")
    for column in value:
        if not isinstance(column, list) or len(column) != 2:
            raise RunError(f"{where}: {str(column)!r:.60} is not a column; expected its name and its unit")
        yield name(column[0], "a column", where), name(column[1], "a unit", where)


def _gpu(record: Mapping[str, Any], where: str) -> SampledGpu:
    memory, limit = record.get("memory_mib"), record.get("power_limit_w")
    return SampledGpu(
        str(record.get("uuid") or "")[:80],
        None if memory is None else float(integer(memory, "memory_mib", where)),
        None if limit is None else real(limit, "power_limit_w", where),
    )


LINES = 6  # in a frame: a minute at 10 s. A frame of 30 lines is smaller by a tenth
_COMPRESSOR = zstandard.ZstdCompressor(level=3, write_checksum=True)
_DECOMPRESSOR = zstandard.ZstdDecompressor()
_PIECE = 1 << 20


class SamplesFile:
    """One node's file. A failed write leaves the file unchanged, and its lines for the next write."""

    def __init__(self, path: Path) -> None:
        """Append after the last complete frame. Raises OSError."""
        self.path = path
        self._lines: list[str] = []
        if os.path.lexists(path):
            with appendable(path) as file:
                complete_bytes = whole_frames(path)
                if complete_bytes < os.fstat(file.fileno()).st_size:
                    file.truncate(complete_bytes)

    def begin(self, header: Header) -> None:
        """Write a header for the next samples. Raises OSError."""
        self._lines.append(_line(header.to_json()))
        self.flush()

    def sample(self, time_s: float, values: Sequence[float | None]) -> None:
        """Write the values at a time, in the order of the header's columns. Raises OSError."""
        self._lines.append(_line([round(time_s, 2), *values]))
        if len(self._lines) >= LINES:
            self.flush()

    def event(self, time_s: float, source: str, text: str) -> None:
        """Write an event. Raises OSError."""
        self._lines.append(_line({"event": {"time": round(time_s, 2), "source": source, "text": text}}))
        self.flush()

    def ranks(self, time_s: float, looks: Sequence[RankLook]) -> None:
        """Write the state of ranks' processes at a time. Raises OSError."""
        rows = [look.to_json() for look in looks]
        event = {"time": round(time_s, 2), "source": SOURCE, "text": "", "ranks": rows}
        self._lines.append(_line({"event": event}))
        if len(self._lines) >= LINES:
            self.flush()

    def gap(self, began: float, ended: float, why: str) -> None:
        """Write a period without data, in seconds since 1970. Raises OSError."""
        self._lines.append(_line({"gap": {"from": round(began, 3), "to": round(ended, 3), "why": why}}))
        self.flush()

    def flush(self) -> None:
        """Write all pending lines as one frame, atomically. Raises OSError."""
        if not self._lines:
            return
        frame = _COMPRESSOR.compress("".join(self._lines).encode())
        with appendable(self.path) as file:
            append(file, file.seek(0, os.SEEK_END), frame)
        self._lines.clear()

    def forget(self) -> int:
        """Discard lines that could not be written; returns their number."""
        count = len(self._lines)
        self._lines.clear()
        return count


def whole_frames(path: Path) -> int:
    """The size of a file up to its last complete frame. Raises OSError."""
    whole = read = 0
    frame = _DECOMPRESSOR.decompressobj()
    with path.open("rb") as file:
        rest = b""
        while piece := rest or file.read(_PIECE):
            read += 0 if rest else len(piece)
            try:
                frame.decompress(piece)
            except zstandard.ZstdError:
                break
            rest = b""
            if frame.eof:
                rest = frame.unused_data
                whole = read - len(rest)
                frame = _DECOMPRESSOR.decompressobj()
    return whole


_in_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode  # json.dumps makes one for each line


def _line(value: Any) -> str:
    return f"{_in_json(value)}\n"
