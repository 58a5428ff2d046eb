"""Reads saved `query_range` responses of Prometheus for dcgm-exporter metrics, series by series."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

from clusterproof.plugins.training_run import CutFile, OutOfRange, RunError
from clusterproof.plugins.training_run.files import Format, RunFile, name, real
from clusterproof.plugins.training_run.files import integer as whole_number
from clusterproof.plugins.training_run.formats.gpu_tools import (
    CLOCKS,
    DRAW,
    FREE,
    LIMIT,
    TENSORS,
    TOTAL,
    USED,
    UTIL,
    GpuReading,
    throttled_by,
)
from clusterproof.plugins.training_run.formats.json_items import Events
from clusterproof.plugins.training_run.samples import Sample

REASON = "reason"  # bits
ENGINE, BUSY = "engine", "busy"  # in percent of 100: used for UTIL if that is missing
METRICS: Mapping[str, tuple[str, float]] = {  # metric and factor
    "DCGM_FI_DEV_GPU_UTIL": (UTIL, 1),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (ENGINE, 100),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (TENSORS, 100),
    "DCGM_FI_DEV_SM_CLOCK": (CLOCKS, 1),
    "DCGM_FI_DEV_FB_USED": (USED, 1),
    "DCGM_FI_DEV_FB_FREE": (FREE, 1),
    "DCGM_FI_DEV_FB_TOTAL": (TOTAL, 1),
    "DCGM_FI_DEV_POWER_USAGE": (DRAW, 1),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": (LIMIT, 1),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": (REASON, 1),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": (REASON, 1),  # before DCGM 4
}
RELATIVE = {USED: (TOTAL, FREE), DRAW: (LIMIT,), ENGINE: (BUSY,)}  # shares: of a value that is constant for a series
# Labels, the best first: Hostname may be the exporter's own pod (NVIDIA/dcgm-exporter#78).
OF_SITES = ("node", "exported_instance")  # if equal for all nodes, like external labels, they name none
NODES = (*OF_SITES, "Hostname", "hostname", "instance", "host")
DEVICES = ("gpu", "device", "UUID")
MAX_HOSTS = 1_000  # compared under one label
MAX_POINTS = 20_000_000  # waiting for their total
WHAT = "the answer of Prometheus to query_range"
EXPECTED = "expected the answer to query_range of metrics of dcgm-exporter, with their names"
_RESULT = re.compile(r'"result"\s*:\s*\[')

Gpu = tuple[str, str]  # node, device
Sites = set[tuple[str, str]]  # labels and values that do not name a node


def is_answer(head: bytes) -> bool:
    """Whether a file that begins like this is such a response."""
    return head.lstrip().startswith(b"{") and b'"status"' in head[:1000] and b'"resultType"' in head


def read_answer(path: RunFile) -> Iterator[Sample | OutOfRange | CutFile]:
    """The samples of its GPUs. Raises RunError."""
    series, sites = Events(path, _RESULT, WHAT), _sites(path)
    waiting: dict[tuple[Gpu, str], array[float]] = {}  # times and values, alternating
    whole: dict[tuple[Gpu, str], float] = {}
    known: set[tuple[Gpu, str]] = set()
    kept = 0
    for entry in series:
        gpu, meaning, times = _metric(entry, sites, series.where)
        if not meaning:
            continue
        points = _points(entry, times, series.where)
        known.add((gpu, meaning))
        if meaning in (UTIL, TENSORS, CLOCKS, REASON):
            for time_s, value in points:
                yield from GpuReading(*gpu, time_s, _values(meaning, value, series.where)).samples()
        elif meaning in RELATIVE:
            held = waiting.setdefault((gpu, meaning), array("d"))
            for point in points:
                held.extend(point)
                kept += 1
                if kept > MAX_POINTS:
                    raise RunError(f"{series.where}: more than {MAX_POINTS:,} points; expected fewer: a larger step")
        else:
            whole[gpu, meaning] = max((whole.get((gpu, meaning), 0.0), *(value for _, value in points)))
    if '"matrix"' not in series.head + series.tail:
        raise RunError(f"{path}: no series over time; {EXPECTED}")
    whole |= {(gpu, BUSY): 100.0 for gpu, _ in known if (gpu, UTIL) not in known}
    yield from _shares(waiting, whole)
    if not series.is_whole:
        yield CutFile()


def _sites(path: RunFile) -> Sites:
    """Labels under which several hosts have the same GPU at one time; a pod that replaces another is not another host.

    Raises RunError.
    """
    sites: Sites = set()
    seen: dict[tuple[tuple[str, str], str, str], list[tuple[str, object, float, float]]] = {}
    series = Events(path, _RESULT, WHAT)
    for entry in series:
        labels = entry.get("metric") if isinstance(entry, dict) else None
        if not isinstance(labels, dict) or str(labels.get("__name__")) not in METRICS or labels.get("GPU_I_ID"):
            continue
        unsure = {(label, str(labels[label])) for label in OF_SITES if label in labels and "Hostname" in labels} - sites
        times = [time_s for time_s, _ in _points(entry, 1.0, series.where)] if unsure else []
        if not times:
            continue
        host, uuid, first, last = str(labels["Hostname"]), labels.get("UUID"), min(times), max(times)
        for site in unsure:
            others = seen.setdefault((site, str(labels["__name__"]), _device(labels)), [])
            if any(
                host != other and (uuid is None or uuid != of) and first <= ended and began <= last
                for other, of, began, ended in others
            ):
                sites.add(site)
            if len(others) < MAX_HOSTS:
                others.append((host, uuid, first, last))
    return sites


def _device(labels: Mapping[str, Any]) -> str:
    device = next((labels[label] for label in DEVICES if label in labels), None)
    return f"gpu{device}" if str(device).isdecimal() else str(device).replace("nvidia", "gpu")


def _metric(entry: Any, sites: Sites, where: str) -> tuple[Gpu, str, float]:
    """The GPU, the metric, and the factor; None for another metric."""
    if not isinstance(entry, dict) or not isinstance(entry.get("metric"), dict):
        raise RunError(f"{where}: {str(entry)!r:.60} is no series; {EXPECTED}")
    labels = entry["metric"]
    if "__name__" not in labels:
        raise RunError(f"{where}: a series without a name, as functions leave them; {EXPECTED}")
    meaning, times = METRICS.get(str(labels["__name__"]), ("", 0.0))
    if not meaning or labels.get("GPU_I_ID"):  # a slice of a GPU
        return ("", ""), "", 0.0
    node = next(
        (labels[label] for label in NODES if label in labels and (label, str(labels[label])) not in sites), None
    )
    return (name(node, "Hostname", where), name(_device(labels), "gpu", where)), meaning, times


def _points(entry: Mapping[str, Any], times: float, where: str) -> Iterator[tuple[float, float]]:
    points = entry.get("values")
    if not isinstance(points, list):
        raise RunError(f"{where}: values is {str(points)!r:.60}; expected [[time, value], …]")
    for point in points:
        if not isinstance(point, list) or len(point) != 2:
            raise RunError(f"{where}: {str(point)!r:.60} is no point; expected [time, value]")
        if str(point[1]) not in ("NaN", "+Inf", "-Inf"):  # of a target that is gone
            yield real(point[0], "a time", where), times * real(point[1], "a value", where)


def _values(meaning: str, value: float, where: str) -> dict[str, float]:
    return throttled_by(whole_number(value, "a reason", where)) if meaning == REASON else {meaning: value}


def _shares(
    waiting: Mapping[tuple[Gpu, str], array[float]], whole: Mapping[tuple[Gpu, str], float]
) -> Iterator[Sample | OutOfRange]:
    for (gpu, meaning), held in waiting.items():
        for of in RELATIVE[meaning]:
            if (gpu, of) in whole:
                full = whole[gpu, of] + (min(held[1::2]) if of == FREE else 0.0)  # the most free beside the least used
                key = TOTAL if meaning == USED else LIMIT
                name_of = UTIL if meaning == ENGINE else meaning
                for at in range(0, len(held), 2):
                    yield from GpuReading(*gpu, held[at], {name_of: held[at + 1], key: full}).samples()
                break


FORMATS = (Format("Prometheus's query_range", is_answer, read_answer),)
