"""Traces of PyTorch's profiler (Kineto): how long each step waits for data, and for collectives alone."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from clusterproof.plugins.training_run import (
    COMPUTE,
    DATA,
    EXPOSED_ALONE,
    KERNEL,
    KERNELS,
    OPERATOR,
    REST,
    CutFile,
    DataLoader,
    Position,
    RunError,
    Step,
    StepLoop,
    TimeSpent,
    Unranked,
)
from clusterproof.plugins.training_run.collectives import Traced
from clusterproof.plugins.training_run.files import MAX_NAME, Format, RunFile, integer, real, seconds
from clusterproof.plugins.training_run.formats.json_items import Events
from clusterproof.plugins.training_run.formats.kineto_collectives import STARTED_BY, Collectives

Interval = tuple[float, float]  # begin, end
MAX_KERNELS = 2_000_000  # about 200 MB
US = 1e-6  # s
MAX_US = 1e18
MAX_NAMES = 10_000  # of kernels, and of operators
_STEP = re.compile(r"ProfilerStep#([0-9]{1,18})")
_STEP_OF_SAGEMAKER = "Step:ModeKeys.TRAIN"
_COLLECTIVE = re.compile(  # a kernel that waits for other GPUs
    r"nccl|rccl|msccl|nvshmem|deep_?ep|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|multimem",
    re.IGNORECASE,
)
_WAITS_FOR_NEXT = "IteratorGetNextOp::DoCompute"  # of TensorFlow, in SageMaker's timelines without a category
_WAITS_FOR_LOADER = "DataLoaderIter::GetNext"  # of PyTorch there, after the name of the loader's class
_GET_NEXT = (_WAITS_FOR_NEXT, "dataset::GetNext")
_EPOCH = "start_time_since_epoch_in_micros"
_SET_UP = ("num_workers", "pin_memory")  # of a data loader, next to its start
_LOADER = "enumerate(DataLoader)"
_MARKS = (_LOADER, "ProfilerStep#")
ANNOTATION = "annotation"
_CATEGORIES = {  # of PyTorch 1.8 and newer; those of the GPU repeat the steps
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "cpu_op": OPERATOR,
    "Operator": OPERATOR,
    "user_annotation": ANNOTATION,
}
_RANK = re.compile(r"rank[-_ ]?([0-9]{1,7})")
_KEYS = (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"', b'"distributedInfo"', b'"baseTimeNanoseconds"')
_INFO = re.compile(r'"distributedInfo"\s*:\s*')


def is_trace(head: bytes) -> bool:
    """Whether a file that begins so is such a trace."""
    text = head.lstrip()
    return (text.startswith(b"{") and any(key in head for key in _KEYS)) or (
        text.startswith(b"[") and b'"ph"' in head[: 1 << 10]
    )


@dataclass
class _TraceContents:
    """The relevant contents of a trace, in µs."""

    events: Events
    steps: dict[int, Interval] = field(default_factory=dict)
    loading: list[Interval] = field(default_factory=list)
    computing: list[Interval] = field(default_factory=list)
    communicating: list[Interval] = field(default_factory=list)
    collectives: Collectives = field(default_factory=Collectives)
    epoch_us: float | None = None  # of SageMaker's: the start of its clock, since 1970
    loader: dict[str, int | bool] = field(default_factory=dict)
    spent: dict[str, dict[str, list[float]]] = field(default_factory=lambda: {KERNEL: {}, OPERATOR: {}})

    def note(self, name: str, event: dict[str, Any]) -> None:
        """Add an event with a duration. Raises RunError."""
        category = event.get("cat")
        kind = _CATEGORIES.get(category) if isinstance(category, str) else None
        if name.startswith(STARTED_BY):
            self.collectives.started(name)
        if kind == OPERATOR and not name.startswith(_MARKS):
            self._count(kind, name, self._duration(event))
        elif kind in (OPERATOR, ANNOTATION):
            if name.startswith(_LOADER):
                self.loading.append(self._lasted(event))
            elif step := _STEP.fullmatch(name):
                self.steps[int(step[1])] = self._lasted(event)
        elif kind == KERNEL:
            self._kernel(name, self._lasted(event), event.get("args"))
        else:
            self._note_of_sagemaker(name, event)

    def _note_of_sagemaker(self, name: str, event: dict[str, Any]) -> None:
        arguments = event.get("args")
        if name == _STEP_OF_SAGEMAKER and isinstance(arguments, dict):
            self.steps[integer(arguments.get("step_num"), "step_num", self.events.where)] = self._lasted(event)
        elif name in _GET_NEXT or name.endswith(_WAITS_FOR_LOADER):
            self._count(OPERATOR, name, self._duration(event))
            if name != _GET_NEXT[1]:
                self.loading.append(self._lasted(event))
        elif isinstance(arguments, dict) and _SET_UP[0] in arguments:
            self.loader |= {key: arguments[key] for key in _SET_UP if type(arguments.get(key)) in (int, bool)}

    def _kernel(self, name: str, lasted: Interval, arguments: object) -> None:
        is_collective = bool(_COLLECTIVE.search(name))
        (self.communicating if is_collective else self.computing).append(lasted)
        if is_collective:
            self.collectives.note(name, lasted[0], (lasted[1] - lasted[0]) * US, arguments)
        self._count(KERNEL, name, lasted[1] - lasted[0])
        if len(self.computing) + len(self.communicating) > MAX_KERNELS:
            many = f"more than {MAX_KERNELS:,} kernels"
            raise RunError(f"{self.events.where}: {many}; expected fewer: trace fewer steps")

    def _count(self, kind: str, name: str, lasted: float) -> None:
        spent = self.spent[kind]
        key = name if len(name) <= MAX_NAME else name[:MAX_NAME]
        cell = spent.get(key)
        if cell is None:
            cell = spent.setdefault(key if len(spent) < MAX_NAMES else REST, [0.0, 0])
        cell[0] += lasted
        cell[1] += 1

    def note_clock(self, record: object) -> None:
        """Add what a line about the trace says about its clock. Raises RunError."""
        if isinstance(record, dict) and _EPOCH in record:
            self.epoch_us = real(record[_EPOCH], _EPOCH, self.events.where)

    def counted(self, rank: int) -> Iterator[TimeSpent | DataLoader | StepLoop]:
        """The times of its steps, the settings of its loader, and the time that kernels and operators took."""
        if self.epoch_us is not None and self.steps:
            moments = [self.epoch_us + moment for step in self.steps.values() for moment in step]
            yield StepLoop(min(moments) * US, max(moments) * US)
        if self.loader:
            workers, pins = (self.loader.get(key) for key in _SET_UP)
            yield DataLoader(rank, None if workers is None else int(workers), None if pins is None else bool(pins))
        for kind, spent in self.spent.items():
            for name, (lasted, times) in spent.items():
                yield TimeSpent(rank, kind, name, lasted * US, int(times))

    def _lasted(self, event: dict[str, Any]) -> Interval:
        start = event.get("ts")
        if type(start) is not float or not isfinite(start):
            start = real(start, "ts", self.events.where)
        return start, start + self._duration(event)

    def _duration(self, event: dict[str, Any]) -> float:
        lasted = event.get("dur")
        if (type(lasted) is float or type(lasted) is int) and 0 <= lasted < MAX_US:  # the usual case
            return lasted
        return seconds(lasted, "dur", self.events.where)


def read_trace(path: RunFile) -> Iterator[Step | TimeSpent | Traced | DataLoader | StepLoop | Unranked | CutFile]:
    """Its steps; the whole trace as one step if `profiler.step()` was not called. Raises RunError."""
    seen = _TraceContents(Events(path))
    for event in seen.events:
        if isinstance(event, dict) and event.get("ph") == "X" and isinstance(event.get("name"), str):
            seen.note(event["name"], event)
        elif isinstance(event, dict) and event.get("ph") == "M":
            seen.note_clock(event.get("args"))
    marked = sorted(seen.steps)
    kernels = [*seen.computing, *seen.communicating]
    if not seen.steps and kernels:
        seen.steps[0] = (min(start for start, _ in kernels), max(end for _, end in kernels))
    computing, loading = union(seen.computing), without(union(seen.loading), union(kernels))  # computing is not waiting
    exposed = without(union(seen.communicating), computing)
    info = _info(seen.events)
    rank = _rank(seen.events, info)
    position = Position(rank or 0)
    world = info.get("world_size")
    if rank is None and (kernels or seen.steps) and seen.epoch_us is None:
        yield Unranked()
    if rank is not None:
        yield from seen.collectives.calls(rank, world if type(world) is int else 0, marked)
    for number, (start, end) in sorted(seen.steps.items()):
        parts = {DATA: within(loading, start, end) * US} if seen.loading else {}
        if kernels:
            parts[KERNELS if seen.collectives.has_pairs else COMPUTE] = within(computing, start, end) * US
            parts[EXPOSED_ALONE] = within(exposed, start, end) * US
        yield Step(position, number, (end - start) * US, parts)
    yield from seen.counted(position.rank)
    if not seen.events.is_whole:
        yield CutFile()


def _info(events: Events) -> dict[str, Any]:
    """The trace's statement of its rank, before its events or after them."""
    for text in (events.head, events.tail):
        match = _INFO.search(text)
        try:
            info = json.JSONDecoder().raw_decode(text, match.end())[0] if match else {}
        except (ValueError, RecursionError):
            continue
        if isinstance(info, dict) and info:
            return info
    return {}


def _rank(events: Events, info: Mapping[str, Any]) -> int | None:
    """The rank in the trace, else in its file's name; None if there is none."""
    rank = info.get("rank")
    if isinstance(rank, int) and rank >= 0:
        return rank
    named = _RANK.search(events.path.name)
    return int(named[1]) if named else None


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union, in order, without overlaps."""
    covered: list[Interval] = []
    for start, end in sorted(intervals):
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], end))
        else:
            covered.append((start, end))
    return covered


def without(covered: Iterable[Interval], others: list[Interval]) -> list[Interval]:
    """The part of them outside of the others; both as from `union`."""
    left: list[Interval] = []
    at = 0
    for start, end in covered:
        while at < len(others) and others[at][1] <= start:
            at += 1
        number = at
        while number < len(others) and others[number][0] < end:
            if others[number][0] > start:
                left.append((start, others[number][0]))
            start = max(start, others[number][1])
            number += 1
        if start < end:
            left.append((start, end))
    return left


def within(covered: Sequence[Interval], start: float, end: float) -> float:
    """The part of them, as from `union`, within these limits."""
    first = bisect_right(covered, start, key=lambda interval: interval[1])
    last = bisect_left(covered, end, lo=first, key=lambda interval: interval[0])
    return sum(min(end, covered[at][1]) - max(start, covered[at][0]) for at in range(first, last))


FORMATS = (Format("a trace of PyTorch's profiler", is_trace, read_trace),)
