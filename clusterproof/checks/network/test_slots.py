"""PCIe links and NUMA nodes of EFA, InfiniBand and RoCE devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known, readings, require
from clusterproof.plugins.evidence.gpu.facts_node import rdma_models, unread_rdma_models
from clusterproof.plugins.evidence.group import Values, describe, differing, majority_of
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import MAX_LANES, PciDevice, PciLink

pytestmark = [mark.network, mark.preflight, mark.hyperpod_node_debugger("A")]


@mark.prolog
@evidence(
    "(sudo lspci -vv -d 15b3:; sudo lspci -vv -d 1d0f:) | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'; "
    "grep . /sys/bus/pci/devices/*/{current,max}_link_*"
)
def test_nic_link(node: Node) -> None:
    """Network device PCIe link.

    Half the lanes, or one PCIe generation less, halves the throughput between GPUs and network. A link has lost lanes
    or speed if it is worse than most devices of its model on this node and worse than the device and its port support.
    If the port's limit is unknown, or only other nodes do better, the slot may be different: a concern. A link below
    what both ends support is also a concern if most devices of its model here are no better.

    Remedy (reset or reboot): Check that the device is in the same slot as on other nodes, reseat it or its riser, and
    reboot. In a cloud, replace the node.
    """
    nics = _nics(node)
    if not any(nic.link for nic in nics):
        require(why for nic in nics for why in readings(nic, "width", "speed")[1])
        not_applicable("the kernel reports no PCIe link for any network device here")
    for nic in nics:
        with part:
            majority = known(lambda: _majority(node, nic), None)  # noqa: B023 - called at once
            able = known(lambda: nic.supported_link, None)  # noqa: B023 - called at once
            address = known(lambda: nic.address, "a network device")  # noqa: B023 - called at once
            is_worse = bool(majority and nic.link and nic.link.is_worse_than(majority))
            is_less = bool(able and nic.link and nic.link.is_worse_than(able))
            seen = f"PCIe {nic.link} on {address}; expected"
            fail_if(is_worse and is_less, f"{seen} {majority}, like most of its model here")
            concern_if(is_worse and not able, f"{seen} {majority}, like most of its model here")
            concern_if(is_less and not is_worse and not _is_meant(node, nic), f"{seen} {able}, which both ends support")
            require(readings(nic, "width", "speed")[1])
            if not nic.link and _is_alone_without(node, nic):
                incomplete(f"the kernel reports no PCIe link for {address}; expected one, as for others of its model")
    elsewhere = differing(node, LINKS, _links)
    concern_if(elsewhere, describe(elsewhere))


@evidence("grep . /sys/class/infiniband/*/device/numa_node")
def test_nic_numa(node: Node) -> None:
    """Network device NUMA node.

    NCCL pairs each GPU with the network devices on its own NUMA node. If a device is in a different slot, or the
    firmware assigns it to another NUMA node or none, GPU traffic crosses the link between the sockets.

    Remedy (investigate): Compare the slots and the firmware settings (NUMA nodes per socket, SNC) with a healthy node.
    """
    nics = _nics(node)
    nowhere = [nic for nic in nics if readings(nic, "numa")[0].get("numa", 0) < 0]
    named = (readings(nic, "address")[0].get("address", "a network device") for nic in nowhere)
    seen = f"no NUMA node is reported for {', '.join(named)}"
    concern_if(0 < len(nowhere) < len(nics), f"{seen}; expected one, as for the other network devices")
    elsewhere = differing(node, "NUMA nodes of network devices", _numa)
    concern_if(elsewhere, describe(elsewhere))
    require(why for nic in nics for why in readings(nic, "address", "numa")[1])


def _nics(node: Node) -> list[PciDevice]:
    models = rdma_models(node)
    devices = each(node.pci_devices, lambda device: (device, device.connects_nodes(models)))
    nics = [device for device, is_used in devices if is_used]
    if not nics:
        require(unread_rdma_models(node))
        not_applicable("no EFA, InfiniBand or RoCE device on this node")
    return nics


def _known_nics(node: Node) -> Iterator[tuple[str, PciDevice]]:
    """The same by address, for a comparison: what is unknown of other devices is a finding of their own node."""
    models = rdma_models(node)
    for device in node.pci_devices:
        address = readings(device, "address")[0].get("address")
        with suppress(Incomplete):
            if address and device.connects_nodes(models):
                yield address, device


def _is_meant(node: Node, nic: PciDevice) -> bool:
    """Whether a link that could be better is no fault: it is as on most nodes, suspended, or an emulated port's."""
    majority = majority_of(node, LINKS, _links, f"PCIe link of {nic.address}", None)
    is_emulated = (readings(nic, "port_width_max")[0].get("port_width_max") or 0) > MAX_LANES
    return nic.is_asleep or is_emulated or (majority is not None and majority.value == str(nic.link))


def _is_alone_without(node: Node, nic: PciDevice) -> bool:
    """Whether it reports no link while others of its model do; virtual functions and suspended devices have none."""
    is_virtual = bool(readings(nic, "function_of")[0].get("function_of"))
    return not (is_virtual or nic.is_asleep) and any(other.link for other in _of_its_model(node, nic))


def _majority(node: Node, nic: PciDevice) -> PciLink | None:
    """The link of most devices of its model here; None if no link has a majority, or its own is unknown."""
    if not nic.link:
        return None
    links = Counter(link for other in _of_its_model(node, nic) if (link := other.link))
    most_common, count = links.most_common(1)[0]
    return most_common if count > sum(links.values()) * node.threshold("group.majority") else None


def _of_its_model(node: Node, nic: PciDevice) -> Iterator[PciDevice]:
    """The network devices known to be of its model, and itself. Raises Incomplete."""
    model = nic.model
    return (other for other in _nics(node) if readings(other, "model")[0].get("model") == model)


LINKS = "PCIe links of network devices"


def _links(node: Node) -> Values:
    links = ((address, nic.link) for address, nic in _known_nics(node))
    return {f"PCIe link of {address}": str(link) if link and link.is_whole else None for address, link in links}


def _numa(node: Node) -> Values:
    """By address; None if it is unknown."""
    reported = [(address, readings(nic, "numa")[0]) for address, nic in _known_nics(node)]
    return {f"NUMA node of {address}": str(read["numa"]) if read else None for address, read in reported}
