"""Traces of PyTorch's profiler (Kineto): of each step how long it waits for data, and for collectives alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterproof.plugins.training_run.events import Events
from clusterproof.plugins.training_run.intervals import Interval, union, within, without
from clusterproof.plugins.training_run.records import Cut, Place, RunError, Step
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


@dataclass
class _Seen:
    """What a trace has of interest, in µs."""

    events: Events
    steps: dict[int, Interval] = field(default_factory=dict)
    loading: list[Interval] = field(default_factory=list)
    computing: list[Interval] = field(default_factory=list)
    communicating: list[Interval] = field(default_factory=list)

    def note(self, name: str, event: dict[str, Any]) -> None:
        """Take in an event that lasted. Raises RunError."""
        category = event.get("cat")
        if category in ("kernel", "Kernel"):
            (self.communicating if _COLLECTIVE.search(name) else self.computing).append(_lasted(event, self.events))
            if len(self.computing) + len(self.communicating) > MAX_KERNELS:
                many = f"more than {MAX_KERNELS:,} kernels"
                raise RunError(f"{self.events.where}: {many}; expected fewer: trace fewer steps")
        elif category in _OF_CPU and name.startswith(_LOADER):
            self.loading.append(_lasted(event, self.events))
        elif category in _OF_CPU and (step := _STEP.fullmatch(name)):
            self.steps[int(step[1])] = _lasted(event, self.events)


def read_trace(path: Path) -> Iterator[Step | Cut]:
    """Its steps; the whole trace as one step where nobody called `profiler.step()`. Raises RunError."""
    seen = _Seen(Events(path))
    for event in seen.events:
        if isinstance(event, dict) and event.get("ph") == "X" and isinstance(event.get("name"), str):
            seen.note(event["name"], event)
    kernels = [*seen.computing, *seen.communicating]
    if not seen.steps and kernels:
        seen.steps[0] = (min(start for start, _ in kernels), max(end for _, end in kernels))
    exposed = without(union(seen.communicating), union(seen.computing))
    place = Place(_rank(seen.events))
    for number, (start, end) in sorted(seen.steps.items()):
        parts = {DATA: within(seen.loading, start, end) * US} if seen.loading else {}
        if kernels:
            parts[EXPOSED] = within(exposed, start, end) * US
        yield Step(place, number, (end - start) * US, parts)
    if not seen.events.is_whole:
        yield Cut()


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
