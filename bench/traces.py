"""Reading a 52 MB trace of PyTorch's profiler, beside `json.load`: seconds and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import Figure

MB = 52
TIMES = 5
PART = 1_000  # events written at once
JSON_LOAD = ("import json", "json.load(open(sys.argv[1]))")
OURS = ("from clusterproof.plugins.training_run.reading import read_run", "read_run(sys.argv[1:])")
# The process reports its own peak: wait4's is never below the peak of the process that started it.
MEASURED = """
import re, sys, time
{imported}
began = time.process_time()
{read}
seconds = time.process_time() - began
print(seconds, re.search("VmHWM:\\s+([0-9]+)", open("/proc/self/status").read())[1])
"""


def reading() -> Iterator[Figure]:
    """CPU seconds of reading and peak memory above a bare interpreter's, each in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        events = _write(path)
        (ours_s, ours), (theirs_s, theirs) = _cost(*OURS, path), _cost(*JSON_LOAD, path)
        _, bare = _cost("", "", path)
    what = f"{events:,} events, {MB} MB"
    seconds = f"{what}: {ours_s:.2f} s : {theirs_s:.2f} s"
    yield Figure("trace_s_of_json_load", round(ours_s / theirs_s, 2), "1", seconds)
    memory = f"{what}: {ours - bare:.0f} MiB, our modules among them, : {theirs - bare:.0f} MiB"
    yield Figure("trace_memory_of_json_load", round((ours - bare) / (theirs - bare), 3), "0.125", memory)


def _cost(imported: str, read: str, path: Path) -> tuple[float, float]:
    """Median seconds and MiB over some processes."""
    code = MEASURED.format(imported=imported, read=read)
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(TIMES)
    ]
    return median(float(seconds) for seconds, _ in outputs), median(int(peak) / 1024 for _, peak in outputs)


def _write(path: Path) -> int:
    """Write a trace as PyTorch does, with three operators to each kernel; returns the number of events."""
    events, size = 0, 0
    with path.open("w", encoding="utf-8") as file:
        size += file.write('{\n  "schemaVersion": 1,\n  "distributedInfo": {"rank": 0},\n  "traceEvents": [\n')
        while size < MB * 1_000_000:
            text = ",\n".join(json.dumps(_event(number), indent=1) for number in range(events, events + PART))
            size += file.write(f"{text},\n")
            events += PART
        file.write(f'{json.dumps(_step(events // 10_000))}\n  ],\n  "traceName": "trace.json"\n}}\n')
    return events


def _event(number: int) -> dict[str, Any]:
    if number % 10_000 == 0:
        return _step(number // 10_000)
    is_kernel = number % 4 == 3
    return {
        "ph": "X",
        "cat": "kernel" if is_kernel else "cpu_op",
        "name": f"ampere_bf16_s16816gemm_{number % 40}" if is_kernel else f"aten::op_{number % 200}",
        "pid": 0,
        "tid": 7,
        "ts": 100.5 * number,
        "dur": 50.25,
        "args": {
            "External id": number,
            "Record function id": 0,
            "Sequence number": number,
            "Fwd thread id": 0,
            "Ev Idx": number,
        },
    }


def _step(number: int) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": 1_005_000 * number, "dur": 1e6}
