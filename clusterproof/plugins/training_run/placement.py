"""The node and GPU of each rank: according to its steps, a hostfile, or Slurm's distribution of ranks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from clusterproof.plugins.core.record import record

BLOCK = "as Slurm's block distribution places ranks"
HOSTFILE = "by the hostfile"


@record
class Placement:
    """Where a rank runs; `gpu` is its number on the node, None if unknown; `by` says how it is known."""

    rank: int
    node: str
    gpu: int | None = None
    by: str = ""

    @property
    def location(self) -> str:
        """`gpu002, GPU 4`."""
        return self.node if self.gpu is None else f"{self.node}, GPU {self.gpu}"

    @property
    def description(self) -> str:
        """The same, and how it is known."""
        return f"{self.location} {self.by}" if self.by else self.location


@record
class Slots:
    """The number of ranks on a node: a line of a hostfile."""

    node: str
    count: int


@record
class OnNode:
    """A host of a run that is a pod, and its node."""

    host: str
    node: str


def placements(
    recorded: Mapping[int, Placement],
    hostfile: Sequence[Slots],
    cluster: Sequence[Slots],
    ranks: Iterable[int],
    left: Container[str] = (),
) -> Mapping[int, Placement]:
    """By rank, as far as known: the run's own data takes precedence over its layout.

    A hostfile, or a cluster's nodes with their GPUs, counts only if it has exactly as many places as there are ranks: a
    job on some of the nodes would be placed wrongly. On nodes that a rank has `left`, the order does not give GPU
    numbers.
    """
    ranks = list(ranks)
    world = max(ranks, default=-1) + 1
    for slots, by in ((hostfile, HOSTFILE), (cluster, BLOCK)):
        if not recorded and world == sum(node.count for node in slots) and all(node.count for node in slots):
            return {placement.rank: placement for placement in _in_order(slots, by)}
    return {
        rank: placement if placement.gpu is not None or placement.node in left else _numbered(placement, recorded)
        for rank, placement in recorded.items()
    }


def on_nodes(placed: Mapping[int, Placement], pods: Mapping[str, str]) -> Mapping[int, Placement]:
    """The same with nodes in place of pods, if it is known in which pods ranks ran."""
    return {
        rank: Placement(rank, pods.get(placement.node) or placement.node, placement.gpu, placement.by)
        for rank, placement in placed.items()
    }


def _in_order(slots: Iterable[Slots], by: str) -> Iterable[Placement]:
    rank = 0
    for slots_of_host in slots:
        for gpu in range(slots_of_host.count):
            yield Placement(rank, slots_of_host.node, gpu, by)
            rank += 1


def _numbered(placement: Placement, recorded: Mapping[int, Placement]) -> Placement:
    """With GPU numbers, if the ranks of a node are consecutive: the first rank has the first GPU.

    It is the first if the rank before it, unless it is 0, is on another node: a rank of an unread file is on any.
    """
    ranks = sorted(other.rank for other in recorded.values() if other.node == placement.node)
    follow = ranks == list(range(ranks[0], ranks[0] + len(ranks)))
    is_first = ranks[0] == 0 or ranks[0] - 1 in recorded
    return Placement(placement.rank, placement.node, placement.rank - ranks[0]) if follow and is_first else placement


def number_of(gpu: object) -> int | None:
    """The number of a GPU: `3`, `cuda:3`; None for any other name."""
    text = str(gpu).strip().lower().removeprefix("cuda:").removeprefix("gpu")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 4 else None


def pairs_of(node: str, nodes: Sequence[str]) -> str:
    """Pairs that measure a node with two others of its cluster: `gpu002~gpu001,gpu002~gpu003`; empty if impossible."""
    if node not in nodes:
        return ""
    at = nodes.index(node)
    near = sorted((other for other in range(len(nodes)) if other != at), key=lambda other: (abs(other - at), other))
    return ",".join(f"{node}~{nodes[other]}" for other in near[:2])
