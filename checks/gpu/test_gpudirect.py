"""GPUDirect RDMA: what lets network devices reach the memory of GPUs."""

from __future__ import annotations

import re

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, incomplete, not_applicable
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

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
    modules = node.modules
    if "nvidia_peermem" not in modules and not has_dma_buf(node):
        concern(
            f"nvidia_peermem is not loaded, and no DMA-BUF with kernel {node.boot.kernel[:40]} and "
            f"{'the open' if is_open(node) else 'a proprietary'} NVIDIA module; expected one of the two"
        )
    if "gdrdrv" not in modules:
        concern("gdrdrv is not loaded; expected on a node with EFA and GPUs")


def has_dma_buf(node: Node) -> bool:
    """Whether GPU memory can be handed to RDMA devices as DMA-BUF."""
    version = re.match(r"(\d{1,4})\.(\d{1,4})", node.boot.kernel)
    if not version:
        incomplete(f"the kernel calls itself {node.boot.kernel[:40]!r}; expected a version")
    least = (node.threshold("dma_buf.kernel_major"), node.threshold("dma_buf.kernel_minor"))
    return is_open(node) and (int(version[1]), int(version[2])) >= least


def is_open(node: Node) -> bool:
    """Whether NVIDIA's open kernel module is loaded. Raises Incomplete where none is."""
    if not node.nvidia_taint:
        incomplete("no NVIDIA kernel module is loaded, or it does not report its taint; expected a module")
    return PROPRIETARY not in node.nvidia_taint
