"""A fault: injected into an otherwise healthy node, it changes exactly the verdicts that it lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.verdict import Verdict
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_p5

FAIL, CONCERN, INCOMPLETE, NA = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
PASS = Verdict.PASS

# Checks that do not apply to the healthy p5 below.
DOES_NOT_APPLY = {
    "network.ib_count",  # its fabric is EFA
    "network.ib_errors",
    "network.ib_link_layer",
    "network.ib_lost_packets",
    "network.ib_ports",
    "network.roce_settings",
    "network.nameservers",  # it has none, so that tests query none of this machine's
    "network.address_unique",  # nor do its interfaces have addresses
    "network.link_speed",  # ENA reports none
    "network.nic_link",  # EC2's report on the PCIe links of EFA devices is unknown
    "host.deep_health_check",  # it is no node of HyperPod
    "control_plane.slurm_nodes",  # only captures have it, and there is none here
    "gpu.dcgm_diag",
    "gpu.pcie_switches",  # it shows no PCIe switch
    "gpu.pcie_acs",  # it is a virtual machine
    "gpu.pcie_iommu",
    "gpu.pcie_settings",  # nor does it show its devices' settings
    "gpu.imex",  # it is not a tray of a rack
    "gpu.imex_domain",
    "gpu.imex_nodes",
    "gpu.rack_trays",
    "gpu.rack_uniform",
    "network.nccl_correct",
    "network.nccl_transport",
    "neuron.nccom",
    "neuron.connected",
    "neuron.device_count",
    "neuron.devices_answer",
    "neuron.no_hw_error",
    "neuron.no_leftover_processes",
    "neuron.no_uncorrected_ecc",
    "storage.lustre_striping",  # no policy names a checkpoint folder
    "host.cpu_governor",  # the kernel controls the frequency only on bare metal
    "software.drivers_expected",  # no manifest is given
    "software.libraries_expected",
    "software.modules_expected",
    "software.services_expected",
    "software.sizes_expected",
    "software.versions_expected",
}


def p5() -> NodeImage:
    """The node for every fault of a p5."""
    return healthy_p5()


@dataclass(frozen=True)
class Fault:
    """One fault, every verdict that changes from the healthy node's, and words of the first one's message."""

    name: str
    put: Callable[[NodeImage], NodeImage]
    expect: Mapping[str, Verdict]
    words: str
    base: Callable[[], NodeImage] = p5
    beside: str = ""
    occasion: str = "preflight"
    collector_s: float = 5.0
    policy: Policy = NO_POLICY
    loads: tuple[str, ...] = ()  # collectors of load that run again; for the rest the healthy node's results stand
    marks: tuple[pytest.MarkDecorator, ...] = field(default=())
