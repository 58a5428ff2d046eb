"""The NVLink fabric: the state of each GPU in it, and the fabric manager."""

from __future__ import annotations

import re

from clusterproof.plugins.catalog import fabric_faults, fabric_state, fabric_statuses, fabric_summary
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    NotApplicable,
    concern,
    concern_if,
    fail_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import reading_of
from clusterproof.plugins.evidence.gpu.facts import BASEBOARD, Fabric, Gpu
from clusterproof.plugins.evidence.gpu.facts_rack import (
    FABRIC,
    NO_CLUSTER,
    clique,
    clique_of,
    is_of_a_rack,
    most_common,
)
from clusterproof.plugins.evidence.group import describe, differences
from clusterproof.plugins.evidence.host.facts_node import service_state
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]


NOT_SUPPORTED, COMPLETED, SUCCESS = 0, 3, 0  # nvmlGpuFabricState_t, nvmlReturn_t
WITHOUT_REGISTRATION = ("V100", "A100")  # GPUs registered with a fabric begin with Hopper


@mark.prolog
@mark.ami
@evidence("nvidia-smi -q | grep -A12 Fabric")
def test_fabric_state(gpu: Gpu, node: Node) -> None:
    """NVLink fabric state.

    On instance types with NVSwitches, a GPU must register with the fabric before CUDA can start. Links can be up while
    the fabric is down.

    Remedy (reset or reboot): Restart fabric manager when no job is running, or reboot the node. If the state persists,
    replace the node.
    """
    fabric = fabric_of(gpu, node)
    with part:
        assert fabric.state == COMPLETED, f"fabric state is {fabric_state(fabric.state)}; expected completed"
    with part:
        status = fabric_statuses().get(fabric.status, "unknown")
        assert fabric.status == SUCCESS, f"fabric status is {fabric.status} ({status}); expected 0 (success)"
    with part:  # a driver too old for the mask has none
        faults = ", ".join(fabric_faults(fabric.health_mask))
        assert not faults, f"fabric health: {faults}; expected no fault"
    with part:
        summary = fabric_summary(fabric.health_summary or 0)
        fail_if(summary.verdict == "fail", f"fabric health is {summary.words}; expected healthy")
        concern_if(summary.verdict == "concern", f"fabric health is {summary.words}; expected healthy")


@mark.prolog
@mark.ami
@evidence("nvidia-smi --query-gpu=index,fabric.cliqueId,fabric.clusterUuid --format=csv")
def test_fabric_uniform(node: Node) -> None:
    """NVLink fabric membership.

    Two GPUs reach each other by NVLink only within one clique of one cluster. All GPUs of a node, and of a tray in a
    rack, belong to the same one.

    Remedy (reset or reboot): Reset the GPUs or reboot the node. On NVL72 trays check the rack's fabric manager and its
    partitions.
    """
    cliques: dict[str, str] = {}
    for gpu in node.gpus:
        with part:
            cliques[gpu.label] = clique(fabric_of(gpu, node))
    if not cliques:
        return
    due = most_common(list(cliques.values()))
    named = ", ".join(f"{label} in {where}" for label, where in cliques.items() if where != due)
    fail_if(named, f"{named}; expected {due}, like the others")
    if is_of_a_rack(node):
        fail_if(due.endswith(NO_CLUSTER), f"the GPUs are in {due}; expected the cluster of their rack")
        with part:
            deviations = differences(node, FABRIC, clique_of)
            is_alone = deviations and node.run.counts(FABRIC, clique_of)[FABRIC][deviations[0].own] == 1
            if is_alone and deviations[0].majority:
                concern(describe(deviations))


def fabric_of(gpu: Gpu, node: Node) -> Fabric:
    """The fabric of a GPU that must have one. Raises NotApplicable if it has none, and Incomplete."""
    if node.nvlinks_due == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink fabric")
    if gpu.is_partitioned:
        not_applicable("MIG is on: the GPU is not part of a fabric")
    try:
        fabric = gpu.fabric
    except NotApplicable:
        name = reading_of(gpu, "name", "")
        if not node.nvlinks_due or is_unregistered(name) or (name and not BASEBOARD.search(name)):
            raise
        incomplete(
            f"the driver reports no NVLink fabric; expected one, since {node.type_name or 'this node'} has NVLinks"
        )
    if reading_of(fabric, "state") == NOT_SUPPORTED:
        if is_unregistered(gpu.name):
            not_applicable(f"{gpu.name[:40]} is not registered with a fabric")
        node.expected("nvlinks")  # raises where it is unknown whether it should have one
    return fabric


def is_unregistered(name: str) -> bool:
    """Whether GPUs of this name are known to be in no fabric."""
    return any(model in name for model in WITHOUT_REGISTRATION)


@mark.prolog
@mark.ami
@evidence("systemctl status nvidia-fabricmanager; nv-fabricmanager --version")
def test_fabric_manager(node: Node) -> None:
    """Fabric manager.

    On instance types with NVSwitches in the node, fabric manager must run at exactly the driver's version, or CUDA does
    not start (error 802, system not yet initialized). On NVL72, the rack runs it instead of the trays.

    Remedy (restore service): Start nvidia-fabricmanager; install the version that matches the driver.
    """
    if not node.of_type("nvswitch"):
        not_applicable(f"{node.type_name or 'this node'} needs no fabric manager on the node")
    with part:
        state = service_state(node, "nvidia-fabricmanager")
        assert state == "active", f"nvidia-fabricmanager is {state}; expected active"
    try:
        output = node.fabric_manager_version.output
    except Absent:
        incomplete("fabric manager's version is unknown: nv-fabricmanager was not found; expected the driver's version")
    version = re.search(r"\d+\.\d+(?:\.\d+)?", output)
    if not version:
        incomplete(f"nv-fabricmanager --version says {output.strip()[:60]!r}; expected a version")
    assert version[0] == node.nvml.driver, (
        f"fabric manager {version[0]} with driver {node.nvml.driver}; expected the same version"
    )
