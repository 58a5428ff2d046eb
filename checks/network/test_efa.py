"""EFA: are all devices there, and can libfabric use them?"""

from __future__ import annotations

import re

import pytest

from clusterproof.plugins.catalog import threshold
from clusterproof.plugins.facts import libfabric
from clusterproof.plugins.facts.fact import Absent
from clusterproof.plugins.facts.network import RdmaDevice
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import incomplete, not_applicable

pytestmark = [
    pytest.mark.network,
    pytest.mark.preflight,
    pytest.mark.prolog,
    pytest.mark.ami,
]


@pytest.mark.hyperpod_node_debugger("A")
@evidence("lspci -n -d 1d0f: | grep -c efa; ls /sys/class/infiniband")
def test_efa_count(node: Node) -> None:
    """EFA devices are missing.

    Counted are RDMA devices of Amazon's EFA, not every RDMA device, against what the instance type can have.

    Remedy: If the bus shows them all, reload the efa driver. Else compare with the interfaces attached to the
    instance; replace the node if they differ.
    """
    expected = node.expected("efa")
    count = len(node.efa_devices)
    if expected == 0 and count == 0:
        not_applicable(f"{node.type_name or 'this node'} has no EFA")
    if count < expected and node.boot.uptime_s < threshold("settle.window_s"):
        incomplete(f"{count} EFA devices, {node.boot.uptime_s:.0f} s after boot; expected {expected}")
    on_bus = sum(1 for device in node.pci_devices if device.is_efa)
    assert count >= expected, f"{count} EFA devices, {on_bus} on the PCI bus; expected {expected}"


@pytest.mark.hyperpod_node_debugger("A")
@evidence("cat /sys/class/infiniband/*/ports/1/state /sys/class/infiniband/*/ports/1/phys_state")
def test_efa_port_active(efa_device: RdmaDevice) -> None:
    """EFA ports are not active.

    The EFA driver reports ACTIVE for every port that it has brought up, whatever the network does: this finds a device
    that the driver could not start, and cannot prove that packets flow. The pairwise test proves that.

    Remedy: Look for efa in the kernel log; reload the driver or reboot the node.
    """
    assert efa_device.ports, "no port; expected port 1"
    for port in efa_device.ports:
        assert port.is_active, f"port {port.number} is {port.state}; expected 4: ACTIVE"
        assert port.physical_state.endswith("LinkUp"), (
            f"port {port.number} is {port.physical_state}; expected 5: LinkUp"
        )


@pytest.mark.hyperpod_node_debugger("A")
@evidence("cat /sys/class/infiniband/*/ports/1/rate")
def test_efa_rate(efa_device: RdmaDevice, node: Node) -> None:
    """EFA ports are slower than the instance type's.

    Remedy: Compare with other nodes of the type; replace the node if only this one is slow.
    """
    least = node.of_type("efa_gbps")
    if not efa_device.ports:
        incomplete(f"no port tells its rate; expected at least {least} Gb/s")
    for port in efa_device.ports:
        assert port.gbps >= least, f"port {port.number} at {port.rate}; expected at least {least} Gb/s"


@pytest.mark.hyperpod_nccl("13")
@evidence("fi_info -p efa -t FI_EP_RDM | grep domain | sort -u")
def test_libfabric_efa(node: Node) -> None:
    """libfabric does not offer every EFA device.

    NCCL reaches EFA through libfabric's reliable datagram endpoint (FI_EP_RDM). Newer versions list each device twice;
    counted are different domains. Without the provider NCCL falls back to TCP.

    Remedy: Reinstall EFA's software. Where only some devices are missing, look at test_efa_count.
    """
    devices = efa_due(node)
    if devices == 0:
        not_applicable("no EFA device on this node")
    try:
        told = node.fi_info
    except Absent:
        assert node.occasion != "ami", "fi_info is not installed; expected EFA's software in the image"
        not_applicable("fi_info is not installed here; the EFA software may live in the container")
    problem = libfabric.error(told.output)
    assert not problem, f"fi_info says {problem}; expected {devices} EFA domains"
    domains = libfabric.domains(told.output)
    if not domains and told.exit != 0:
        incomplete(f"fi_info ended with {told.exit}: {told.output.strip()[-100:]}")
    assert len(domains) >= devices, f"{len(domains)} EFA domains; expected {devices}, one for each device"


def efa_due(node: Node) -> int:
    """How many EFA devices software should see: those there are, else those there should be. Raises Incomplete."""
    return len(node.efa_devices) or node.expected("efa")


@pytest.mark.hyperpod_node_debugger("A")
@evidence("lsmod | grep -E '^(efa|ib_uverbs|ib_core) '; ls /dev/infiniband")
def test_efa_modules(node: Node) -> None:
    """EFA's kernel modules or device files are missing.

    Remedy: Load the efa module (modprobe efa). If that fails, reinstall EFA's software for the running kernel.
    """
    devices = efa_due(node)
    if devices == 0:
        not_applicable("no EFA device on this node")
    missing = [name for name in ("efa", "ib_uverbs", "ib_core") if name not in node.modules]
    assert not missing, f"kernel modules not loaded: {', '.join(missing)}; expected efa, ib_uverbs and ib_core"
    uverbs = [name for name in node.uverbs if re.fullmatch(r"uverbs\d+", name)]
    assert len(uverbs) >= devices, f"{len(uverbs)} device files in /dev/infiniband; expected {devices} uverbs"
