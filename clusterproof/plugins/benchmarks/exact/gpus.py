"""Exact products on every GPU at once. Runs in a Python that has PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from clusterproof.plugins.benchmarks.exact.examine import examine
from clusterproof.plugins.benchmarks.exact.operands import of_settings
from clusterproof.plugins.benchmarks.exact.processes import forked

SIZES = (4096, 2048, 1024, 512)  # rows and columns: the largest has a block of threads for each of any GPU's SMs
BYTES_EACH = 48  # of GPU memory for each element of a matrix of that size, at most
LONGEST = 8192  # terms of a sum


def main(request: dict[str, Any]) -> None:
    """Print what each GPU answers, as one JSON object."""

    def job(gpu: int) -> Callable[[], dict[str, Any]]:
        return lambda: measured(gpu, request)

    answers = forked([job(gpu) for gpu in range(request["gpus"])], request["within_s"])
    print(json.dumps({"torch": torch.__version__, "gpus": answers}))  # noqa: T201


def measured(gpu: int, request: dict[str, Any]) -> dict[str, Any]:
    """What one GPU computes, in a process of its own."""
    if not torch.cuda.is_available():
        return {"error": "PyTorch finds no GPU: torch.cuda.is_available() is False"}
    if gpu >= torch.cuda.device_count():
        return {"error": f"PyTorch finds {torch.cuda.device_count()} GPUs"}
    torch.cuda.set_device(gpu)
    free, _ = torch.cuda.mem_get_info(gpu)
    size = next((size for size in SIZES if BYTES_EACH * size * LONGEST <= free), 0)
    if not size:
        return {"error": f"{free >> 20} MiB of its memory are free"}
    properties = torch.cuda.get_device_properties(gpu)
    kinds = of_settings(request["kinds"])
    found = examine(f"cuda:{gpu}", kinds, size, LONGEST, request["budget_s"], request["seed"] + gpu)
    return {"name": properties.name, "sms": properties.multi_processor_count, **found}
