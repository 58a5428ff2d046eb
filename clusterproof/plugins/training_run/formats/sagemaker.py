"""System metrics of SageMaker's profiler, a line for each: `profiler-output/system/incremental/…/TIME.algo-1.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clusterproof.plugins.training_run.files import Format, Lines, RunFile, json_lines, name, real
from clusterproof.plugins.training_run.records import Cut, RunError
from clusterproof.plugins.training_run.samples import CPU, GPU, IO_WAIT, Sample

EXPECTED = 'expected {"Type", "Name", "Dimension", "Value", "NodeId", "Timestamp"}'
_METRICS = {"GPUUtilization": GPU, "CPUUtilization": CPU, "I/OWaitPercentage": IO_WAIT}


def are_metrics(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        data = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and {"Type", "Value", "NodeId", "Timestamp"} <= data.keys()


def read_metrics(path: RunFile) -> Iterator[Sample | Cut]:
    """The samples of GPUs, CPUs and the wait for I/O; of other metrics none. Raises RunError."""
    lines = Lines(path)
    for data in json_lines(lines, EXPECTED):
        sample = _sample(data, lines.where)
        if sample:
            yield sample
    if lines.is_cut:
        yield Cut()


def _sample(data: Any, where: str) -> Sample | None:
    if not isinstance(data, dict) or not {"Type", "Value", "NodeId", "Timestamp"} <= data.keys():
        raise RunError(f"{where}: {str(data)!r:.60} is not a metric; {EXPECTED}")
    metric = next((_METRICS[word] for key in ("Dimension", "Name") if (word := str(data.get(key))) in _METRICS), "")
    if not metric:
        return None
    percent = real(data["Value"], "Value", where)
    if not 0 <= percent <= 100:
        raise RunError(f"{where}: Value is {percent:g}; expected 0 to 100 %")
    device = name(data.get("Name"), "Name", where) if metric == GPU else ""
    node = name(data["NodeId"], "NodeId", where)
    return Sample(node, metric, device, real(data["Timestamp"], "Timestamp", where), percent)


FORMATS = (Format("SageMaker's profiler (system)", are_metrics, read_metrics),)
