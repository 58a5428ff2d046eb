"""The NVLink fabric of nodes with NVSwitches: each GPU's place in it, and who manages it."""

from __future__ import annotations

import re
from collections import Counter

from clusterproof.plugins.catalog import fabric_faults, fabric_state, fabric_summary
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern, incomplete, not_applicable
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.gpu.facts import Fabric, Gpu
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.prolog,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

NOT_SUPPORTED, COMPLETED, SUCCESS = 0, 3, 0  # nvmlGpuFabricState_t, nvmlReturn_t
RACK_WIDE = ("GB200", "GB300")
WITHOUT_REGISTRATION = ("V100", "A100")  # GPUs registered with a fabric begin with Hopper


@evidence("nvidia-smi -q | grep -A12 Fabric")
def test_fabric_state(gpu: Gpu, node: Node) -> None:
    """NVLink fabric state.

    On types with NVSwitch a GPU must be registered with its fabric before CUDA can start. Links can be up while the
    fabric is down.

    Remedy (reset or reboot): Restart fabric manager when no job is running, or reboot the node. If the state persists,
    replace the node.
    """
    fabric = fabric_of(gpu, node)
    assert fabric.state == COMPLETED, f"fabric state is {fabric_state(fabric.state)}; expected completed"
    assert fabric.status == SUCCESS, f"fabric status is {fabric.status}; expected 0 (success)"
    data, unread = readings(fabric, "health_mask", "health_summary")
    faults = ", ".join(fabric_faults(data.get("health_mask", 0)))
    assert not faults, f"fabric health: {faults}; expected no fault"
    summary = fabric_summary(data.get("health_summary") or 0)
    assert summary.verdict != "fail", f"fabric health is {summary.words}; expected healthy"
    require([why for why in unread if isinstance(why, Incomplete)])  # a driver too old for the mask has none
    if summary.verdict == "concern":
        concern(f"fabric health is {summary.words}; expected healthy")


@evidence("nvidia-smi --query-gpu=index,fabric.cliqueId,fabric.clusterUuid --format=csv")
def test_fabric_uniform(node: Node) -> None:
    """NVLink fabric membership.

    Two GPUs reach each other by NVLink only within one clique of one cluster. All GPUs of a node, and of a tray in a
    rack, belong to the same one.

    Remedy (reset or reboot): Reset the GPUs or reboot the node. On NVL72 trays check the rack's fabric manager and its
    partitions.
    """
    places, unread = places_of(node)
    usual = Counter(places.values()).most_common(1)[0][0] if places else ""
    strays = {index: where for index, where in places.items() if where != usual}
    named = ", ".join(f"GPU {index} in {where}" for index, where in strays.items())
    assert not strays, f"{named}; expected {usual}, as the others"
    require([why for why in unread if not places or isinstance(why, Incomplete)])


def places_of(node: Node) -> tuple[dict[int, str], list[Incomplete | NotApplicable]]:
    """Where each GPU is, and why that is unknown for the others."""
    places: dict[int, str] = {}
    unread: list[Incomplete | NotApplicable] = []
    for gpu in node.gpus:
        try:
            places[gpu.index] = place(fabric_of(gpu, node))
        except (Incomplete, NotApplicable) as why:
            unread.append(why)
    return places, unread


def place(fabric: Fabric) -> str:
    """Where a GPU is, in words: `clique 3 of cluster 0011…`."""
    return f"clique {fabric.clique} of cluster {fabric.cluster_uuid[:32]}"


def fabric_of(gpu: Gpu, node: Node) -> Fabric:
    """The fabric of a GPU that must have one. Raises NotApplicable where it has none, and Incomplete."""
    if node.nvlinks_due == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink fabric")
    if gpu.is_partitioned:
        not_applicable("MIG is on: the GPU is not part of a fabric")
    fabric = gpu.fabric
    if fabric.state == NOT_SUPPORTED and any(model in gpu.name for model in WITHOUT_REGISTRATION):
        not_applicable(f"{gpu.name[:40]} is not registered with a fabric")
    if fabric.state == NOT_SUPPORTED:
        node.expected("nvlinks")  # raises where it is unknown whether it should have one
    return fabric


@evidence("systemctl status nvidia-imex; nvidia-imex-ctl -q")
def test_imex(node: Node) -> None:
    """IMEX service.

    The GPUs of a rack share their memory over NVLink through nvidia-imex on every tray. Without it, jobs across trays
    fall back to the network or do not start. On Kubernetes, pods may bring their own.

    Remedy (restore service): Configure the trays of the domain (/etc/nvidia-imex/nodes_config.cfg), enable nvidia-imex
    and start it.
    """
    data = [readings(gpu, "name") for gpu in node.gpus]
    if not any(model in one.get("name", "") for one, _ in data for model in RACK_WIDE):
        require([why for _, unread in data if not any(known for known, _ in data) for why in unread])
        not_applicable("no GPU here shares its memory over a rack's NVLink")
    service = node.services.get("nvidia-imex")
    state = "not installed" if service is None or not service.is_installed else service.active
    if state != "active":
        concern(f"nvidia-imex is {state}; expected active, unless pods bring their own")


@evidence("systemctl status nvidia-fabricmanager; nv-fabricmanager --version")
def test_fabric_manager(node: Node) -> None:
    """Fabric manager.

    On types whose NVSwitches belong to the node, fabric manager must run and have exactly the driver's version, or CUDA
    does not start on more than one GPU. On NVL72 trays the rack runs it.

    Remedy (restore service): Start nvidia-fabricmanager; install the version that matches the driver.
    """
    if not node.of_type("nvswitch"):
        not_applicable(f"{node.instance_type} needs no fabric manager on the node")
    service = node.services.get("nvidia-fabricmanager")
    state = "not installed" if service is None or not service.is_installed else service.active
    assert state == "active", f"nvidia-fabricmanager is {state}; expected active"
    try:
        data = node.fabric_manager_version.output
    except Absent:
        incomplete("fabric manager runs in an unknown version: nv-fabricmanager is not found; expected the driver's")
    found = re.search(r"\d+\.\d+(?:\.\d+)?", data)
    if not found:
        incomplete(f"nv-fabricmanager --version says {data.strip()[:60]!r}; expected a version")
    assert found[0] == node.nvml.driver, (
        f"fabric manager {found[0]} with driver {node.nvml.driver}; expected the same version"
    )
