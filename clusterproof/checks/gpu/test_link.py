"""What connects GPUs, and whether it is up: NVLink and PCIe."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.prolog,
    mark.hyperpod_node_debugger("G"),
]


@mark.ami
@evidence("nvidia-smi nvlink -s")
def test_nvlink_active(gpu: Gpu, node: Node) -> None:
    """Active NVLinks.

    Every GPU of a type has the same number of links, and all of them must be up: with one down, collectives inside the
    node are slow or fail. If it is not known how many there should be, a link that is down among others, or fewer links
    than the node's other GPUs have, is still a fault.

    Remedy (reset or reboot): Reset the GPU or reboot the node. If a link stays down, replace the node.
    """
    if node.nvlinks_due == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink")
    if gpu.is_partitioned:
        not_applicable("the driver does not report NVLink states while MIG is on")
    states = gpu.nvlink_states
    if node.nvlinks_due is None:
        evaluate_links_by_peers(gpu, node)
    due = node.expected("nvlinks")
    active = states.count(True)
    if active >= due:
        return
    if active + states.count(None) >= due:
        incomplete(f"NVLink {states.index(None)} could not be read; expected {due} active links")
    assert False not in states, f"NVLink {inactive(states)} inactive; expected {due} active links"
    raise AssertionError(f"{len(states)} NVLinks; expected {due} active links")


def evaluate_links_by_peers(gpu: Gpu, node: Node) -> None:
    """The verdict on a GPU's links where it is unknown how many are due; none where they show no fault."""
    states, of_peers = gpu.nvlink_states, links_of_peers(gpu, node)
    is_dead = bool(states) and not of_peers and set(states) == {False}
    concern_if(is_dead, f"all {len(states)} NVLinks inactive; expected active ones, unless the machine wires none")
    active, most = states.count(True), max((peer.count(True) for peer in of_peers), default=0)
    assert active + states.count(None) >= most, f"{active} active NVLinks; expected {most}, as on another GPU"
    last = max((link for link, is_active in enumerate(states) if is_active), default=0)
    down = inactive(states[:last])
    is_wired_so = bool(of_peers) and all(peer == states for peer in of_peers)
    fail_if(
        down and not is_wired_so, f"NVLink {down} inactive beside {active} active ones; expected all of them active"
    )
    unless = "unless the machine wires no more"
    concern_if(down and is_wired_so, f"NVLink {down} inactive on every GPU; expected active, {unless}")


def links_of_peers(gpu: Gpu, node: Node) -> list[tuple[bool | None, ...]]:
    """The links of the node's other GPUs of the same model, as far as they report them."""
    peers = [peer for peer in node.gpus if peer.index != gpu.index and is_alike(peer, gpu)]
    return [data["nvlink_states"] for data, _ in (readings(peer, "nvlink_states") for peer in peers) if data]


def is_alike(one: Gpu, other: Gpu) -> bool:
    """Whether two GPUs are of one model, as far as they report it."""
    names = {data["name"] for data, _ in (readings(gpu, "name") for gpu in (one, other)) if data}
    return len(names) < 2


def inactive(states: Iterable[bool | None]) -> str:
    """The links that are down: `5, 7`."""
    return ", ".join(str(link) for link, is_active in enumerate(states) if is_active is False)


@evidence("nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max,pcie.link.gen.current --format=csv")
def test_pcie_link(gpu: Gpu, node: Node) -> None:
    """GPU PCIe link.

    A link that lost lanes halves the throughput between host, network and GPU. Some types wire fewer lanes than the GPU
    has; the catalogue lists them. The generation is evaluated on a busy GPU only: an idle one lowers it to save power.
    A link's maximum is what its slot and its GPU negotiated at boot: it should be the same on all GPUs.

    Remedy (reset or reboot): Reboot the node. If the link stays narrow, replace the node.
    """
    with part:
        width, most = gpu.pcie_width, min(gpu.pcie_width_max, lanes_of_type(node) or gpu.pcie_width_max)
        may_be_wired_so = width < most and is_wired_so(node, width)
        fail_if(width < most and not may_be_wired_so, f"PCIe x{width}; expected x{most}")
        unless = "unless the machine wires no more"
        concern_if(may_be_wired_so, f"PCIe x{width} on every GPU; expected x{most}, {unless}")
    data, _ = readings(gpu, "utilization_percent")
    if data.get("utilization_percent", 0) >= node.threshold("gpu.busy_percent"):
        with part:
            own, best = gpu.pcie_gen, gpu.pcie_gen_max
            fail_if(own < best, f"PCIe generation {own} under load; expected {best}")
    evaluate_most_by_peers(gpu, node)


def evaluate_most_by_peers(gpu: Gpu, node: Node) -> None:
    """The verdict on a link that can do less at most than those of the node's other GPUs of the model."""
    alike = [one for one in node.gpus if is_alike(one, gpu)]
    for name, words in (("pcie_gen_max", "PCIe generation "), ("pcie_width_max", "PCIe x")):
        values = [data[name] for data, _ in (readings(one, name) for one in alike) if data]
        own, most = readings(gpu, name)[0].get(name), max(values, default=0)
        if own is None or own >= most:
            continue
        message = f"{words}{own} at most; expected {most}, as other GPUs of the node have"
        is_odd = values.count(most) * 2 > len(values)
        fail_if(is_odd, message)
        concern_if(not is_odd, message)


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
