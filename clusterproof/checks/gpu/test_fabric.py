"""The NVLink fabric: each GPU's place in it, who manages it, and the trays of a rack that it joins."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

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
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.gpu.facts import BASEBOARD, Fabric, Gpu
from clusterproof.plugins.evidence.gpu.facts_rack import (
    CLUSTER,
    FABRIC,
    NO_CLUSTER,
    cluster_of,
    is_of_a_rack,
    place,
    place_of,
    require_rack,
)
from clusterproof.plugins.evidence.gpu.facts_racks import rack_of, racks_of
from clusterproof.plugins.evidence.group import Group, Values, differences, in_words
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

    On types with NVSwitch a GPU must be registered with its fabric before CUDA can start. Links can be up while the
    fabric is down.

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
    places: dict[str, str] = {}
    for gpu in node.gpus:
        with part:
            places[gpu.label] = place(fabric_of(gpu, node))
    if not places:
        return
    usual = Counter(places.values()).most_common(1)[0][0]
    named = ", ".join(f"{label} in {where}" for label, where in places.items() if where != usual)
    fail_if(named, f"{named}; expected {usual}, as the others")
    if is_of_a_rack(node):
        fail_if(usual.endswith(NO_CLUSTER), f"the GPUs are in {usual}; expected the cluster of their rack")
        with part:
            deviations = differences(node, FABRIC, place_of)
            is_alone = deviations and node.run.counts(FABRIC, place_of)[FABRIC][deviations[0].own] == 1
            if is_alone and deviations[0].usual:
                concern(in_words(deviations))


def fabric_of(gpu: Gpu, node: Node) -> Fabric:
    """The fabric of a GPU that must have one. Raises NotApplicable where it has none, and Incomplete."""
    if node.nvlinks_due == 0:
        not_applicable(f"{node.type_name or 'this node'} has no NVLink fabric")
    if gpu.is_partitioned:
        not_applicable("MIG is on: the GPU is not part of a fabric")
    try:
        fabric = gpu.fabric
    except NotApplicable:
        name = readings(gpu, "name")[0].get("name", "")
        if not node.nvlinks_due or is_unregistered(name) or (name and not BASEBOARD.search(name)):
            raise
        incomplete(f"the driver reports no fabric; expected one, as {node.type_name or 'this node'} has NVLinks")
    if readings(fabric, "state")[0].get("state") == NOT_SUPPORTED:
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

    On types whose NVSwitches belong to the node, fabric manager must run and have exactly the driver's version, or CUDA
    does not start on more than one GPU. On NVL72 trays the rack runs it.

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
        incomplete("fabric manager has an unknown version: nv-fabricmanager is not found; expected the driver's")
    version = re.search(r"\d+\.\d+(?:\.\d+)?", output)
    if not version:
        incomplete(f"nv-fabricmanager --version says {output.strip()[:60]!r}; expected a version")
    assert version[0] == node.nvml.driver, (
        f"fabric manager {version[0]} with driver {node.nvml.driver}; expected the same version"
    )


@evidence("nvidia-smi --query-gpu=fabric.clusterUuid --format=csv on all trays of the rack")
def test_rack_trays(node: Node) -> None:
    """Trays of the NVLink domain.

    The trays of a rack are in one cluster of the NVLink fabric. --expect trays=N says how many that should be: more are
    a fault, fewer a concern, as one may be away for repair, and incomplete in a run of some nodes only. Without it a
    domain that is larger than the largest of its type is a concern, and one that is not whole where most domains here
    are.

    Remedy (investigate): Look for trays that did not answer or are not among the nodes, and compare the partitions of
    the rack's fabric manager; a tray in a cluster of its own has to be reset.
    """
    require_rack(node)
    from clusterproof.plugins.core.nodeset import fold  # most nodes are of no rack

    own = own_cluster(node)
    trays, due = tuple(tray.name for tray in rack_of(node).nodes), node.target.expect.get("trays")
    unknown, sizes = racks_of(node.run).unread[node.type_name], sizes_of(node)
    seen = f"{own} has {len(trays)} trays here ({fold(trays)})"
    if due is not None:
        fail_if(len(trays) > due, f"{seen}; expected {due}")
        is_less = len(trays) + unknown < due
        if is_less and node.group.is_part:
            incomplete(f"{seen}; expected {due}, of which this run does not have all nodes of the inventory")
        concern_if(is_less, f"{seen}; expected {due}")
        return
    concern_if(len(trays) > max(sizes), f"{seen}; expected at most {max(sizes)}")
    domains = node.run.once("domains by the sizes of their type", domains_of).get(sizes, Counter())
    count = sum(domains[size] for size in sizes)
    is_less = len(trays) not in sizes and len(trays) + unknown < max(sizes)
    usual = max((size for size in sizes if domains[size]), default=0)
    concern_if(
        is_less and count > domains.total() * node.threshold("group.majority"),
        f"{seen}; expected {usual}, as {count} of {domains.total()} domains here are whole",
    )


def own_cluster(node: Node) -> str:
    """The cluster that a tray is in. Raises NotApplicable where it is in none, and Incomplete."""
    own = cluster_of(node)[CLUSTER]
    if own is None:
        fabric_of(node.gpus[0], node)
        not_applicable("no GPU here is known to be in a cluster of the fabric")
    return own


def sizes_of(node: Node) -> tuple[int, ...]:
    """How many trays a domain of its type has; where the type is unknown, those of an NVL72."""
    row = readings(node, "type")[0].get("type")
    return row.trays if row and row.trays else (int(node.threshold("rack.trays")),)


def domains_of(run: Group[Node]) -> dict[tuple[int, ...], Counter[int]]:
    """Of types whose domains have these sizes, how many domains of a run have so many trays."""
    by_sizes: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for rack in racks_of(run).every:
        by_sizes[sizes_of(rack.nodes[0])][len(rack.nodes)] += 1
    return by_sizes


@evidence(
    "nvidia-smi --query-gpu=driver_version,vbios_version --format=csv; nvidia-imex-ctl -N; on all trays of a rack"
)
def test_rack_uniform(node: Node) -> None:
    """Trays of one NVLink domain alike.

    IMEX refuses connections between trays of different versions, and a tray with fewer NVLinks slows all of its rack.
    Driver, GPU firmware, links, versions of nvidia-imex and channels are compared with the other trays of the domain.

    Remedy (fix configuration): Bring the tray to the versions of the others, and to their NVreg_ImexChannelCount; if
    NVLinks are missing, reset the GPUs.
    """
    require_rack(node)
    own_cluster(node)
    deviations = differences(node, "trays of a domain", of_tray, absent=None, among=rack_of(node))
    concern_if(deviations, in_words(deviations))


def of_tray(node: Node) -> Values:
    """What is alike on the trays of a domain, by its name with the domain's; None where it is unknown."""
    where = cluster_of(node)[CLUSTER]
    gpus = [readings(gpu, "vbios", "nvlinks")[0] for gpu in node.gpus]
    links = [sum(link is True for link in reading["nvlinks"]) for reading in gpus if "nvlinks" in reading]
    nvml, imex = (readings(node, name)[0].get(name) for name in ("nvml", "imex"))
    own = readings(node, "imex_self")[0].get("imex_self")
    channels = readings(imex, "channels", "channel_count")[0] if imex else {}
    values = {
        "driver": readings(nvml, "driver")[0].get("driver") if nvml else None,
        "VBIOS": ", ".join(sorted({reading["vbios"] for reading in gpus if "vbios" in reading})) or None,
        "active NVLinks": str(sum(links)) if len(links) == len(gpus) else None,
        "nvidia-imex": (own.version or None) if own else None,
        "IMEX channel 0": ("there" if 0 in channels["channels"] else "missing") if "channels" in channels else None,
        "IMEX channels": str(count) if (count := channels.get("channel_count")) else None,
    }
    return {f"{name} in {where}": value for name, value in values.items()} if where else {}
