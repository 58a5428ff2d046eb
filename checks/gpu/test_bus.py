"""GPUs and NVSwitches as the PCI bus shows them: how many, where, and whose."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, not_applicable
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.group import ABSENT, Values, differences, in_words
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import PciDevice
from clusterproof.plugins.suite.routing import evidence

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

DRIVER = "nvidia"
OF_EIGHT_GPUS = (0, 4, 6)  # NVSwitches of a board with eight: cards have none, Hopper boards four, Ampere boards six
PATTERN = "NUMA nodes of the GPUs"


@mark.prolog
@evidence("lspci -d 10de: -nn | grep -i bridge")
def test_nvswitch_count(node: Node) -> None:
    """NVSwitch count.

    Each NVSwitch carries part of the traffic between GPUs. With one missing, fabric manager does not start, or leaves
    the GPUs with fewer links. Since Blackwell, switches are not on the node's PCI bus.

    Remedy (reset or reboot): Reboot the node. If a switch is still missing, replace the node.
    """
    found = sum(device.is_nvswitch for device in node.pci_devices)
    with suppress(Incomplete):  # GPUs that do not answer are GPUs
        node.gpus  # noqa: B018 - raises NotApplicable on a node without any
    if node.nvlinks_due is None and len(node.gpus_on_bus) == 8:
        expected = " or ".join(str(count) for count in OF_EIGHT_GPUS if count)
        assert found in OF_EIGHT_GPUS, f"{found} NVSwitches on the PCI bus; expected {expected} with eight GPUs"
    due = node.of_type("nvswitches") if node.of_type("nvswitch") else 0
    if not due:
        not_applicable(f"{node.type_name or 'this node'} has no NVSwitch on its PCI bus")
    assert found >= due, f"{found} NVSwitches on the PCI bus; expected {due}"


@evidence("lspci -d 10de: -nnk; lsmod | grep nouveau")
def test_gpu_driver(node: Node) -> None:
    """GPU driver binding.

    CUDA cannot use a GPU that is bound to nouveau or to a hypervisor's driver. If nouveau is loaded beside NVIDIA's
    driver, the next boot decides which of them gets the GPUs.

    Remedy (fix configuration): Blacklist nouveau (modprobe.d and the initial RAM disk), then reboot the node.
    """
    gpus = gpus_of(node)
    data = [readings(gpu, "address", "driver") for gpu in gpus]
    others = ", ".join(f"{one['driver'][:40]} holds {one['address'][:20]}" for one, _ in data if is_of_others(one))
    assert not others, f"{others}; expected {DRIVER}"
    if "nouveau" in node.modules:
        concern("nouveau is loaded beside nvidia; expected not loaded")
    require([why for _, unread in data for why in unread])


def is_of_others(data: dict[str, str]) -> bool:
    """Whether a driver other than NVIDIA's holds a GPU; that none does is another check's finding."""
    return data.get("driver", "") not in ("", DRIVER) and "address" in data


@evidence("nvidia-smi topo -m; cat /sys/bus/pci/devices/*/numa_node")
def test_gpu_numa(node: Node) -> None:
    """GPU NUMA nodes.

    Each process of a job is bound to the CPUs near its GPU. A GPU in another slot, or firmware that places it
    elsewhere, sends all of its host traffic over the link between the sockets.

    Remedy (investigate): Compare nvidia-smi topo -m, the slots and the firmware settings (NUMA nodes per socket) with a
    neighbouring node; replace the node.
    """
    gpus = gpus_of(node)
    try:
        found = differences(node, PATTERN, pattern_of)
    except NotApplicable:  # too few nodes to compare with
        counts = Counter(gpu.numa for gpu in gpus)
        usual = len(gpus) / len(counts)
        if usual.is_integer() and len(set(counts.values())) > 1:
            seen = ", ".join(f"{count} GPUs on NUMA node {numa}" for numa, count in sorted(counts.items()))
            concern(f"{seen}; expected {usual:.0f} on each")
        return
    elsewhere = [one for one in found if one.usual and ABSENT not in (one.own, one.usual)]  # of as many GPUs
    if elsewhere:
        concern(in_words(elsewhere))


def pattern_of(node: Node) -> Values:
    """The NUMA nodes of a node's GPUs in the order of their addresses: `0 0 0 0 1 1 1 1`."""
    in_order = sorted(node.gpus_on_bus, key=lambda gpu: gpu.address)
    if not in_order or any(gpu.numa < 0 for gpu in in_order):  # a GPU without one is another check's finding
        return {}
    return {f"NUMA nodes of the {len(in_order)} GPUs": " ".join(str(gpu.numa) for gpu in in_order)}


def gpus_of(node: Node) -> tuple[PciDevice, ...]:
    """The GPUs on the bus. Raises NotApplicable where there is none."""
    if not node.gpus_on_bus:
        not_applicable("no NVIDIA GPU on the PCI bus")
    return node.gpus_on_bus
