"""The NVLink domain of a rack: its trays, and whether they are alike."""

from __future__ import annotations

from collections import Counter, defaultdict

from clusterproof.checks.gpu.test_fabric import fabric_of
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import reading_of, readings
from clusterproof.plugins.evidence.gpu.facts_rack import CLUSTER, cluster_of, require_rack
from clusterproof.plugins.evidence.gpu.facts_racks import rack_of, racks_of
from clusterproof.plugins.evidence.group import Group, Values, describe, differences
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.gpu, mark.preflight, mark.hyperpod_node_debugger("G")]


@evidence("nvidia-smi --query-gpu=fabric.clusterUuid --format=csv on all trays of the rack")
def test_rack_trays(node: Node) -> None:
    """Trays of the NVLink domain.

    The trays of a rack form one cluster of the NVLink fabric. --expect trays=N says how many there should be: more is a
    fault; fewer is a concern, since one may be out for repair, or incomplete if nodes that the run left out, or whose
    fabric could not be read, may be the others. Without it, a domain larger than its type allows is a concern, and a
    domain is short of trays only when most domains here are complete.

    Remedy (investigate): Look for trays that did not answer or are missing from the inventory, and compare the
    partitions of the rack's fabric manager. Reset a tray that is in a cluster of its own.
    """
    require_rack(node)
    from clusterproof.plugins.core.nodeset import fold  # most nodes are of no rack

    own = own_cluster(node)
    trays, due = tuple(tray.name for tray in rack_of(node).nodes), node.target.expect.get("trays")
    seen, sizes = f"{own} has {number_of(len(trays), 'tray')} here ({fold(trays)})", sizes_of(node)
    if due is not None:
        fail_if(len(trays) > due, f"{seen}; expected {due}")
        evaluate_less(node, seen, due, str(due))
        return
    concern_if(len(trays) > max(sizes), f"{seen}; expected at most {max(sizes)}")
    domains = node.run.once("domains by the sizes of their type", domains_of).get(sizes, Counter())
    count = sum(domains[size] for size in sizes)
    if len(trays) not in sizes and count > domains.total() * node.threshold("group.majority"):
        largest = max(size for size in sizes if domains[size])
        evaluate_less(node, seen, max(sizes), f"{largest}, as in {count} of {domains.total()} domains here")


def evaluate_less(node: Node, seen: str, due: int, expected: str) -> None:
    """Nothing if a domain has all expected trays; otherwise a concern, or incomplete if others may belong to it."""
    trays, unknown = len(rack_of(node).nodes), racks_of(node.run).unread_like(node)
    if trays < due and node.group.is_part:
        incomplete(f"{seen}; expected {expected}, but this run does not cover the whole inventory")
    if trays < due <= trays + unknown:
        incomplete(f"{seen}, and the rack of {number_of(unknown, 'node')} is unknown; expected {expected}")
    concern_if(trays < due, f"{seen}; expected {expected}")


def own_cluster(node: Node) -> str:
    """The cluster of a tray. Raises NotApplicable if it is in none, and Incomplete."""
    own = cluster_of(node)[CLUSTER]
    if own is None:
        fabric_of(node.gpus[0], node)
        not_applicable("no GPU here is known to be in a cluster of the fabric")
    return own


def sizes_of(node: Node) -> tuple[int, ...]:
    """How many trays a domain of its type has; for an unknown type, those of an NVL72."""
    row = reading_of(node, "type")
    return row.trays if row and row.trays else (int(node.threshold("rack.trays")),)


def domains_of(run: Group[Node]) -> dict[tuple[int, ...], Counter[int]]:
    """For types whose domains have these sizes, how many domains of a run have each number of trays."""
    by_sizes: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for rack in racks_of(run).every:
        by_sizes[sizes_of(rack.nodes[0])][len(rack.nodes)] += 1
    return by_sizes


@evidence(
    "nvidia-smi --query-gpu=driver_version,vbios_version --format=csv; nvidia-imex-ctl -N; on all trays of a rack"
)
def test_rack_uniform(node: Node) -> None:
    """Trays compared within an NVLink domain.

    IMEX refuses connections between trays with different versions, and a tray with fewer NVLinks slows down its whole
    rack. Driver, GPU firmware, NVLinks, nvidia-imex version and IMEX channels are compared with the domain's other
    trays.

    Remedy (fix configuration): Install the versions that the other trays have and set the same NVreg_ImexChannelCount.
    If NVLinks are missing, reset the GPUs.
    """
    require_rack(node)
    own_cluster(node)
    deviations = differences(node, "trays of a domain", of_tray, absent=None, among=rack_of(node))
    concern_if(deviations, describe(deviations))


def of_tray(node: Node) -> Values:
    """The values that are the same on all trays of a domain, by name with the domain's; None for an unknown one."""
    where = cluster_of(node)[CLUSTER]
    gpus = [readings(gpu, "vbios", "nvlinks")[0] for gpu in node.gpus]
    links = [sum(link is True for link in reading["nvlinks"]) for reading in gpus if "nvlinks" in reading]
    imex, own = reading_of(node, "imex"), reading_of(node, "imex_self")
    channels = readings(imex, "channels", "channel_count")[0] if imex else {}
    values = {
        "driver": reading_of(node, "nvml.driver"),
        "VBIOS": ", ".join(sorted({reading["vbios"] for reading in gpus if "vbios" in reading})) or None,
        "active NVLinks": str(sum(links)) if len(links) == len(gpus) else None,
        "nvidia-imex": (own.version or None) if own else None,
        "IMEX channel 0": ("there" if 0 in channels["channels"] else "missing") if "channels" in channels else None,
        "IMEX channels": str(count) if (count := channels.get("channel_count")) else None,
    }
    return {f"{name} in {where}": value for name, value in values.items()} if where else {}
