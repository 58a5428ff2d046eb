"""What the GPUs of a node are compared by, read once of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.evidence.fact import collected_by
from clusterproof.plugins.evidence.field import readings
from clusterproof.plugins.evidence.gpu.facts import Gpu
from clusterproof.plugins.evidence.kernel_log.facts import pci_address

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

NAMES = ("name", "nvlink_states", "pcie_gen_max", "pcie_width_max", "pcie_width")


@collected_by()
def of_each(node: Node) -> Mapping[str, tuple[Any, ...]]:
    """By name, a value of each GPU, in their order: None where it is not reported."""
    reported = [readings(gpu, *NAMES)[0] for gpu in node.gpus]
    return {name: tuple(reading.get(name) for reading in reported) for name in NAMES}


@collected_by()
def nvlinks_between(node: Node) -> Mapping[str, Mapping[str, int]]:
    """How many NVLinks lead from each GPU to others, of those that report them."""
    return {gpu.label: reading["nvlinks_to"] for gpu in node.gpus if (reading := readings(gpu, "nvlinks_to")[0])}


@collected_by()
def gpu_at(node: Node) -> Mapping[str, Gpu]:
    """The GPUs by their addresses on the bus, of those that report one."""
    return {pci_address(readings(gpu, "pci")[0].get("pci", "")): gpu for gpu in reversed(node.gpus)}


def alike(gpu: Gpu, node: Node, name: str) -> list[tuple[int, Any]]:
    """A value of each GPU that may be of this one's model, with its index, of those that report it."""
    own, values = readings(gpu, "name")[0].get("name"), of_each.of(node)
    return [
        (other.index, value)
        for other, model, value in zip(node.gpus, values["name"], values[name], strict=True)
        if (None in (own, model) or model == own) and value is not None
    ]


def is_of_most(gpu: Gpu, node: Node) -> bool:
    """Whether it is known to be of the model of most GPUs of the node."""
    models = Counter(model for model in of_each.of(node)["name"] if model is not None)
    return 2 * models[readings(gpu, "name")[0].get("name")] > len(node.gpus)
