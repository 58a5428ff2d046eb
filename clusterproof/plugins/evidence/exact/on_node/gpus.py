"""Exact products on every GPU at once. Runs in a Python that has PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch

from clusterproof.plugins.evidence.exact.on_node.examine import examine
from clusterproof.plugins.evidence.exact.on_node.on_gpus import on_each_gpu
from clusterproof.plugins.evidence.exact.on_node.operands import of_settings

SIZES = (4096, 2048, 1024, 512)  # rows and columns: the largest has a block of threads for each of any GPU's SMs
BYTES_EACH = 48  # of GPU memory for each element of a matrix of that size, at most
LONGEST = 8192  # terms of a sum


def main(request: dict[str, Any]) -> None:
    """Print what each GPU answers, as one JSON object."""
    answers = on_each_gpu(request, lambda gpu: found(gpu, request))
    print(json.dumps({"torch": torch.__version__, "gpus": answers}))  # noqa: T201


def found(gpu: int, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is wrong with the products of one GPU, of matrices as large as its memory has room for."""
    free, _ = torch.cuda.mem_get_info(gpu)
    size = next((size for size in SIZES if BYTES_EACH * size * LONGEST <= free), 0)
    if not size:
        yield {"error": f"only {free >> 20} MiB of its memory are free"}
        return
    kinds = of_settings(request["kinds"])
    yield from examine(f"cuda:{gpu}", kinds, size, LONGEST, request["budget_s"], request["seed"] + gpu)
