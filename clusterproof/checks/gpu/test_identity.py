"""Which GPUs a node has: each its own, and all of a kind."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import NotApplicable, concern_if, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, readings
from clusterproof.plugins.evidence.group import Values, differences, in_words
from clusterproof.plugins.evidence.node import Node

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

ON_ONE_BOARD = 2  # GPUs at most: GB200 and GB300 boards carry two, and both report the board's serial
KIND = {"name": "GPU", "vbios": "VBIOS", "memory_total_mib": "memory (MiB)", "power_limit_w": "power limit (W)"}
OF_ONE_MODEL = {  # what GPUs of one node have alike; their VBIOS and power limits have checks of their own
    "memory_total_mib": "memory (MiB)",
    "power_limit_default_w": "default power limit (W)",
    "clock_max_mhz": "maximal clock (MHz)",
}


@evidence("nvidia-smi --query-gpu=index,uuid,serial --format=csv")
def test_gpu_identity(node: Node) -> None:
    """GPU identity.

    UUID and serial identify the hardware that a finding is about, even after a node was replaced; every result carries
    them. Two GPUs that report the same are one GPU seen twice, or have damaged firmware.

    Remedy (reset or reboot): Reboot the node. If two GPUs still report the same, replace it.
    """
    for name in ("uuid", "serial"):
        data = Counter(each(node.gpus, attrgetter(name)))  # some have no serial
        shared = [f"{name} {value[:60]} of {data[value]} GPUs" for value in data if is_shared(name, data, data[value])]
        concern_if(shared, f"{', '.join(shared)}; expected one each")


def is_shared(name: str, data: Counter[str], count: int) -> bool:
    """Whether too many GPUs share a value: a serial is the board's, and all boards of a node carry the same number."""
    if name == "serial" and set(data.values()) == {count} and len(data) > 1:
        return count > ON_ONE_BOARD
    return count > 1


@evidence("nvidia-smi --query-gpu=name,vbios_version,memory.total,enforced.power.limit --format=csv")
def test_gpu_uniform(node: Node) -> None:
    """GPUs compared with the group.

    Jobs run at the pace of the slowest GPU: a model, memory size, VBIOS or power limit that differs from the rest of
    the group makes a node the odd one out.

    Remedy (investigate): Lower power limit: set it back (nvidia-smi -pl). Otherwise ask for a replacement of the node
    if it is slow.
    """
    evaluate_among_gpus(node)
    for gpu in node.gpus:
        for name in KIND:
            with part:
                getattr(gpu, name)
    found = differences(node, "GPUs", kind_of_gpus)
    concern_if(found, in_words(found))


def evaluate_among_gpus(node: Node) -> None:
    """A concern for each GPU that is less, or more, than most GPUs of its model on the node."""
    data = [(gpu, readings(gpu, "name", *OF_ONE_MODEL)[0]) for gpu in node.gpus]
    for name, words in OF_ONE_MODEL.items():
        values = [(gpu.label, one.get("name"), one[name]) for gpu, one in data if one.get(name)]
        for label, model, own in values:
            alike = [value for _, other, value in values if other == model or None in (other, model)]
            usual, count = Counter(alike).most_common(1)[0]
            is_odd = own != usual and len(values) > ON_ONE_BOARD
            concern_if(is_odd, f"{label}: {words} {own:g}; expected {usual:g} as on {count} GPUs of the node")


def kind_of_gpus(node: Node) -> Values:
    """What the node's GPUs are, in words: the distinct values of all its GPUs; None where none reports it."""
    return {words: values_of(node, name) for name, words in KIND.items()}


def values_of(node: Node, name: str) -> str | None:
    """The distinct values that the node's GPUs report; `not reported` where the driver does not have it."""
    values = set()
    for gpu in node.gpus:
        data, unread = readings(gpu, name)
        values |= {str(value)[:40] for value in data.values()}
        values |= {"not reported" for why in unread if isinstance(why, NotApplicable)}
    return " and ".join(sorted(values)) or None
