"""Exact products on all GPUs, each in its own process. Runs in a Python that has PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

from clusterproof.plugins.evidence.exact.on_node.examine import examine
from clusterproof.plugins.evidence.exact.on_node.operands import of_settings
from clusterproof.plugins.evidence.exact.on_node.processes import forked
from clusterproof.plugins.evidence.exact.on_node.products import address_of

TYPE_CHECKING = False  # Python 3.8 cannot subscript what is in collections.abc
if TYPE_CHECKING:
    Found = Iterator[dict[str, Any]]  # all results so far, repeatedly

SIZES = (4096, 2048, 1024, 512)  # rows and columns: the largest has a thread block for each SM of any GPU
BYTES_EACH = 48  # maximum GPU memory per element of a matrix of that size
LONGEST = 8192  # terms of a sum


def main(request: dict[str, Any]) -> None:
    """Print the answers of the GPUs, as one JSON object."""
    answers = on_each_gpu(request, lambda gpu: found(gpu, request))
    print(json.dumps({"torch": torch.__version__, "gpus": answers}))  # noqa: T201


def found(gpu: int, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Errors in the products of one GPU, with matrices as large as its memory allows."""
    free, _ = torch.cuda.mem_get_info(gpu)
    size = next((size for size in SIZES if BYTES_EACH * size * LONGEST <= free), 0)
    if not size:
        yield {"error": f"only {free >> 20} MiB of its memory are free"}
        return
    kinds = of_settings(request["kinds"])
    yield from examine(f"cuda:{gpu}", kinds, size, LONGEST, request["budget_s"], request["seed"] + gpu)


def on_each_gpu(request: dict[str, Any], compute: Callable[[int], Found]) -> list[dict[str, Any]]:
    """The results of `compute` on each GPU, by number, with its name, address and SMs; or why there are no more."""

    def job(gpu: int) -> Callable[[], Found]:
        return lambda: _computed(gpu, compute)

    return forked([job(gpu) for gpu in range(request["gpus"])], request["within_s"])


def _computed(gpu: int, compute: Callable[[int], Found]) -> Found:
    torch.cuda.init()  # reports why there are none
    if gpu >= torch.cuda.device_count():
        yield {"error": f"PyTorch finds no more GPUs than {torch.cuda.device_count()}"}
        return
    torch.cuda.set_device(gpu)
    about = torch.cuda.get_device_properties(gpu)
    own = {"name": about.name, "sms": about.multi_processor_count, "address": address_of(gpu)}
    for report in compute(gpu):
        yield {**own, **report}
