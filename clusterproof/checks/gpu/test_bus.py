"""GPUs and NVSwitches as the PCI bus shows them: how many, where, and whose."""

from __future__ import annotations

from collections import Counter
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
from clusterproof.plugins.evidence.field import each
from clusterproof.plugins.evidence.group import Values, differences, in_words
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pci.facts import PciDevice

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

DRIVER = "nvidia"
OF_EIGHT_GPUS = (0, 4, 6)  # NVSwitches of a board with eight: cards have none, Hopper boards four, Ampere boards six


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
        words = f"{found} NVSwitches on the PCI bus; expected {expected} with eight GPUs"
        fail_if(found not in OF_EIGHT_GPUS, words)
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
    for gpu in gpus:
        with part:  # that no driver holds it is another check's finding
            fail_if(gpu.driver not in ("", DRIVER), f"{gpu.driver[:40]} holds {gpu.address[:20]}; expected {DRIVER}")
    concern_if("nouveau" in node.modules, "nouveau is loaded beside nvidia; expected not loaded")


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
        found = differences(node, "NUMA nodes of the GPUs", numa_nodes, absent=None)
    except NotApplicable:  # too few nodes to compare with
        counts = Counter(gpu.numa for gpu in gpus)
        usual = len(gpus) / len(counts)
        if usual.is_integer() and len(set(counts.values())) > 1:
            seen = ", ".join(f"{count} GPUs on NUMA node {numa}" for numa, count in sorted(counts.items()))
            concern(f"{seen}; expected {usual:.0f} on each")
        return
    elsewhere = [one for one in found if one.usual]
    concern_if(elsewhere, in_words(elsewhere))


def numa_nodes(node: Node) -> Values:
    """The NUMA node of each GPU, by its address; None where the firmware names none, which is another's finding."""
    every = each(node.gpus_on_bus, lambda gpu: (f"NUMA node of {gpu.address}", gpu.numa))
    return {name: str(numa) if numa >= 0 else None for name, numa in every}


def gpus_of(node: Node) -> tuple[PciDevice, ...]:
    """The GPUs on the bus. Raises NotApplicable where there is none."""
    if not node.gpus_on_bus:
        not_applicable("no NVIDIA GPU on the PCI bus")
    return node.gpus_on_bus
