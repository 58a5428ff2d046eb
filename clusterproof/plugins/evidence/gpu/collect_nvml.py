"""The GPUs according to the driver: libnvidia-ml.so.1 through nvidia-ml-py.

Slowdown counters are read twice, because a slowdown at one moment proves little.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable

import pynvml

from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.agent.trust import distrust
from clusterproof.plugins.evidence.gpu.collect_nvml_call import answer_to, fields
from clusterproof.plugins.evidence.gpu.collect_nvml_gpu import gpu
from clusterproof.plugins.evidence.host.collect_owner import daemon_users

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libnvidia-ml.so.1"
FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
)
BY_HARDWARE = 0x8 | 0x40 | 0x80  # among the clocks event reasons
# Fields that count nanoseconds: thermal slowdown, and hardware thermal or power brake slowdown as numbered by drivers
# for CUDA 12 and CUDA 13. In a driver that uses these numbers differently they are settings, and do not increase.
COUNTERS = (75, 252, 253, 270, 271)
APART_S = 0.5


def read(node: Node) -> object:
    """The driver and every GPU; an unreadable value is replaced by its error."""
    load(node)
    node.at("nvmlInit")
    start = time.monotonic()
    init = answer_to(pynvml.nvmlInit)
    init_s = round(time.monotonic() - start, 4)
    if init:
        return {"init": init, "init_s": init_s}
    node.at("nvmlDeviceGetCount")
    count = answer_to(pynvml.nvmlDeviceGetCount)
    rows = {index: {"index": index} for index in range(count if isinstance(count, int) else 0)}
    driver = {
        "init": None,
        "init_s": init_s,
        "driver": answer_to(pynvml.nvmlSystemGetDriverVersion),
        "cuda": answer_to(pynvml.nvmlSystemGetCudaDriverVersion_v2),
        "count": count,
        "hidden": _hidden(node, count),
        "daemon_users": sorted(daemon_users(node)),
    }
    values = node.each("gpus", rows, lambda index: gpu(node, index), driver)
    add_slowdowns(node, values["gpus"])
    return values


def _hidden(node: Node, count: object) -> list[str]:
    """The GPUs' device files that this process may not open, if NVML counts fewer GPUs than files.

    A device cgroup hides a GPU from a Slurm step or a container to which it was not allocated.
    """
    files = [f"/dev/{name}" for name in node.names("/dev") if name[:6] == "nvidia" and name[6:].isdecimal()]
    if not isinstance(count, int) or count >= len(files):
        return []
    hidden = []
    for file in files:
        try:
            os.close(os.open(node.path(file), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except PermissionError:
            hidden.append(file)
        except OSError:
            continue  # the driver fails: not a matter of permission
    return hidden


def load(node: Node) -> None:
    """Load the driver's library, so that pynvml uses it. Raises Absent, Broke."""
    node.at(LIBRARY)
    failed = ""
    for file in [*([] if node.root else [LIBRARY]), *(f"{folder}/{LIBRARY}" for folder in FOLDERS)]:
        try:
            doubt = "" if file == LIBRARY else distrust(file, node.root)
            if doubt:
                failed = failed or doubt
                continue
            ctypes.CDLL(file if file == LIBRARY else node.path(file))
        except FileNotFoundError:
            continue
        except OSError as problem:
            failed = failed if file == LIBRARY and "No such file" in str(problem) else str(problem)
        else:
            return
    if failed:
        raise Broke(f"{LIBRARY} does not load: {failed}")
    raise Absent(f"no {LIBRARY} where the loader looks or in {', '.join(FOLDERS)}")


def add_slowdowns(node: Node, gpus: Iterable[dict[str, Any]]) -> None:
    """For each GPU that is slowed down, add its counters at two moments; other GPUs cost nothing."""
    slowed = [card for card in gpus if _is_slowed(card.get("clocks_event_reasons"))]
    for card in slowed:
        card["slowdown"] = [slowdown_at(node, card["index"])]
    if slowed:
        time.sleep(APART_S)
    for card in slowed:
        card["slowdown"].append(slowdown_at(node, card["index"]))


def _is_slowed(reasons: object) -> bool:
    return isinstance(reasons, int) and bool(reasons & BY_HARDWARE)


def slowdown_at(node: Node, index: int) -> dict[str, object]:
    """The current slowdown counters."""
    node.at(f"GPU {index}: slowdown")
    handle = answer_to(pynvml.nvmlDeviceGetHandleByIndex, index)
    counters = answer_to(fields, handle, COUNTERS)
    return {
        "at_s": round(time.monotonic(), 4),
        "counters_ns": dict(zip(map(str, COUNTERS), counters)) if isinstance(counters, tuple) else counters,
    }
