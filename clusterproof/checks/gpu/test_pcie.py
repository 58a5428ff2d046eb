"""PCIe links of GPUs: lanes and generation, as the driver and as the bus report them, and errors that were counted."""

from __future__ import annotations

from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    Incomplete,
    NotApplicable,
    concern,
    concern_if,
    fail_if,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import collected_by
from clusterproof.plugins.evidence.field import NEVER_READ, known, reading_of, readings, require
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.gpu.facts_node import gpu_at, of_each, same_model_values
from clusterproof.plugins.evidence.kernel_log.line import pci_address
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import MAX_LANES, PciDevice

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]


@mark.prolog
@evidence(
    "nvidia-smi --query-gpu=index,utilization.gpu,"
    "pcie.link.width.current,pcie.link.width.max,pcie.link.gen.current,pcie.link.gen.max --format=csv"
)
def test_pcie_link(gpu: Gpu, node: Node) -> None:
    """GPU PCIe link.

    A link that lost half its lanes halves the throughput between host, network and GPU. Some instance types wire fewer
    lanes than the GPU has; the catalogue lists them. The PCIe generation is evaluated only on a busy GPU, since an idle
    one lowers it to save power. A link's maximum, negotiated at boot, should be the same on all GPUs.

    Remedy (reset or reboot): Reboot the node. If the link stays narrow, replace the node.
    """
    with part:
        evaluate_width(gpu, node)
    if reading_of(gpu, "utilization_percent", 0) >= node.threshold("gpu.busy_percent"):
        with part:
            own, best = gpu.pcie_gen, gpu.pcie_gen_max
            fail_if(own < best, f"PCIe generation {own} under load; expected {best}")
    evaluate_most_by_peers(gpu, node)


def evaluate_width(gpu: Gpu, node: Node) -> None:
    """The verdict on how many lanes a link has; where its maximum is unread, compared with the node's other GPUs."""
    width = gpu.pcie_width
    limits = [lanes for lanes in (known(lambda: gpu.pcie_width_max, None), lanes_of_type(node)) if lanes]
    if not limits:
        most = max(lanes for _, lanes in same_model_values(gpu, node, "pcie_width"))
        if width < most:
            concern(f"PCIe x{width}; expected x{most}, as on the node's other GPUs")
        return
    most = min(limits)
    may_be_wired_so = width < most and is_wired_so(node, width)
    fail_if(width < most and not may_be_wired_so, f"PCIe x{width}; expected x{most}")
    unless = "unless this machine wires no more"
    concern_if(may_be_wired_so, f"PCIe x{width} on every GPU; expected x{most}, {unless}")


def evaluate_most_by_peers(gpu: Gpu, node: Node) -> None:
    """The verdict on a link whose maximum is below that of the node's other GPUs of the model."""
    for name, label in (("pcie_gen_max", "PCIe generation "), ("pcie_width_max", "PCIe x")):
        values = [value for _, value in same_model_values(gpu, node, name)]
        own, most = readings(gpu, name)[0].get(name), max(values, default=0)
        if own is None or own >= most:
            continue
        message = f"{label}{own} at most; expected {most}, as on the node's other GPUs"
        is_odd = values.count(most) * 2 > len(values)
        fail_if(is_odd, message)
        concern_if(not is_odd, message)


def lanes_of_type(node: Node) -> int | None:
    """How many lanes the instance type wires to each GPU, if that is known to be fewer than the GPU has."""
    instance_type = reading_of(node, "type")
    return instance_type.pcie_lanes if instance_type else None


def is_wired_so(node: Node, width: int) -> bool:
    """Whether every GPU of the node has a link this narrow, and they are cards: boards with NVLink have all lanes."""
    return set(of_each.of(node)["pcie_width"]) == {width} and has_no_nvlink(node)


def has_no_nvlink(node: Node) -> bool:
    """Whether neither its type nor any GPU has NVLinks."""
    try:
        return node.expected("nvlinks") == 0
    except Incomplete:
        return not any(readings(gpu, "nvlinks")[0] for gpu in node.gpus)


@evidence(
    "grep -H TOTAL /sys/bus/pci/devices/*/aer_dev_*; nvidia-smi -q | grep -E '^GPU|Replays'; lspci | grep 'rev ff'"
)
def test_pcie_errors(pci_device: PciDevice, node: Node) -> None:
    """PCIe error counters.

    The kernel counts each link's errors by severity (AER), and the GPU counts packets it had to resend. A fatal error
    takes the link down; correctable ones by the hundreds slow it down. A device that has fallen off the bus reads as
    all ones, so its link reads as x63; a suspended device does too, and is ignored. Virtual machines often have no AER
    counters: there only the GPU's replays are evaluated.

    Remedy (reset or reboot): Fatal: reboot the node, and replace it if errors return. Otherwise watch the counters
    under load.
    """
    with part:
        answers = pci_device.answers
        fail_if(
            not answers,
            "does not answer on PCIe: it reads as all ones (x63, or rev ff); expected a device that answers",
        )
    counts: dict[str, int | None] = {}
    for kind in ("fatal", "nonfatal", "correctable"):
        with part:
            counts[kind] = getattr(pci_device.errors, kind)
    with part:
        counts["replays"] = replays_of(pci_device, node)
    fail_if(counts.get("fatal"), f"{counts.get('fatal')} fatal PCIe errors; expected 0")
    concern_if(counts.get("nonfatal"), f"{counts.get('nonfatal')} uncorrected PCIe errors; expected 0")
    for kind, what in (("correctable", "correctable errors since boot"), ("replays", "replays since its reset")):
        count, most = counts.get(kind) or 0, node.threshold(f"pcie.{kind}_concern")
        concern_if(count > most, f"{count} PCIe {what}; expected at most {most:.0f}")
    if set(counts.values()) <= {None}:
        not_applicable("neither the kernel nor a driver counts this device's PCIe errors")


def replays_of(pci_device: PciDevice, node: Node) -> int | None:
    """How often a GPU replayed; None for other devices, and GPUs that do not count it. Raises Incomplete."""
    if not pci_device.is_nvidia_gpu:
        return None
    gpu = gpu_at.of(node).get(pci_device.address)
    if gpu:
        reading, unread = readings(gpu, "pcie_replays")
        require(why for why in unread if isinstance(why, Incomplete))
        return reading.get("pcie_replays")
    lost = [
        gpu.label for gpu in node.gpus if reading_of(gpu, "lost")
    ]  # one that does not answer reports no address either
    if not lost:
        require(why for gpu in node.gpus for why in readings(gpu, "pci")[1] if NEVER_READ in gpu.record)
    cause = f"{lost[0] if len(lost) == 1 else 'a GPU'} does not answer"
    raise Incomplete("no GPU answers at this address", cause)


@evidence(
    "sudo lspci -vv -d 10de: | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'; "
    "grep . /sys/bus/pci/devices/*/{current,max}_link_width"
)
def test_pcie_lanes(pci_device: PciDevice, node: Node) -> None:
    """GPU PCIe lanes on the bus.

    Reads PCIe lanes from the bus for GPUs whose driver does not report them: GPUs that did not start, or that a capture
    shows only in lspci. Otherwise gpu.pcie_link evaluates what the driver reports. Too few lanes are only a concern if
    the port's own limit is unknown, as in lspci, or no GPU here has more: the slot may be narrower.

    Remedy (reset or reboot): Reboot the node. If the link stays narrow, replace the node.
    """
    if not pci_device.is_nvidia_gpu or reading_of(pci_device, "function_of"):
        not_applicable("not a physical NVIDIA GPU")
    width = pci_device.width
    if not width or width > MAX_LANES or pci_device.is_asleep:
        not_applicable("the PCI bus does not show its lanes")
    others = _most_lanes.of(node)
    reading, unread = readings(pci_device, "width_max", "port_width_max")
    most, port = reading.get("width_max") or others, reading.get("port_width_max")
    due = min(most or width, port or MAX_LANES, lanes_of_type(node) or MAX_LANES)
    if width < due and pci_device.address in _named_by_the_driver.of(node):
        not_applicable("its driver reports its lanes: see gpu.pcie_link")
    is_sure = bool(port) and width < others and bool(reading.get("width_max"))
    fail_if(is_sure and width < due, f"PCIe x{width}; expected x{due}")
    concern_if(not is_sure and width < due, f"PCIe x{width}; expected x{due}, unless its slot is narrower")
    if "width_max" not in reading:
        require(unread)
    if not most:
        not_applicable("the PCI bus does not show its lanes")


@collected_by()
def _most_lanes(node: Node) -> int:
    """The most lanes of any GPU on the bus; 0 if none is shown."""
    reported = [readings(device, "is_nvidia_gpu", "width")[0] for device in node.pci_devices]
    widths = [reading.get("width") or 0 for reading in reported if reading.get("is_nvidia_gpu")]
    return max((width for width in widths if width <= MAX_LANES), default=0)


OF_DRIVER = ("pcie_width", "pcie_width_max")  # by which gpu.pcie_link evaluates a link


@collected_by()
def _named_by_the_driver(node: Node) -> set[str]:
    """The addresses of the GPUs whose driver reports how many lanes they have, and how many they may have."""
    with suppress(Incomplete, NotApplicable):
        named = [readings(gpu, "pci", *OF_DRIVER)[0] for gpu in node.gpus]
        return {pci_address(reading["pci"]) for reading in named if {"pci", *OF_DRIVER} <= reading.keys()}
    return set()
