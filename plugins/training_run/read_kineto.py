"""Traces of PyTorch's profiler (Kineto): of each step how long it waits for data, and for collectives alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clusterproof.plugins.training_run.events import Events
from clusterproof.plugins.training_run.intervals import Interval, union, within, without
from clusterproof.plugins.training_run.records import Place, RunError, Step
from clusterproof.plugins.training_run.values import real, seconds

MAX_KERNELS = 2_000_000  # some 200 MB
US = 1e-6  # s
EXPOSED = "exposed communication"
DATA = "data"
_STEP = re.compile(r"ProfilerStep#([0-9]{1,18})")
_COLLECTIVE = re.compile(r"nccl|rccl|msccl|nvshmem", re.IGNORECASE)
_LOADER = "enumerate(DataLoader)"
_OF_CPU = ("user_annotation", "Operator", "cpu_op")  # categories; those of the GPU repeat the steps
_RANK = re.compile(r"rank[-_ ]?([0-9]{1,7})")
_INFO = re.compile(r'"distributedInfo"\s*:\s*')


def is_trace(head: bytes) -> bool:
    """Whether a file that begins so is such a trace."""
    return head.lstrip().startswith(b"{") and (b'"traceEvents"' in head or b'"deviceProperties"' in head)


def read_trace(path: Path) -> Iterator[Step]:
    """Its steps; the whole trace as one step where nobody called `profiler.step()`. Raises RunError."""
    events = Events(path)
    steps: dict[int, Interval] = {}
    loading: list[Interval] = []
    computing: list[Interval] = []
    communicating: list[Interval] = []
    for event in events:
        name, category = (event.get("name"), event.get("cat")) if isinstance(event, dict) else (None, None)
        if not isinstance(name, str) or event.get("ph") != "X":
            continue
        if category in ("kernel", "Kernel"):
            (communicating if _COLLECTIVE.search(name) else computing).append(_lasted(event, events))
            if len(computing) + len(communicating) > MAX_KERNELS:
                raise RunError(f"{events.where}: more than {MAX_KERNELS:,} kernels; expected fewer: trace fewer steps")
        elif category in _OF_CPU and name.startswith(_LOADER):
            loading.append(_lasted(event, events))
        elif category in _OF_CPU and (step := _STEP.fullmatch(name)):
            steps[int(step[1])] = _lasted(event, events)
    kernels = [*computing, *communicating]
    if not steps and kernels:
        steps[0] = (min(start for start, _ in kernels), max(end for _, end in kernels))
    exposed = without(union(communicating), union(computing))
    place = Place(_rank(events))
    for number, (start, end) in sorted(steps.items()):
        parts = {DATA: within(loading, start, end) * US} if loading else {}
        if kernels:
            parts[EXPOSED] = within(exposed, start, end) * US
        yield Step(place, number, (end - start) * US, start * US, parts)


def _lasted(event: dict[str, Any], events: Events) -> Interval:
    start = real(event.get("ts"), "ts", events.where)
    return start, start + seconds(event.get("dur"), "dur", events.where)


def _rank(events: Events) -> int:
    """The rank, as the trace has it, else its file's name; 0 where neither says."""
    found = _INFO.search(events.head)
    try:
        info = json.JSONDecoder().raw_decode(events.head, found.end())[0] if found else {}
    except (ValueError, RecursionError):
        info = {}
    rank = info.get("rank") if isinstance(info, dict) else None
    if isinstance(rank, int) and rank >= 0:
        return rank
    named = _RANK.search(events.path.name)
    return int(named[1]) if named else 0
