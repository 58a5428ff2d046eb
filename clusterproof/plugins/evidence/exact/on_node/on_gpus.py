"""Each GPU in a process of its own. Runs in a Python that has PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from clusterproof.plugins.evidence.exact.on_node.processes import forked

Found = Iterator["dict[str, Any]"]  # all that is known so far, again and again


def on_each_gpu(request: dict[str, Any], compute: Callable[[int], Found]) -> list[dict[str, Any]]:
    """What `compute` finds on each GPU, by its number, with the GPU's name, place and SMs; or why it found no more."""

    def job(gpu: int) -> Callable[[], Found]:
        return lambda: _computed(gpu, compute)

    return forked([job(gpu) for gpu in range(request["gpus"])], request["within_s"])


def _computed(gpu: int, compute: Callable[[int], Found]) -> Found:
    if gpu >= count():
        yield {"error": f"PyTorch finds no more GPUs than {count()}"}
        return
    torch.cuda.set_device(gpu)
    about = torch.cuda.get_device_properties(gpu)
    own = {"name": about.name, "sms": about.multi_processor_count, "address": address_of(about)}
    for found in compute(gpu):
        yield {**own, **found}


def count() -> int:
    """How many GPUs PyTorch finds. Raises what it says where it has none: its own words name the cause."""
    torch.cuda.init()
    return int(torch.cuda.device_count())


def address_of(about: Any) -> str:
    """Where a GPU is on the PCI bus; empty in a PyTorch that does not say it."""
    domain, bus, device = (getattr(about, f"pci_{part}_id", -1) for part in ("domain", "bus", "device"))
    return "" if min(domain, bus, device) < 0 else f"{domain:04x}:{bus:02x}:{device:02x}.0"
