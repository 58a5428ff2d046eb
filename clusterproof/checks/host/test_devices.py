"""The devices of the node: is each bound to a driver?"""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.pci.facts import PciDevice

pytestmark = [mark.host, mark.preflight, mark.prolog]


@mark.hyperpod_node_debugger("F")
@evidence("lspci -Dnnk")
def test_device_drivers(pci_device: PciDevice) -> None:
    """Device drivers.

    The PCI bus lists a GPU, a network adapter or an NVMe controller that no driver is bound to: its initialisation
    failed, the driver gave it up, or none is installed. The rest of the system does not see it. A virtual function
    waits for the machine or container that it is meant for, and needs none. An unused port on the board may have none:
    only the devices that a cluster is made of, EC2's and NVIDIA's, fail.

    Remedy (fix configuration): Search the kernel log for its address. Load or install its driver; replace the node if
    it does not start.
    """
    if not pci_device.kind:
        not_applicable("neither a GPU nor a network adapter nor an NVMe controller")
    if pci_device.driver or pci_device.function_of:
        return
    words = f"{pci_device.kind} ({pci_device.vendor}:{pci_device.device})"
    if pci_device.is_spare_port:
        concern(f"no driver holds {words}; expected one, unless nobody uses it")
    assert pci_device.driver, f"no driver holds {words}; expected one"
