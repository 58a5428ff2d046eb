"""What connects GPUs, and whether it is up: NVLink and PCIe."""

from __future__ import annotations

import pytest

from clusterproof.plugins.facts.field import readings
from clusterproof.plugins.facts.gpu import Gpu
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import Incomplete, concern, incomplete, not_applicable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.preflight,
    pytest.mark.prolog,
    pytest.mark.hyperpod_node_debugger("G"),
]

BUSY_PERCENT = 50  # an idle GPU lowers its PCIe generation to save power; a busy one does not


@pytest.mark.ami
@evidence("nvidia-smi nvlink -s")
def test_nvlink_active(gpu: Gpu, node: Node) -> None:
    """NVLinks are down.

    Every GPU of a type has the same number of links, and all must be up: with one down, collectives inside the node are
    slow or fail.

    Remedy: Reset the GPU or reboot the node. If a link stays down, replace the node.
    """
    expected = node.expected("nvlinks")
    if expected == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink")
    if gpu.is_partitioned:
        not_applicable("the driver does not tell NVLink states while MIG is on")
    states = gpu.nvlink_states
    down = ", ".join(str(link) for link, is_active in enumerate(states) if is_active is False)
    assert not down, f"NVLink {down} inactive; expected {expected} active links"
    if None in states:
        incomplete(f"NVLink {states.index(None)} could not be read; expected {expected} active links")
    assert len(states) >= expected, f"{len(states)} NVLinks; expected {expected} active links"


@evidence("nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max,pcie.link.gen.current --format=csv")
def test_pcie_link(gpu: Gpu, node: Node) -> None:
    """The PCIe link is narrower or slower than it can be.

    A link that lost lanes halves what moves between host, network and GPU. Some types wire fewer lanes than the GPU
    has; the catalogue knows of them. The generation is judged on a busy GPU only: an idle one lowers it to save power.

    Remedy: Reboot the node. If the link stays narrow, replace the node.
    """
    width, most = gpu.pcie_width, min(gpu.pcie_width_max, lanes_of_type(node) or gpu.pcie_width_max)
    may_be_wired_so = width < most and is_wired_so(node, width)
    assert width >= most or may_be_wired_so, f"PCIe x{width}; expected x{most}"
    told, _ = readings(gpu, "utilization_percent")
    if told.get("utilization_percent", 0) >= BUSY_PERCENT:
        assert gpu.pcie_gen >= gpu.pcie_gen_max, (
            f"PCIe generation {gpu.pcie_gen} under load; expected {gpu.pcie_gen_max}"
        )
    if may_be_wired_so:
        concern(f"PCIe x{width} on every GPU; expected x{most}, unless the machine wires no more")


def lanes_of_type(node: Node) -> int | None:
    """How many lanes the instance type wires to each GPU, where that is known to be fewer than the GPU has."""
    try:
        return node.type.pcie_lanes
    except Incomplete:
        return None


def is_wired_so(node: Node, width: int) -> bool:
    """Whether every GPU of the node has a link as narrow, and they are cards: boards with NVLink have all lanes."""
    widths = {readings(gpu, "pcie_width")[0].get("pcie_width") for gpu in node.gpus}
    return widths == {width} and has_no_nvlink(node)


def has_no_nvlink(node: Node) -> bool:
    """Whether neither its type nor any GPU has NVLinks."""
    try:
        return node.expected("nvlinks") == 0
    except Incomplete:
        return not any(readings(gpu, "nvlinks")[0] for gpu in node.gpus)
