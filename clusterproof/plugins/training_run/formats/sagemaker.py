"""System metrics of SageMaker's profiler: `profiler-output/system/incremental/…/TIME.algo-1.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clusterproof.plugins.training_run import CpuCount, CutFile, RunError
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, json_lines, name, real
from clusterproof.plugins.training_run.samples import (
    CPU,
    GPU,
    HOST_MEMORY,
    IO_WAIT,
    MAX_VALUE,
    MEMORY,
    NETWORK_BYTES,
    Sample,
    range_of,
)

EXPECTED = 'expected {"Type", "Name", "Dimension", "Value", "NodeId", "Timestamp"}'
_METRICS = {
    "GPUUtilization": GPU,
    "GPUMemoryUtilization": MEMORY,  # its rules call it the footprint
    "CPUUtilization": CPU,
    "I/OWaitPercentage": IO_WAIT,
    "MemoryUsedPercent": HOST_MEMORY,
    "Algorithm": NETWORK_BYTES,
}
MAX_CORES = 4_096


def are_metrics(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        first = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"Type", "Value", "NodeId", "Timestamp"} <= first.keys()


def read_metrics(path: RunFile) -> Iterator[Sample | CpuCount | CutFile]:
    """The samples of GPUs, CPUs, memory, the network and the wait for I/O; other metrics are left out.

    Raises RunError.
    """
    lines, cores = Lines(path), dict[str, set[str]]()
    for entry in json_lines(lines, EXPECTED):
        sample = _sample(entry, lines.where)
        if sample:
            yield sample
        if sample and sample.metric == CPU and len(core_names := cores.setdefault(sample.node, set())) < MAX_CORES:
            core_names.add(str(entry.get("Name")))
    yield from (CpuCount(node, len(names)) for node, names in cores.items())
    if lines.is_cut:
        yield CutFile()


def _sample(entry: Any, where: str) -> Sample | None:
    if not isinstance(entry, dict) or not {"Type", "Value", "NodeId", "Timestamp"} <= entry.keys():
        raise RunError(f"{where}: {str(entry)!r:.60} is not a metric; {EXPECTED}")
    metric = next((_METRICS[word] for key in ("Dimension", "Name") if (word := str(entry.get(key))) in _METRICS), "")
    if not metric:
        return None
    value = real(entry["Value"], "Value", where)
    if value < 0 or value > MAX_VALUE.get(metric, value):
        raise RunError(f"{where}: Value is {value:g}; expected {range_of(metric)}")
    device = name(entry.get("Name"), "Name", where) if metric in (GPU, MEMORY) else ""
    node = name(entry["NodeId"], "NodeId", where)
    return Sample(node, metric, device, real(entry["Timestamp"], "Timestamp", where), value)


FORMATS = (Format("SageMaker's profiler (system)", are_metrics, read_metrics),)
