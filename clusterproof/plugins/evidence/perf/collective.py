"""Collectives of exact integers: which ranks took part, what of their results was wrong, and whose fault that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    at_least_one,
    each,
    every,
    number,
    optional,
    text,
    whole,
)
from clusterproof.plugins.evidence.perf.exact import small_numbers
from clusterproof.plugins.evidence.perf.facts import Ran
from clusterproof.plugins.evidence.perf.gpu_speed import document
from clusterproof.plugins.evidence.perf.suspects import Ranks, Suspect, seen, suspects

MAX_SUSPECTS = 5  # that are named beside each other
MAX_RANKS = 64  # of one run: two nodes


@record
class WrongBlock(Reported):
    """What one rank had of one other that was wrong, in one round."""

    round = Field(whole)
    sender = Field(optional(whole))
    elements = Field(whole)
    first = Field(whole)
    how = Field(optional(text))
    other = Field(optional(whole))
    bits = Field(small_numbers)

    @property
    def words(self) -> str:
        """`12 elements from 512 on, bit 9` or `… as sent by rank 3`."""
        place = f"{number_of(self.elements, 'element')} from {self.first} on"
        if self.how:
            return f"{place}, {self.how}{'' if self.other is None else f' {self.other}'}"
        return f"{place}, bit{'s' if len(self.bits) > 1 else ''} {listed(map(str, self.bits))}"


@record
class OfOperation(Reported):
    """One operation in one data type, as one rank saw it."""

    operation = Field(text)
    type = Field(text)
    rounds = Field(whole)
    wrong = Field(every(WrongBlock))
    why = Field(optional(text))  # it was not made

    @property
    def name(self) -> str:
        """`all-reduce of float32`."""
        return f"{self.operation.replace('_', '-')} of {self.type}"


@record
class OfRank(Reported):
    """What one rank answered."""

    rank = Field(optional(whole))
    rounds = Field(whole)
    gb_per_s = Field(number)
    error = Field(optional(text))

    @property
    def operations(self) -> tuple[OfOperation, ...]:
        """Operation by operation, at least one. Raises Incomplete."""
        if self.error:
            raise Incomplete(f"{self.error[:200]}; expected the result of each operation")
        return tuple(at_least_one([*Field(every(OfOperation), "operations").__get__(self, OfRank)], "operation"))


@record
class OfNode(Reported):
    """What the ranks of one node answered."""

    backend = Field(text)
    ranks = Field(whole)
    of_each_node = Field(whole)
    node = Field(whole)
    answers = Field(every(OfRank))

    @property
    def answered(self) -> tuple[OfRank, ...]:
        """Its ranks, at least one, each with its number. Raises Incomplete."""
        return tuple(at_least_one([*self.answers], "rank"))

    def number(self, place: int) -> int:
        """The rank of an answer by its place on the node."""
        return self.node * self.of_each_node + place


@record
class ExactCollective(Reported):
    """The collectives of one node's GPUs."""

    @property
    def found(self) -> OfNode:
        """What PyTorch printed. Raises Incomplete."""
        return OfNode(document(Ran(self.data)))


def wrong_blocks(found: Sequence[OfNode]) -> Iterator[tuple[OfOperation, WrongBlock, int]]:
    """Every block that is wrong, with its operation and the rank that has it."""
    for node in found:
        for place, one in enumerate(node.answered):
            if one.error:
                continue
            for operation in each(one.operations, lambda operation: operation):
                for wrong in each(operation.wrong, lambda wrong: wrong):
                    yield operation, wrong, node.number(place)


def said_of(found: Sequence[OfNode], names: Sequence[str] = ()) -> str:
    """What was wrong and whose fault it is, in one sentence; empty where nothing was. `names` are the nodes'."""
    blocks = list(wrong_blocks(found))
    if not blocks:
        return ""
    counted = Counter(operation.name for operation, _, _ in blocks)
    _, wrong, receiver = blocks[0]
    source = "" if wrong.sender is None or (wrong.how and wrong.other == wrong.sender) else f" from rank {wrong.sender}"
    first = f"first rank {receiver}{source}: {wrong.words}"
    where = ", ".join(f"{count} wrong in {name}" for name, count in counted.most_common())
    return f"{where} ({first}): {blame(blocks, found, names)}"


def blame(
    blocks: Sequence[tuple[OfOperation, WrongBlock, int]], found: Sequence[OfNode], names: Sequence[str] = ()
) -> str:
    """The suspects in words, or that it cannot be told."""
    each_node = max((node.of_each_node for node in found), default=1)
    count = min(max((node.ranks for node in found), default=0), MAX_RANKS)
    called = [names[number] if number < len(names) else str(number) for number in range(-(-count // max(each_node, 1)))]
    ranks = Ranks([called[rank // max(each_node, 1)] for rank in range(count)])
    cells = [
        (operation.operation, f"{operation.type} {wrong.round}", wrong.sender, receiver)
        for operation, wrong, receiver in blocks
        if receiver < count and (wrong.sender is None or wrong.sender < count)
    ]
    likely = suspects(seen(cells), ranks)
    if not likely or len(likely) > MAX_SUSPECTS:
        return "whose fault it is cannot be told"
    words = " or ".join(_in_words(one, each_node, called) for one in likely)
    return words if len(likely) == 1 else f"{words}; which cannot be told yet"


def _in_words(one: Suspect, each_node: int, called: Sequence[str]) -> str:
    """`GPU 3`, `the link between GPU 0 and GPU 5`, `the NIC of GPU 2 of gpu007`, `the network between A and B`."""
    if one.kind == "network":
        return f"the network between {' and '.join(one.nodes)}"

    def gpu(rank: int) -> str:
        of = f" of {called[rank // each_node]}" if len(called) > 1 else ""
        return f"GPU {rank % each_node}{of}"

    if one.kind == "link":
        return f"the link between {' and '.join(map(gpu, one.ranks))}"
    return f"the NIC of {gpu(one.ranks[0])}" if one.kind == "NIC" else gpu(one.ranks[0])
