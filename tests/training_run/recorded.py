"""Made-up traces of PyTorch's profiler and dumps of the Flight Recorder."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun

Event = dict[str, Any]
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(name: str, start: float, lasted: float, category: str) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": lasted}


def step_events(number: int, *, loading: float = 50, alone: float = 100, compute: str = "gemm") -> Iterable[Event]:
    """A step of 1,000 µs: first data, then compute, with a collective that continues for a while afterwards."""
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
    return [recorded for number in range(10) for recorded in step_events(number, **how)]


def all_to_all(rank: int, computes: list[float], steps: int = 8, *, names_it: bool = True) -> list[Event]:
    """The trace of a recommendation model's rank: each step has two all-to-alls and an all-reduce, with old names.

    Each begins when this rank has computed, and ends for all when the last rank has: `computes` are shares of a step of
    1,000 µs, with a third of it before each collective.
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


GROUPS = {"0": ("default_pg", (0, 1, 2, 3)), "1": ("TENSOR", (0, 1)), "2": ("TENSOR", (2, 3))}
Reached = Mapping[str, tuple[int, int]]  # by group: the last collective enqueued, and the last one completed


def dump(rank: int, reached: Reached, *, keeps_ended: bool = False, kind: str = "all_reduce") -> dict[str, Any]:
    """A dump by a rank that got this far in its groups; a ring may keep completed operations, or only pending ones."""
    own = [name for name, (_, ranks) in GROUPS.items() if rank in ranks]
    local = {name: str(number) for number, name in enumerate(own)}
    entries = [
        {
            "process_group": (name, GROUPS[name][0]),
            "pg_id": int(local[name]),
            "collective_seq_id": number,
            "profiling_name": f"nccl:{kind}",
            "state": "completed" if number <= ended else "scheduled",
            "is_p2p": False,
        }
        for name, (enqueued, ended) in reached.items()
        for number in range(ended - 1 if keeps_ended else ended + 1, enqueued + 1)
    ]
    return {
        "version": "2.9",
        "pg_config": {
            name: {"name": name, "desc": GROUPS[name][0], "ranks": str(list(GROUPS[name][1]))} for name in own
        },
        "pg_status": {
            local[name]: {"last_enqueued_collective": enqueued, "last_completed_collective": ended}
            for name, (enqueued, ended) in reached.items()
        },
        "entries": entries,
    }


Sized = tuple[str, tuple[int, ...]]  # an operation and its input's shape


def calling(rank: int, calls: Sequence[Sized], *, ended: int, is_cut: bool = False, **of_each: Any) -> dict[str, Any]:
    """A dump by a rank with these calls in the group of all, some completed; `is_cut`: earlier ones are missing."""
    entries = [
        {
            "record_id": number - 1 + 7 * is_cut,
            "process_group": ("0", "default_pg"),
            "pg_id": 0,
            "collective_seq_id": number,
            "profiling_name": f"nccl:{name}",
            "state": "completed" if number <= ended else "scheduled",
            "is_p2p": False,
            "time_created_ns": (1_772_352_000 + number) * 10**9,
            "input_sizes": [list(shape)],
            "input_dtypes": ["Float"],
            **of_each,
        }
        for number, (name, shape) in enumerate(calls, 1)
    ]
    return {**dump(rank, {"0": (len(calls), ended)}), "entries": entries}


def differing(ranks: Sequence[dict[str, Any]]) -> TrainingRun:
    """The run with these dumps, from rank 0 on."""
    with TemporaryDirectory() as folder:
        for rank, recording in enumerate(ranks):
            (Path(folder) / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(recording))
        return read_run([folder])


def dumped(reached: Mapping[int, Reached]) -> TrainingRun:
    """The same in a temporary folder."""
    with TemporaryDirectory() as folder:
        return hanging(Path(folder), reached)


def hanging(
    folder: Path, reached: Mapping[int, Reached], *, keeps_ended: bool = False, kind: str = "all_reduce"
) -> TrainingRun:
    """The run whose ranks got this far; a rank without an entry has left no dump."""
    for rank, progress in reached.items():
        recording = pickle.dumps(dump(rank, progress, keeps_ended=keeps_ended, kind=kind))
        (folder / f"nccl_trace_rank_{rank}").write_bytes(recording)
    return read_run([str(folder)])
