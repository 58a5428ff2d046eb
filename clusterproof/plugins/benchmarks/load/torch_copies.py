"""Copies between host and GPUs, and between GPUs. A program of its own, for a Python that has PyTorch."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

BYTES = 256 * 1024 * 1024
COPIES = 8
ROUNDS = 5


def _run_near(gpu: Any, everywhere: set[int]) -> None:
    """Run on the CPUs beside a GPU, so that the host's buffer lies in memory beside it too."""
    os.sched_setaffinity(0, everywhere)
    with contextlib.suppress(AttributeError, OSError, ValueError):
        address = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
        with open(f"/sys/bus/pci/devices/{address}/local_cpulist") as cpulist:
            ranges = [part.split("-") for part in cpulist.read().strip().split(",")]
        local = {cpu for bounds in ranges for cpu in range(int(bounds[0]), int(bounds[-1]) + 1)}
        os.sched_setaffinity(0, (local & everywhere) or everywhere)


def _speeds(cuda: Any, to: Any, source: Any, gpu: int) -> list[float]:
    """GB/s of one copy, round by round, without the first round."""
    speeds = []
    with cuda.device(gpu):
        for _ in range(ROUNDS + 1):
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(COPIES):
                to.copy_(source, non_blocking=True)
            end.record()
            cuda.synchronize(gpu)
            speeds.append(BYTES * COPIES / 1e9 / (begin.elapsed_time(end) / 1000))
    return speeds[1:]


def main() -> None:
    """Print the GB/s of every GPU and direction, round by round, as a JSON object."""
    import torch

    if not torch.cuda.is_available():
        print(json.dumps({"error": "PyTorch finds no GPU: torch.cuda.is_available() is False"}))  # noqa: T201
        return
    gpus = range(torch.cuda.device_count())
    everywhere = os.sched_getaffinity(0)
    data: dict[str, dict[str, list[float]]] = {"host to GPU": {}, "GPU to host": {}, "GPU to GPU": {}}
    buffers = [torch.empty(BYTES, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in gpus]
    for gpu in gpus:
        _run_near(torch.cuda.get_device_properties(gpu), everywhere)
        host = torch.empty(BYTES, dtype=torch.uint8, pin_memory=True)
        data["host to GPU"][str(gpu)] = _speeds(torch.cuda, buffers[gpu], host, gpu)
        data["GPU to host"][str(gpu)] = _speeds(torch.cuda, host, buffers[gpu], gpu)
        del host
    for gpu in gpus:
        for other in gpus:
            if other != gpu:
                data["GPU to GPU"][f"{gpu} {other}"] = _speeds(torch.cuda, buffers[other], buffers[gpu], gpu)
    names = [torch.cuda.get_device_name(gpu) for gpu in gpus]
    print(json.dumps({"torch": torch.__version__, "names": names, "gb_per_s": data}))  # noqa: T201
