"""GPUDirect RDMA: what lets network devices reach the memory of GPUs."""

from __future__ import annotations

import re

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

PROPRIETARY = "P"  # in a kernel module's taint


@evidence("lsmod | grep -E 'nvidia_peermem|gdrdrv'; cat /sys/module/nvidia/taint; uname -r")
def test_peermem(node: Node) -> None:
    """GPUDirect RDMA kernel support.

    Without it, everything the network sends and receives is copied through host memory. It needs nvidia_peermem, or a
    kernel with DMA-BUF and NVIDIA's open kernel modules; gdrcopy's gdrdrv makes small messages fast.

    Remedy (fix configuration): Load nvidia_peermem, or install the open kernel modules; install gdrcopy and load
    gdrdrv.
    """
    if node.expected("efa") == 0:
        not_applicable(f"{node.type_name or 'this node'} has no EFA device")
    if not node.type.gdr:
        not_applicable(f"the catalogue knows of no GPUDirect RDMA on {node.type_name}")
    if "nvidia_peermem" not in node.modules:
        evaluate_dma_buf(node)
    concern_if("gdrdrv" not in node.modules, "gdrdrv is not loaded; expected on a node with EFA and GPUs")


def evaluate_dma_buf(node: Node) -> None:
    """A concern where GPU memory cannot be handed to RDMA devices as DMA-BUF, for the kernel or for the module."""
    kernel, module, can = "a kernel of unknown version", "an unknown", []
    with part:
        can.append(has_dma_buf(node))
        kernel = f"kernel {node.boot.kernel[:40]}"
    with part:
        can.append(is_open(node))
        module = "the open" if can[-1] else "a proprietary"
    words = f"no DMA-BUF with {kernel} and {module} NVIDIA module; expected one of the two"
    concern_if(not all(can), f"nvidia_peermem is not loaded, and {words}")


def has_dma_buf(node: Node) -> bool:
    """Whether the kernel has DMA-BUF."""
    version = re.match(r"(\d{1,4})\.(\d{1,4})", node.boot.kernel)
    if not version:
        incomplete(f"the kernel calls itself {node.boot.kernel[:40]!r}; expected a version")
    least = (node.threshold("dma_buf.kernel_major"), node.threshold("dma_buf.kernel_minor"))
    return (int(version[1]), int(version[2])) >= least


def is_open(node: Node) -> bool:
    """Whether NVIDIA's open kernel module is loaded. Raises Incomplete where none is."""
    if not node.nvidia_taint:
        incomplete("no NVIDIA kernel module is loaded, or it does not report its taint; expected a module")
    return PROPRIETARY not in node.nvidia_taint
