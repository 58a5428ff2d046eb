"""Dumps of the Flight Recorder that tests make up: four ranks, in two tensor-parallel groups and in one of all."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clusterproof.plugins.training_run.reading import read_run
from clusterproof.plugins.training_run.run import TrainingRun

GROUPS = {"0": ("default_pg", (0, 1, 2, 3)), "1": ("TENSOR", (0, 1)), "2": ("TENSOR", (2, 3))}
Reached = Mapping[str, tuple[int, int]]  # by group: the last collective enqueued, the last one ended


def dump(rank: int, reached: Reached, *, keeps_ended: bool = False, kind: str = "all_reduce") -> dict[str, Any]:
    """What a rank wrote that has come so far in its groups; a ring may keep what has ended, or only what waits."""
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


Sized = tuple[str, tuple[int, ...]]  # an operation, and the shape of what it is given


def calling(rank: int, calls: Sequence[Sized], *, ended: int, is_cut: bool = False, **of_each: Any) -> dict[str, Any]:
    """What a rank wrote that called these in the group of all, of which some have ended; `is_cut`: not its first."""
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
    """The run of which these are the dumps, from rank 0 on."""
    with TemporaryDirectory() as folder:
        for rank, data in enumerate(ranks):
            (Path(folder) / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(data))
        return read_run([folder])


def dumped(reached: Mapping[int, Reached]) -> TrainingRun:
    """The same without a folder of one's own."""
    with TemporaryDirectory() as folder:
        return hanging(Path(folder), reached)


def hanging(
    folder: Path, reached: Mapping[int, Reached], *, keeps_ended: bool = False, kind: str = "all_reduce"
) -> TrainingRun:
    """The run whose ranks have come so far; who is not there has left no dump."""
    for rank, one in reached.items():
        data = pickle.dumps(dump(rank, one, keeps_ended=keeps_ended, kind=kind))
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    return read_run([str(folder)])
