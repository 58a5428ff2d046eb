"""Samples of a node recorded by `clusterproof watch`: `NODE.samples.jsonl.zst`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import CutFile, RunError
from clusterproof.plugins.training_run import samples as of_run
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, json_lines, name, real
from clusterproof.plugins.training_run.rank_processes import MAX_RANKS, SOURCE, RankLook, RankSeen, look_of
from clusterproof.plugins.training_run.sample_columns import HEADER, Header, SampledGpu, header_of
from clusterproof.plugins.training_run.samples import Sample

EXPECTED = f'expected {{"{HEADER}": 1, …}}, a list of values, {{"event": …}} or {{"gap": …}}'
MAX_BEFORE_S = 1.0  # by which a sample may precede its header

Value = Callable[[float, SampledGpu], float | None]


def _as_is(value: float, _gpu: SampledGpu) -> float:
    return value


def _of_memory(value: float, gpu: SampledGpu) -> float | None:
    return 100 * value / gpu.memory_mib if gpu.memory_mib else None


def _of_limit(value: float, gpu: SampledGpu) -> float | None:
    return 100 * value / gpu.power_limit_w if gpu.power_limit_w else None


OF_GPU: Mapping[str, tuple[str, Value]] = {  # by column: the metric, and the conversion
    "util": (of_run.GPU, _as_is),
    "tensor": (of_run.TENSOR, _as_is),
    "nvlink": (of_run.LINK, _as_is),
    "mem": (of_run.MEMORY, _of_memory),
    "clock": (of_run.CLOCK, _as_is),
    "power": (of_run.POWER, _of_limit),
    "capped": (of_run.CAPPED, _as_is),
    "slowed": (of_run.SLOWED, _as_is),
}
OF_HOST: Mapping[str, tuple[str, ...]] = {  # by metric: the columns to sum
    of_run.CPU: ("cpu",),
    of_run.IO_WAIT: ("iowait",),
    of_run.CPU_PRESSURE: ("psi_cpu",),
    of_run.IO_PRESSURE: ("psi_io",),
    of_run.NETWORK: ("net_rx", "net_tx", "rdma_rx", "rdma_tx"),
}


@record
class SampledColumn:
    """One metric and device: the columns of its values, and how they are combined."""

    metric: str
    device: str
    at: tuple[int, ...]
    gpu: SampledGpu
    made: Value


def are_samples(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        first = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and HEADER in first


def read_samples(path: RunFile) -> Iterator[Sample | RankSeen | CutFile]:
    """The samples of GPUs, CPUs and ranks that rules use. Raises RunError."""
    lines = Lines(path)
    header, columns = None, []
    for entry in json_lines(lines, EXPECTED):
        if isinstance(entry, list) and header:
            yield from _samples(entry, header, columns, lines.where)
        elif isinstance(entry, dict) and HEADER in entry:
            header = header_of(entry, lines.where)
            columns = list(_columns(header))
        elif isinstance(entry, dict) and header:
            for time_s, look in _other(entry, lines.where):
                yield RankSeen(header.node, header.began + time_s, look)
        else:
            raise RunError(f"{lines.where}: {str(entry)!r:.60} is no sample; {EXPECTED}")
    if lines.is_cut:
        yield CutFile()


def _columns(header: Header) -> Iterator[SampledColumn]:
    at = {column: number for number, column in enumerate(header.columns, 1)}
    for index, gpu in enumerate(header.gpus):
        for column, (metric, made) in OF_GPU.items():
            if f"gpu{index}.{column}" in at:
                yield SampledColumn(metric, f"gpu{index}", (at[f"gpu{index}.{column}"],), gpu, made)
    for metric, columns in OF_HOST.items():
        numbers = tuple(at[column] for column in columns if column in at)
        if numbers:
            yield SampledColumn(metric, "", numbers, SampledGpu(), _as_is)


def _samples(row: Sequence[Any], header: Header, columns: Sequence[SampledColumn], where: str) -> Iterator[Sample]:
    if len(row) != len(header.columns) + 1:
        raise RunError(f"{where}: {len(row)} values; expected {len(header.columns) + 1}, as the header names them")
    seconds = real(row[0], "time", where)
    if seconds < -MAX_BEFORE_S:
        raise RunError(f"{where}: time is {seconds:g}; expected seconds since the header's")
    for column in columns:
        numbers = [_number(row[at], where) for at in column.at if row[at] is not None]
        value = column.made(sum(numbers), column.gpu) if numbers else None
        if value is None:
            continue
        if value < 0 or (value > of_run.MAX_VALUE.get(column.metric, value)):
            raise RunError(f"{where}: {column.metric} is {value:g}; expected {of_run.range_of(column.metric)}")
        yield Sample(header.node, column.metric, column.device, header.began + seconds, value)


def _number(value: object, where: str) -> float:
    if isinstance(value, str):
        raise RunError(f"{where}: a value is {value!r:.60}; expected a number or null")
    return real(value, "a value", where)


def _other(entry: Mapping[str, Any], where: str) -> Iterator[tuple[float, RankLook]]:
    """An event's data on ranks; for other events and gaps, only the format is checked. Raises RunError."""
    event, gap = entry.get("event"), entry.get("gap")
    if isinstance(event, dict):
        time_s = real(event.get("time"), "time", where)
        if name(event.get("source"), "source", where) == SOURCE:
            for look in _looks(event.get("ranks"), where):
                yield time_s, look
    elif isinstance(gap, dict):
        if real(gap.get("to"), "to", where) < real(gap.get("from"), "from", where):
            raise RunError(f"{where}: a gap ends before it begins; expected it to end later")
    else:
        raise RunError(f"{where}: {str(entry)!r:.60} is no sample; {EXPECTED}")


def _looks(ranks: object, where: str) -> list[RankLook]:
    if not isinstance(ranks, list) or len(ranks) > MAX_RANKS:
        raise RunError(f"{where}: ranks is {str(ranks)!r:.60}; expected a list of {MAX_RANKS} at most")
    try:
        return list(map(look_of, ranks))
    except (TypeError, ValueError) as wrong:
        raise RunError(f"{where}: {wrong!s:.100}; expected what the process of a rank did") from None


FORMATS = (Format("samples of clusterproof watch", are_samples, read_samples),)
