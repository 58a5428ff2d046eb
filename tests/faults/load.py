"""Hardware that is slow, wrong or unresponsive under load, and nodes that cannot be measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterproof.plugins.core.verdict import Verdict
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.image import NodeImage
from tests.testbed.load import (
    DCGM,
    NCCL_TESTS,
    loadable_p5,
    with_speed,
    without_torch,
)
from tests.testbed.node import with_file, without_file
from tests.testbed.outputs import dcgm_json

BANDWIDTH, GEMM, BUSBW = "gpu.gpu_bandwidth", "gpu.gpu_gemm", "gpu.node_busbw"
DIAG, NCCOM, LOOPBACK, FILES = "gpu.dcgm_diag", "neuron.nccom", "network.efa_loopback", "storage.fs_bandwidth"
COLLECTOR = {
    BANDWIDTH: "gpu_bandwidth",
    GEMM: "gpu_gemm",
    BUSBW: "node_busbw",
    DIAG: "dcgm_diag",
    NCCOM: "nccom",
    LOOPBACK: "efa_loopback",
    FILES: "fs_bandwidth",
}
HOST_TO_GPU, GPU_TO_GPU = "host_to_device_memcpy_ce", "device_to_device_memcpy_read_ce"


def slow(*lines: str) -> Callable[[NodeImage], NodeImage]:
    """Set the hardware's behaviour with these lines."""
    return lambda image: with_speed(image, *lines)


def every_gpu(line: str) -> Callable[[NodeImage], NodeImage]:
    """The same line for all GPUs: `gemm {} 600`."""
    return slow(*(line.format(gpu) for gpu in range(8)))


def diagnosed(**result: object) -> Callable[[NodeImage], NodeImage]:
    """DCGM reports this about GPU 3's memory."""
    return lambda image: with_file(image, DCGM, dcgm_json(**result))  # type: ignore[arg-type]


def without(*paths: str) -> Callable[[NodeImage], NodeImage]:
    """The node lacks these files."""

    def put(image: NodeImage) -> NodeImage:
        for path in paths:
            image = without_file(image, path)
        return image

    return put


def copying_by_torch(image: NodeImage) -> NodeImage:
    """The node has no nvbandwidth, and one GPU copies slowly."""
    return with_speed(without_file(image, "/usr/bin/nvbandwidth"), "copy 4 41")


def fault(
    name: str,
    put: Callable[[NodeImage], NodeImage],
    check: str,
    verdict: Verdict,
    message: str,
    more: Mapping[str, Verdict] = {},
    base: Callable[[], NodeImage] = loadable_p5,
) -> Fault:
    """A fault that appears under one load."""
    return Fault(name, put, {check: verdict, **more}, message, base=base, loads=(COLLECTOR[check],), occasion="perf")


FAULTS = (
    fault(
        "load: a GPU that gets half of the host's data",
        slow(f"{HOST_TO_GPU} 3 27.1"),
        BANDWIDTH,
        FAIL,
        "GPU 3, host to GPU by nvbandwidth: 27.1 GB/s, 51 % below the best GPU of the node (55.4)",
    ),
    fault(
        "load: a GPU that is a little slow to write to the host",
        slow("device_to_host_memcpy_ce 0 51.5"),
        BANDWIDTH,
        CONCERN,
        "GPU 0, GPU to host by nvbandwidth: 51.5 GB/s, 8 % below the best GPU of the node (55.8)",
    ),
    fault(
        "load: a GPU whose NVLinks are slow",
        slow(f"{GPU_TO_GPU} 6 290"),
        BANDWIDTH,
        FAIL,
        "GPU 6, GPU to GPU by nvbandwidth: 290 GB/s",
    ),
    fault(
        "load: a node whose GPUs all get less data than those of the others",
        every_gpu(HOST_TO_GPU + " {} 48.4"),
        BANDWIDTH,
        FAIL,
        "GPU 0, host to GPU by nvbandwidth: 48.4 GB/s, 12 % below the median of 4 nodes (55.3)",
    ),
    fault(
        "load: a GPU that copies slowly, by PyTorch",
        copying_by_torch,
        BANDWIDTH,
        FAIL,
        "GPU 4, host to GPU by PyTorch: 41 GB/s",
    ),
    fault(
        "load: a GPU that nvbandwidth does not find",
        slow("nvbandwidth gpus 7"),
        BANDWIDTH,
        INCOMPLETE,
        "host to GPU by nvbandwidth: 7 of 8 GPUs were measured; expected all of them",
    ),
    fault(
        "load: a GPU that cannot copy",
        slow("host_to_device_memcpy_ce fails"),
        BANDWIDTH,
        INCOMPLETE,
        "nvbandwidth -t host_to_device_memcpy_ce ended with 1: ",
    ),
    fault(
        "load: a node with neither nvbandwidth nor PyTorch",
        lambda image: without_torch(without_file(image, "/usr/bin/nvbandwidth")),
        BANDWIDTH,
        INCOMPLETE,
        "no nvbandwidth on PATH",
    ),
    fault(
        "load: a GPU that computes slowly",
        slow("gemm 5 512"),
        GEMM,
        FAIL,
        "GPU 5, bfloat16 products of 8192 × 8192: 512 TFLOP/s, 26 % below the best GPU of the node (690)",
    ),
    fault(
        "load: a GPU that computes a little slowly",
        slow("gemm 1 640"),
        GEMM,
        CONCERN,
        "GPU 1, bfloat16 products of 8192 × 8192: 640 TFLOP/s, 7 % below",
    ),
    fault(
        "load: a node that computes more slowly than the others",
        every_gpu("gemm {} 610"),
        GEMM,
        FAIL,
        "610 TFLOP/s, 11 % below the median of 4 nodes",
    ),
    fault(
        "load: a GPU that PyTorch does not find",
        slow("torch gpus 7"),
        GEMM,
        INCOMPLETE,
        "7 of 8 GPUs were measured; expected all of them",
    ),
    fault("load: a node without PyTorch", without_torch, GEMM, INCOMPLETE, "has PyTorch"),
    fault(
        "load: a PyTorch that sees no GPU",
        slow("torch blind"),
        GEMM,
        INCOMPLETE,
        "torch.cuda.is_available() is False",
    ),
    fault(
        "load: an all-reduce with wrong values",
        slow("all_reduce wrong 3"),
        BUSBW,
        FAIL,
        "6 wrong values at 1073741824 bytes",
    ),
    fault(
        "load: an all-reduce that is slower than on the other nodes",
        slow("all_reduce busbw 362"),
        BUSBW,
        FAIL,
        "all-reduce of 8 GiB: 360.3 GB/s, 24 % below the median of 4 nodes",
    ),
    fault(
        "load: an all-reduce that is a little slower",
        slow("all_reduce busbw 447"),
        BUSBW,
        CONCERN,
        "7 % below the median of 4 nodes",
    ),
    fault(
        "load: an all-reduce that does not start",
        slow("all_reduce fails"),
        BUSBW,
        INCOMPLETE,
        "all_reduce_perf measured nothing (exit status 3): gpu001: Test NCCL failure common.cu:1279",
    ),
    fault("load: a node without nccl-tests", without(NCCL_TESTS), BUSBW, INCOMPLETE, "no all_reduce_perf on PATH"),
    fault(
        "load: DCGM finds a GPU to isolate",
        diagnosed(status="Fail", severity=2, warning="row remapping has failed"),
        DIAG,
        FAIL,
        "memory on GPU 3: fail (isolate: take the GPU out of use, and replace the node): row remapping has failed",
    ),
    fault(
        "load: DCGM warns",
        diagnosed(status="Warn", severity=1, warning="NVLink errors"),
        DIAG,
        CONCERN,
        "memory on GPU 3: warn",
    ),
    fault(
        "load: DCGM passes every test and fails",
        slow("dcgm exit 205"),
        DIAG,
        INCOMPLETE,
        "every test passed, but dcgmi exited with status 205; expected 0",
    ),
    fault(
        "load: DCGM's host engine is down",
        lambda image: with_file(with_speed(image, "dcgm exit 255"), DCGM, "Error: unable to connect to localhost\n"),
        DIAG,
        INCOMPLETE,
        "dcgmi diag -r 2 -j ended with 255: Error: unable to connect to localhost",
    ),
    fault(
        "load: a diagnostic of DCGM that hangs",
        slow("dcgm hangs"),
        DIAG,
        INCOMPLETE,
        "dcgm_diag: did not answer in time (dcgmi diag -r 2 -j does not end within 3 s)",
        {"node.evidence_complete": CONCERN},
    ),
)
