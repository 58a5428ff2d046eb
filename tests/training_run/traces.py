"""Traces of PyTorch's profiler that tests make up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(name: str, start: float, lasted: float, category: str) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": lasted}


def step_events(number: int, *, loading: float = 50, alone: float = 100, compute: str = "gemm") -> Iterable[Event]:
    """A step of 1,000 µs: data first, then compute, of which a collective runs on for a while when it has ended."""
    start = 1000.0 * number
    yield event(f"ProfilerStep#{number}", start, 1000, "user_annotation")
    yield event(f"ProfilerStep#{number}", start, 990, "gpu_user_annotation")
    yield event("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, loading, "user_annotation")
    yield event(compute, start + 100, 500, "kernel")
    yield event(NCCL, start + 400, 200 + alone, "kernel")


def trace(events: Iterable[Event], rank: int = 3, **more: Any) -> str:
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "distributedInfo": {"rank": rank}, **more}
    return json.dumps({**head, "traceEvents": list(events), "traceName": "x"}, indent=1)


def ten_steps(**how: Any) -> list[Event]:
    return [one for number in range(10) for one in step_events(number, **how)]
