"""Suspects for wrong results of collectives: a GPU, a link, a NIC or the network, by who received whose data wrong.

Each hypothesis has a likelihood for the observations: a link affects one pair of ranks, a GPU everything from or to
it. A hypothesis that is far likelier than all others is suspected. A sum of unknown source may have been changed by
any rank on its way: it has little weight, and between nodes identifies nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import prod

from clusterproof.plugins.core.record import record

SURE = 0.95  # of one hypothesis among all
MAX_SEEN = 64  # maximum considered: more do not increase confidence
SUMS = ("all_reduce", "reduce_scatter")
DIRECT = ("all_to_all", "reduce_scatter")  # from the sender to the receiver, both known


@record
class WrongElements:
    """Wrong elements of one operation in one round: the sender (None: unknown), and the receivers."""

    operation: str
    sender: int | None
    receivers: frozenset[int]


@record
class Suspect:
    """`kind` is GPU, link, NIC or network; `ranks` are one, or the two of a link; `nodes` those of a network."""

    kind: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()


@record
class Ranks:
    """The node of each rank."""

    node_of: Sequence[str]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.node_of)

    def of(self, node: str) -> frozenset[int]:
        """The ranks of a node."""
        return frozenset(rank for rank, name in enumerate(self.node_of) if name == node)

    def is_far(self, rank: int, other: int) -> bool:
        """Whether the network is between two ranks."""
        return self.node_of[rank] != self.node_of[other]


def seen(wrong_blocks: Iterable[tuple[str, str, int | None, int]]) -> list[WrongElements]:
    """What was seen, from the operation, its type and round, and the sender and receiver of each wrong block."""
    together: dict[tuple[str, str, int | None], set[int]] = {}
    for operation, which, sender, receiver in wrong_blocks:
        together.setdefault((operation, which, sender), set()).add(receiver)
    return [WrongElements(name, sender, frozenset(receivers)) for (name, _, sender), receivers in together.items()]


def suspects(observed: Iterable[WrongElements], ranks: Ranks) -> tuple[Suspect, ...]:
    """The one that is sure; several where any may be; none where nothing tells, or no single one explains it all."""
    weighed = sorted(observed, key=lambda sighting: sighting.sender is None)[:MAX_SEEN]  # what has a sender tells most
    is_between_nodes = len(set(ranks.node_of)) > 1
    if ranks.count < 2 or not any(_tells(sighting, is_between_nodes) for sighting in weighed):
        return ()
    weights = {
        suspect: prior * prod(_chance(suspect, sighting, ranks) for sighting in weighed)
        for kind in _hypotheses(ranks).values()
        for suspect, prior in kind.items()
    }
    total_weight = sum(weights.values())
    likely = sorted((suspect for suspect in weights if weights[suspect] > 0), key=lambda suspect: -weights[suspect])
    kept: list[Suspect] = []
    for suspect in likely:
        kept.append(suspect)
        if sum(weights[kind] for kind in kept) >= SURE * total_weight:
            break
    return tuple(kept)


def _tells(item: WrongElements, is_between_nodes: bool) -> bool:
    """Whether it can name anybody by itself: of what is added up between nodes, too many have had a part in it."""
    if is_between_nodes:
        return item.operation not in SUMS
    return item.sender is not None or len(item.receivers) == 1


def _hypotheses(ranks: Ranks) -> Mapping[str, Mapping[Suspect, float]]:
    """All hypotheses with priors: equal for each kind, and within a kind."""
    every = range(ranks.count)
    nodes = list(dict.fromkeys(ranks.node_of))
    by_kind = {
        "GPU": [Suspect("GPU", (rank,)) for rank in every],
        "link": [Suspect("link", pair) for pair in combinations(every, 2)],
    }
    if len(nodes) > 1 and ranks.count > len(nodes):
        by_kind["NIC"] = [Suspect("NIC", (rank,)) for rank in every]
        by_kind["network"] = [Suspect("network", (), pair) for pair in combinations(nodes, 2)]
    return {kind: dict.fromkeys(ones, 1 / len(ones)) for kind, ones in by_kind.items()}


def _chance(suspect: Suspect, item: WrongElements, ranks: Ranks) -> float:
    """How likely a suspect makes it that the wrong elements are just these."""
    if item.sender is None and len(item.receivers) > 1:
        return _by_sum_of_several(suspect, item, ranks)
    if suspect.kind == "network":
        return _by_network(suspect.nodes, item, ranks)
    if len(suspect.ranks) > 1:
        return _by_link(suspect.ranks, item, ranks)
    (rank,) = suspect.ranks
    if item.sender is None:
        return _by_sum(rank, item, ranks) / (2 if suspect.kind == "NIC" else 1)
    reached = [other for other in range(ranks.count) if other != rank]
    if suspect.kind == "NIC":
        reached = [other for other in reached if ranks.is_far(rank, other)]
        if not all(ranks.is_far(item.sender, other) for other in item.receivers):
            return 0.0
    one_of_them = 1 / (2 * len(reached))
    if item.sender == rank:
        return one_of_them if len(item.receivers) == 1 else 0.5
    return one_of_them if item.receivers == {rank} else 0.0


def _by_sum(rank: int, item: WrongElements, ranks: Ranks) -> float:
    """Of a sum that is wrong on one rank alone: that rank's own, but anybody may have added to it or passed it on."""
    return 0.5 if item.receivers == {rank} else 1 / (2 * ranks.count)


def _by_sum_of_several(suspect: Suspect, item: WrongElements, ranks: Ranks) -> float:
    """Any rank may have changed it before these had it; what all of one node have alone came wrong between nodes."""
    nodes = {ranks.node_of[rank] for rank in suspect.ranks}
    is_between = suspect.kind in ("NIC", "network") or len(nodes) > 1
    is_of_one_node = any(item.receivers == ranks.of(node) for node in dict.fromkeys(ranks.node_of))
    is_all = len(item.receivers) == ranks.count
    return 0.25 if is_between and is_of_one_node and not is_all else 1 / (2 * ranks.count)


def _by_link(pair: Sequence[int], item: WrongElements, ranks: Ranks) -> float:
    """In a ring a block comes by a link that its sender has no part in; between two ranks it comes by theirs."""
    if len(item.receivers) > 1:
        is_everyone_else = len(item.receivers) == ranks.count - 1 and item.sender not in item.receivers
        is_possible = item.operation == "all_gather" and is_everyone_else and item.sender in pair
        return 0.25 / (ranks.count - 1) if is_possible else 0.0
    (receiver,) = item.receivers
    if receiver not in pair:
        return 0.0
    if item.sender in pair and item.sender != receiver:
        return 0.5
    is_relayed = item.sender is None or (item.operation not in DIRECT and item.sender != receiver)
    return 0.25 / (ranks.count - 1) if is_relayed else 0.0


def _by_network(pair: Sequence[str], item: WrongElements, ranks: Ranks) -> float:
    """Between two nodes: from any rank of one to one rank of the other, or to all of them."""
    if item.sender is None:
        both = ranks.of(pair[0]) | ranks.of(pair[1])
        return 1 / (2 * len(both)) if item.receivers <= both else 0.0
    sender_node = ranks.node_of[item.sender]
    if sender_node not in pair:
        return 0.0
    other_ranks = ranks.of(pair[0] if sender_node == pair[1] else pair[1])
    if not item.receivers <= other_ranks:
        return 0.0
    either = 1 / (2 * len(ranks.of(sender_node)))
    return either / len(other_ranks) if len(item.receivers) == 1 else either
