"""PCIe paths between GPUs and network devices: their distance, and the switches above them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from operator import attrgetter

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import known, reading_of, readings, require
from clusterproof.plugins.evidence.gpu.facts_node import unread_rdma_models
from clusterproof.plugins.evidence.group import Values, describe, differences
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import NEAREST_FIRST, PciDevice, PciLink, PciSwitch, unread_kind

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.hyperpod_node_debugger("G"),
]

BUSY, IDLE, NO_GPU, UNREAD = "busy GPUs", "idle GPUs", "no GPU", "devices of unread kind"


@evidence("nvidia-smi topo -mp; ls -l /sys/bus/pci/devices")
def test_gpu_paths(node: Node) -> None:
    """PCIe paths between GPUs and network devices.

    The classes are nvidia-smi topo's: PIX and PXB stay below the host bridge, PHB crosses it, NODE crosses several host
    bridges of one NUMA node, and SYS crosses the link between sockets. If most GPUs have a network device nearby, a GPU
    without one sends its traffic through the CPU. NVLinks are ignored.

    Remedy (investigate): Compare nvidia-smi topo -m, the slots and the firmware settings with a healthy node, and move
    a device that is in the wrong slot. In a cloud, replace the node.
    """
    nearest_by_gpu = {gpu: paths.nearest_nics for gpu, paths in node.gpu_paths.items()}
    path_by_gpu = {gpu: path for gpu, (path, _) in nearest_by_gpu.items() if path}
    unread = unread_places(node, nearest_by_gpu)
    if not path_by_gpu:
        require([*unread, *unread_rdma_models(node)])
        not_applicable("no GPU shares the PCI bus with a network device")
    most_common, count = Counter(path_by_gpu.values()).most_common(1)[0]
    nic_groups = {nics for path, nics in nearest_by_gpu.values() if path == most_common}
    has_majority = count > len(path_by_gpu) * node.threshold("group.majority")
    if has_majority and len(nic_groups) > 1:  # else not all GPUs can be near
        as_most = f"expected {most_common}, as {count} of {len(path_by_gpu)} GPUs here"
        for gpu, path in path_by_gpu.items():
            is_far = NEAREST_FIRST.index(path) > NEAREST_FIRST.index(most_common)
            concern_if(is_far, f"{gpu} has no network device nearer than {path}; {as_most}")
    compare(node, "PCIe paths of GPUs", nearest)
    require(unread)


def unread_places(node: Node, nearest_by_gpu: Mapping[str, tuple[str, object]]) -> list[Incomplete | NotApplicable]:
    """Why it is unknown what some devices are, or how far a GPU is from those of other host bridges."""
    unread = [why for device in of_unread_kind(node) for why in unread_kind(device)]
    for device in reading_of(node, "pci_devices", ()):
        reading, why = readings(device, "address", "numa")
        path, _ = nearest_by_gpu.get(reading.get("address", ""), ("known", ()))
        unread += why if not path else []
    return unread


def nearest(node: Node) -> Values:
    """How many devices are nearest to each GPU, and at which distance, in the order of the GPUs: `4 PIX, 4 PIX`."""
    paths = node.gpu_paths.values()
    nics = len({nic for path in paths for nic in path.nics})
    kinds = {
        f"nearest of {nics} network devices": [path.nearest_nics for path in paths],
        "nearest other GPUs": [path.nearest_gpus for path in paths],
    }
    return {
        f"{kind} to each of {len(paths)} GPUs:": ", ".join(f"{len(names)} {path}" for path, names in nearest_of)
        for kind, nearest_of in kinds.items()
        if nearest_of and all(path for path, _ in nearest_of)
    }


@evidence("lspci -t; grep . /sys/bus/pci/devices/*/*_link_*")
def test_pcie_switches(node: Node) -> None:
    """PCIe links of the switches above GPUs and network devices.

    All devices below a PCIe switch share its link to the CPU. If that link loses lanes or speed, their transfers to and
    from memory slow down, and their own links do not show it. Power saving may lower the speed: it is compared with
    switches whose GPUs are equally idle, and with what both ends support only while a GPU below is busy.

    Remedy (reset or reboot): Reboot the node. If the link stays slow, compare the slots and the firmware's link speed
    limits with a healthy node; reseat the riser, or replace the node.
    """
    kinds = by_kind(node)
    unread = [why for device in of_unread_kind(node) for why in unread_kind(device)]
    unread += [why for switch in node.pci_switches for why in readings(switch.port, "address")[1]]
    if not kinds:
        require(unread)
        not_applicable("no PCIe switch above a GPU or network device is present and awake")
    for (_, _, load), switches in kinds.items():
        majority_link = majority_link_of(node, switches) if load != UNREAD else None
        for switch in switches:
            with part:
                evaluate_link(switch, majority_link, is_busy=load == BUSY)
    compare(node, "PCIe links of switches", majority_links)
    require(unread)


def evaluate_link(switch: PciSwitch, majority_link: PciLink | None, *, is_busy: bool) -> None:
    """The verdict on a switch's own link; most switches like it have the link `majority_link`."""
    link = switch.port.link
    if not link:
        require(readings(switch.port, "width", "speed")[1])
        not_applicable("the kernel reports no PCIe link of the switch")
    able = known(lambda: switch.port.supported_link, None)
    seen = f"PCIe {link} on the switch {switch.port.address}, above {', '.join(switch.gpus + switch.nics)}"
    is_odd = bool(majority_link and link.is_worse_than(majority_link))
    concern_if(is_odd, f"{seen}; expected {majority_link}, like most such switches here")
    is_less = bool(able and (0 < link.lanes < able.lanes or (is_busy and 0 < link.gts < able.gts)))
    concern_if(is_less and not is_odd, f"{seen}; expected {able}, which both ends support")
    require(readings(switch.port, "width", "speed")[1])


def by_kind(node: Node) -> Mapping[tuple[str, int, str], list[PciSwitch]]:
    """The switches that are awake, by model, depth in the tree, and what GPUs are below them."""
    busy = busy_addresses(node)
    unread = {bridge for device in of_unread_kind(node) for bridge in device.path or ()}
    switches = defaultdict(list)
    for switch in filter(attrgetter("is_placed"), node.pci_switches):
        reading, _ = readings(switch.port, "model", "path")
        load = BUSY if busy.intersection(switch.gpus) else IDLE if switch.gpus else NO_GPU
        load = UNREAD if switch.port.address in unread else load
        if not switch.port.is_asleep:
            switches[reading.get("model", ""), len(reading.get("path") or ()), load].append(switch)
    return switches


def of_unread_kind(node: Node) -> list[PciDevice]:
    """The devices with a known place on the bus of which it is unread what they are: a GPU, a network device, which."""
    devices = reading_of(node, "pci_devices", ())
    placed = (device for device in devices if reading_of(device, "path"))
    return [device for device in placed if unread_kind(device) and not reading_of(device, "function_of")]


def busy_addresses(node: Node) -> frozenset[str]:
    """The addresses of the GPUs that are known to compute."""
    reported = [readings(gpu, "pci", "utilization_percent")[0] for gpu in reading_of(node, "gpus", ())]
    least = node.threshold("gpu.busy_percent")
    return frozenset(
        reading["pci"] for reading in reported if reading.get("utilization_percent", 0) >= least and "pci" in reading
    )


def majority_link_of(node: Node, switches: Iterable[PciSwitch]) -> PciLink | None:
    """The link of most of these switches; None if no link has a majority."""
    links = Counter(link for switch in switches if (link := switch.port.link))
    link, count = links.most_common(1)[0] if links else (None, 0)
    return link if count > sum(links.values()) * node.threshold("group.majority") else None


def majority_links(node: Node) -> Values:
    """The link of most switches of each kind, as text."""
    kinds = by_kind(node).items()
    links = {kind: majority_link_of(node, switches) for kind, switches in kinds if UNREAD not in kind}
    return {
        f"PCIe link of switches {model} at depth {depth} with {load} below:": str(link) if link else None
        for (model, depth, load), link in links.items()
    }


def compare(node: Node, what: str, read: Callable[[Node], Values]) -> None:
    """A concern if the node differs from others with as many devices; nothing if there are no such nodes."""
    with suppress(NotApplicable):
        deviations = differences(node, what, read, absent=None)
        concern_if(deviations, describe(deviations))
