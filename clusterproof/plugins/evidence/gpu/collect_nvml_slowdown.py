"""How long the hardware has slowed a GPU down, at two moments: that it does at one of them proves little."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pynvml

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.gpu.collect_nvml_call import answer_to, fields

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    from typing import Any

BY_HARDWARE = 0x8 | 0x40 | 0x80  # of the clocks event reasons
# Fields that count nanoseconds: slowed down by heat, and by hardware for heat or power brake as drivers of CUDA 12 and
# of CUDA 13 number them. What a driver has under the number of others is a setting, and does not run.
COUNTERS = (75, 252, 253, 270, 271)
APART_S = 0.5


def watch(node: Node, gpus: Iterable[dict[str, Any]]) -> None:
    """Add to each GPU that is slowed down what it reports at two moments; the others cost nothing."""
    slowed = [gpu for gpu in gpus if _is_slowed(gpu.get("clocks_event_reasons"))]
    for gpu in slowed:
        gpu["slowdown"] = [moment(node, gpu["index"])]
    if slowed:
        time.sleep(APART_S)
    for gpu in slowed:
        gpu["slowdown"].append(moment(node, gpu["index"]))


def _is_slowed(reasons: object) -> bool:
    return isinstance(reasons, int) and bool(reasons & BY_HARDWARE)


def moment(node: Node, index: int) -> dict[str, object]:
    """What its slowdown counters show now."""
    node.at(f"GPU {index}: slowdown")
    handle = answer_to(pynvml.nvmlDeviceGetHandleByIndex, index)
    counters = answer_to(fields, handle, COUNTERS)
    return {
        "at_s": round(time.monotonic(), 4),
        "counters_ns": dict(zip(map(str, COUNTERS), counters)) if isinstance(counters, tuple) else counters,
    }
