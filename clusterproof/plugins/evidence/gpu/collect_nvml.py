"""The GPUs as the driver reports them: libnvidia-ml.so.1 through nvidia-ml-py."""

from __future__ import annotations

import ctypes
import os
import time

import pynvml

from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.agent.trust import distrust
from clusterproof.plugins.evidence.gpu.collect_nvml_call import answer_to
from clusterproof.plugins.evidence.gpu.collect_nvml_gpu import gpu
from clusterproof.plugins.evidence.gpu.collect_nvml_slowdown import watch
from clusterproof.plugins.evidence.processes.collect_whose import daemon_users

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


def read(node: Node) -> object:
    """The driver and every GPU; a value that cannot be read is an error in its place."""
    load(node)
    node.at("nvmlInit")
    start = time.monotonic()
    init = answer_to(pynvml.nvmlInit)
    init_s = round(time.monotonic() - start, 4)
    if init:
        return {"init": init, "init_s": init_s}
    node.at("nvmlDeviceGetCount")
    count = answer_to(pynvml.nvmlDeviceGetCount)
    gpus = [gpu(node, index) for index in range(count if isinstance(count, int) else 0)]
    watch(node, gpus)
    return {
        "init": None,
        "init_s": init_s,
        "driver": answer_to(pynvml.nvmlSystemGetDriverVersion),
        "cuda": answer_to(pynvml.nvmlSystemGetCudaDriverVersion_v2),
        "count": count,
        "hidden": _hidden(node, count),
        "gpus": gpus,
        "daemon_users": sorted(daemon_users(node)),
    }


def _hidden(node: Node, count: object) -> list[str]:
    """The GPUs' device files that this process may not open, where NVML counts fewer than there are files.

    A device cgroup hides a GPU so: of a Slurm step or a container that was not given it.
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
            continue  # it fails in the driver: that is no matter of permission
    return hidden


def load(node: Node) -> None:
    """Load the driver's library, so that pynvml finds it loaded. Raises Absent, Broke."""
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
