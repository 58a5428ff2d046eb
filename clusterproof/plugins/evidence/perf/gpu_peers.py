"""Which GPUs of a node compare with one another: those of one model, and for copies as near to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.perf.gpu_speed import GPU_TO_GPU, Speeds

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

OTHERS = ", others "  # in a name, before the distances to the others
UNKNOWN_WAYS = "others at unknown distances"
VGA = "0300"  # PCI class


def models_of(node: Node, number: int) -> tuple[str, ...]:
    """The models of this many of its GPUs by PCI device id, in the order of the bus; empty if one is unknown.

    They are only known if there are exactly this many, apart from those for a display; else it is unknown which they
    are.
    """
    computing = computing_of(node)
    return computing if len(computing) == number else tuple(model for model, _ in _on_bus(node))


def computing_of(node: Node) -> tuple[str, ...]:
    """The models of its GPUs by PCI class, without those for a display if there are others; empty if one is unknown."""
    on_bus = _on_bus(node)
    return tuple(model for model, kind in on_bus if not kind.startswith(VGA)) or tuple(model for model, _ in on_bus)


def _on_bus(node: Node) -> list[tuple[str, str]]:
    """The model and the PCI class of each GPU; empty if the address or the model of one is unknown."""
    on_bus = readings(node, "gpus_on_bus")[0].get("gpus_on_bus", ())
    gpus = [readings(gpu, "address", "device", "pci_class")[0] for gpu in on_bus]
    if not all({"address", "device"} <= gpu.keys() for gpu in gpus):
        return []
    return [(gpu["device"], gpu.get("pci_class", "")) for gpu in sorted(gpus, key=lambda gpu: gpu["address"])]


def by_model(node: Node, speeds: Speeds, measured: Collection[str] = ()) -> Mapping[str, Speeds]:
    """The `measured` GPUs by model; empty if it is unknown which GPU is of which model."""
    models = models_of(node, len(measured or speeds))
    is_one, are_all = len({*models}) == 1, {*(measured or speeds)} == {*map(str, range(len(models)))}
    speeds_of_models: dict[str, dict[str, float]] = {}
    for gpu, speed in speeds.items():
        model = models[0] if is_one else models[int(gpu)] if are_all else ""
        speeds_of_models.setdefault(model, {})[gpu] = speed
    return speeds_of_models


def of_models(node: Node, speeds: Speeds, models: Collection[str], measured: Collection[str] = ()) -> Speeds:
    """The GPUs that may be of one of these models; all GPUs if the node's models, or these, are unknown.

    If it is unknown which of its GPUs were measured, all may be, as soon as one that is not for a display is.
    """
    known = computing_of(node)
    if not (models and known):
        return speeds
    speeds_of_models = by_model(node, speeds, measured)
    unknown = {} if {*known}.isdisjoint(models) else speeds_of_models.get("", {})
    return {
        gpu: speed
        for of_model in (unknown, *map(speeds_of_models.get, models))
        for gpu, speed in (of_model or {}).items()
    }


def by_topology(node: Node, of_copies: Mapping[str, Speeds]) -> Mapping[str, Speeds]:
    """Copies between GPUs apart for GPUs that are as near to the others: `GPU to GPU by x, others 1 NODE, 1 SYS`.

    Speed has no part in this, so that nodes of the same build can be compared.
    """
    separate: dict[str, dict[str, float]] = {}
    for name, speeds in of_copies.items():
        topologies = topology_of(node, name, speeds)
        for gpu, speed in speeds.items():
            separate.setdefault(", ".join(filter(None, (name, topologies.get(gpu)))), {})[gpu] = speed
    return separate


def topology_of(node: Node, name: str, speeds: Speeds) -> Mapping[str, str]:
    """How near the other GPUs are to each: `others 1 PIX, 2 SYS`; nothing of a GPU that has NVLinks to them.

    A GPU whose distances are unknown is like no other.
    """
    if not name.startswith(GPU_TO_GPU):
        return {}
    paths, linked = _paths(node), _linked(node, len(speeds))
    if len(linked) >= len(speeds) and all(linked):
        return {}
    topologies = {gpu: f"{UNKNOWN_WAYS} from GPU {gpu}" for gpu in speeds}
    if speeds.keys() == {*map(str, range(len(paths)))}:
        topologies |= {str(gpu): path for gpu, path in enumerate(paths)}
    if speeds.keys() == {*map(str, range(len(linked)))}:
        topologies |= {str(gpu): "" for gpu, is_linked in enumerate(linked) if is_linked}
    return topologies


def _paths(node: Node) -> list[str]:
    """The distances of each GPU to the others, in the order of the bus; empty if those of one are unknown."""
    paths = readings(node, "gpu_paths")[0].get("gpu_paths", {}).values()
    counted = [Counter(map(str, readings(of_gpu, "gpus")[0].get("gpus", {}).values())) for of_gpu in paths]
    if any(sum(counts.values()) < len(counted) - 1 for counts in counted):
        return []
    return [
        f"others {', '.join(f'{counts[distance]} {distance}' for distance in sorted(counts))}" for counts in counted
    ]


def _linked(node: Node, measured: int) -> list[bool]:
    """Whether each GPU is known to have NVLinks to all others, or any NVLink if it is unknown to which GPU.

    Only GPUs that answer count, if these are not as many as were measured: CUDA does not count a lost GPU.
    """
    read = [readings(gpu, "nvlink_states", "nvlinks_to")[0] for gpu in readings(node, "gpus")[0].get("gpus", ())]
    answering = [of for of in read if "nvlink_states" in of]
    if len(read) != measured:
        read = answering
    return [
        any(of.get("nvlink_states", ())) and (not (to := of.get("nvlinks_to")) or _leads_to(to, len(answering) - 1))
        for of in read
    ]


def _leads_to(links: Mapping[str, int], others: int) -> bool:
    return sum(map(bool, links.values())) >= others
