"""Each GPU in a process of its own. Runs in a Python that has PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from clusterproof.plugins.evidence.exact.on_node.processes import forked


def on_each_gpu(request: dict[str, Any], compute: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """What `compute` finds on each GPU, by its number, with the GPU's name and SMs; or an error, in their place."""

    def job(gpu: int) -> Callable[[], dict[str, Any]]:
        return lambda: _computed(gpu, compute)

    return forked([job(gpu) for gpu in range(request["gpus"])], request["within_s"])


def _computed(gpu: int, compute: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    if not torch.cuda.is_available():
        return {"error": "PyTorch finds no GPU: torch.cuda.is_available() is False"}
    if gpu >= torch.cuda.device_count():
        return {"error": f"PyTorch finds {torch.cuda.device_count()} GPUs"}
    torch.cuda.set_device(gpu)
    found = compute(gpu)
    if "error" in found:
        return found
    properties = torch.cuda.get_device_properties(gpu)
    return {"name": properties.name, "sms": properties.multi_processor_count, **found}
