"""What connects GPUs: NVLink, the fabric, PCIe."""

from __future__ import annotations

import re

import pytest

from clusterproof.plugins.catalog import fabric_faults, fabric_state
from clusterproof.plugins.facts.fact import Absent
from clusterproof.plugins.facts.field import readings, require
from clusterproof.plugins.facts.gpu import Gpu
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import Incomplete, incomplete, not_applicable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.preflight,
    pytest.mark.prolog,
    pytest.mark.hyperpod_node_debugger("G"),
]

COMPLETED, SUCCESS = 3, 0  # nvmlGpuFabricState_t, nvmlReturn_t
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


@pytest.mark.ami
@evidence("nvidia-smi -q | grep -A12 Fabric")
def test_fabric_state(gpu: Gpu, node: Node) -> None:
    """The NVLink fabric is not ready or not healthy.

    On types with NVSwitch a GPU must be registered with its fabric before CUDA starts. Links can be up while the fabric
    is dead.

    Remedy: Restart fabric manager when no job runs, or reboot the node. If it stays, replace the node.
    """
    if node.expected("nvlinks") == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink fabric")
    if gpu.is_partitioned:
        not_applicable("MIG is on: the GPU is not part of a fabric")
    fabric = gpu.fabric
    assert fabric.state == COMPLETED, f"fabric state is {fabric_state(fabric.state)}; expected completed"
    assert fabric.status == SUCCESS, f"fabric status is {fabric.status}; expected 0 (success)"
    told, unread = readings(fabric, "health_mask")
    faults = ", ".join(fabric_faults(told.get("health_mask", 0)))
    assert not faults, f"fabric health: {faults}; expected no fault"
    require([why for why in unread if isinstance(why, Incomplete)])  # a driver too old for the mask has none


@pytest.mark.ami
@evidence("systemctl status nvidia-fabricmanager; nv-fabricmanager --version")
def test_fabric_manager(node: Node) -> None:
    """Fabric manager does not run, or is not of the driver's version.

    On types whose NVSwitches belong to the node, fabric manager must run and be of exactly the driver's version, else
    CUDA does not start on more than one GPU. On NVL72 trays the rack runs it.

    Remedy: Start nvidia-fabricmanager; install the version that the driver has.
    """
    if not node.of_type("nvswitch"):
        not_applicable(f"{node.instance_type} needs no fabric manager on the node")
    service = node.services.get("nvidia-fabricmanager")
    state = "not installed" if service is None or not service.is_installed else service.active
    assert state == "active", f"nvidia-fabricmanager is {state}; expected active"
    try:
        told = node.fabric_manager_version.output
    except Absent:
        incomplete("fabric manager runs, and nv-fabricmanager is not found to tell its version; expected the driver's")
    found = re.search(r"\d+\.\d+(?:\.\d+)?", told)
    if not found:
        incomplete(f"nv-fabricmanager --version says {told.strip()[:60]!r}; expected a version")
    assert found[0] == node.nvml.driver, (
        f"fabric manager {found[0]} with driver {node.nvml.driver}; expected the same version"
    )


@evidence("nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max,pcie.link.gen.current --format=csv")
def test_pcie_link(gpu: Gpu) -> None:
    """The PCIe link is narrower or slower than it can be.

    A link that lost lanes halves what moves between host, network and GPU. The generation is judged on a busy GPU only:
    an idle one lowers it to save power.

    Remedy: Reboot the node. If the link stays narrow, replace the node.
    """
    width, most = gpu.pcie_width, gpu.pcie_width_max
    assert width >= most, f"PCIe x{width}; expected x{most}"
    told, _ = readings(gpu, "utilization_percent")
    if told.get("utilization_percent", 0) >= BUSY_PERCENT:
        assert gpu.pcie_gen >= gpu.pcie_gen_max, (
            f"PCIe generation {gpu.pcie_gen} under load; expected {gpu.pcie_gen_max}"
        )
