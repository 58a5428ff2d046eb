"""Which GPUs a node has: each its own, and all of a kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.group import differences, in_words
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [
    mark.gpu,
    mark.preflight,
    mark.ami,
    mark.hyperpod_node_debugger("G"),
]

ON_ONE_BOARD = 2  # GPUs at most: GB200 and GB300 boards carry two, and both report the board's serial
KIND = {"name": "GPU", "vbios": "VBIOS", "memory_total_mib": "memory (MiB)", "power_limit_w": "power limit (W)"}


@evidence("nvidia-smi --query-gpu=index,uuid,serial --format=csv")
def test_gpu_identity(node: Node) -> None:
    """GPU identity.

    UUID and serial identify the hardware that a finding is about, even after a node was replaced; every result carries
    them. Two GPUs that report the same are one GPU seen twice, or have damaged firmware.

    Remedy (reset or reboot): Reboot the node. If two GPUs still report the same, replace it.
    """
    shared, unread = [], []
    for name in ("uuid", "serial"):
        read = [readings(gpu, name) for gpu in node.gpus]
        data = Counter(value for values, _ in read for value in values.values())
        unread += [why for _, whys in read for why in whys if isinstance(why, Incomplete)]  # some have no serial
        shared += [f"{name} {value[:60]} of {data[value]} GPUs" for value in data if is_shared(name, data, data[value])]
    require(unread)
    if shared:
        concern(f"{', '.join(shared)}; expected one each")


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
    found = differences(node, "GPUs", kind_of_gpus)
    if found:
        concern(in_words(found))


def kind_of_gpus(node: Node) -> Mapping[str, str | None]:
    """What the node's GPUs are, in words: the distinct values of all its GPUs. Raises Incomplete."""
    return {words: values_of(node, name) for name, words in KIND.items()}


def values_of(node: Node, name: str) -> str:
    """The distinct values that the node's GPUs report; `not reported` where the driver does not have it."""
    values = set()
    for gpu in node.gpus:
        try:
            values.add(str(getattr(gpu, name))[:40])
        except NotApplicable:
            values.add("not reported")
    return " and ".join(sorted(values))
