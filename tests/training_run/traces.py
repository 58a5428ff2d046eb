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


def all_to_all(rank: int, computes: list[float], steps: int = 8, *, names_it: bool = True) -> list[Event]:
    """What a rank of a recommendation model traces: in each step two all-to-alls and an all-reduce, of old names.

    Each begins when this rank has computed, and ends for all when the last one has: `computes` are shares of a step of
    1,000 µs, a third of it before each collective.
    """
    own, last, rows = 1000 * computes[rank] / 3, 1000 * max(computes) / 3, []
    for step in range(steps):
        rows.append(event(f"ProfilerStep#{step}", 1000.0 * step, 1000, "user_annotation"))
        for place in range(3):
            start = 1000.0 * step + place * 1000 / 3
            kind = "AllReduce_RING_LL_Sum_float" if place == 2 else "SendRecv_RING_SIMPLE_Sum_int8_t"
            if names_it:
                rows.append(event("nccl:all_reduce" if place == 2 else "nccl:all_to_all", start, 9, "cpu_op"))
            rows.append(event("gemm", start, own, "kernel"))
            rows.append(event(f"ncclKernel_{kind}(ncclWorkElem)", start + own, 1000 / 3 - own, "kernel"))
    assert last <= 1000 / 3
    return rows
