"""Measures copies between host and GPUs, and between GPUs, in PyTorch. Run by itself, in a Python that has it."""

from __future__ import annotations

import contextlib
import json
import os

BYTES = 256 * 1024 * 1024
COPIES = 8
ROUNDS = 5


def main() -> None:
    """Print the GB/s of every GPU and direction, round by round, as a JSON object."""
    import torch

    if not torch.cuda.is_available():
        print(json.dumps({"error": "PyTorch finds no GPU: torch.cuda.is_available() is False"}))  # noqa: T201
        return
    gpus = range(torch.cuda.device_count())
    everywhere = os.sched_getaffinity(0)

    def near(gpu: int) -> None:
        """Run on the CPUs next to a GPU, so that the host's buffer is in memory next to it too."""
        os.sched_setaffinity(0, everywhere)
        about = torch.cuda.get_device_properties(gpu)
        with contextlib.suppress(AttributeError, OSError, ValueError):
            address = f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"
            with open(f"/sys/bus/pci/devices/{address}/local_cpulist") as data:
                ends = [part.split("-") for part in data.read().strip().split(",")]
            local = {cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1)}
            os.sched_setaffinity(0, (local & everywhere) or everywhere)

    def speeds(to: object, of: object, gpu: int) -> list[float]:
        """GB/s of one copy in each round, except the first."""
        found = []
        with torch.cuda.device(gpu):
            for _ in range(ROUNDS + 1):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(COPIES):
                    to.copy_(of, non_blocking=True)  # type: ignore[attr-defined]
                end.record()
                torch.cuda.synchronize(gpu)
                found.append(BYTES * COPIES / 1e9 / (begin.elapsed_time(end) / 1000))
        return found[1:]

    data: dict[str, dict[str, list[float]]] = {"host to GPU": {}, "GPU to host": {}, "GPU to GPU": {}}
    buffers = [torch.empty(BYTES, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in gpus]
    for gpu in gpus:
        near(gpu)
        host = torch.empty(BYTES, dtype=torch.uint8, pin_memory=True)
        data["host to GPU"][str(gpu)] = speeds(buffers[gpu], host, gpu)
        data["GPU to host"][str(gpu)] = speeds(host, buffers[gpu], gpu)
        del host
    for gpu in gpus:
        for other in gpus:
            if other != gpu:
                data["GPU to GPU"][f"{gpu} {other}"] = speeds(buffers[other], buffers[gpu], gpu)
    print(json.dumps({"torch": torch.__version__, "gb_per_s": data}))  # noqa: T201
