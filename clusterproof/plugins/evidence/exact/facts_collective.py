"""Collectives of exact integers: which ranks took part, wrong results, and their cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import part
from clusterproof.plugins.evidence.exact.facts import bits_in_words, every_alone, gpu_called, made_unless, small_numbers
from clusterproof.plugins.evidence.exact.suspects import Ranks, Suspect, seen, suspects
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    at_least_one,
    each,
    integer,
    known,
    number,
    objects_as,
    optional,
    text,
)
from clusterproof.plugins.evidence.perf.facts import ProgramRun, document

MAX_SUSPECTS = 5  # maximum named
MAX_RANKS = 64  # of one run: two nodes
NCCL = "nccl"  # the backend for GPUs


@record
class WrongBlock(Reported):
    """What was wrong in one rank's block from another rank, in one round."""

    round = Field(integer)
    sender = Field(optional(integer))
    elements = Field(integer)
    first = Field(integer)
    how = Field(optional(text))
    other = Field(optional(integer))
    bits = Field(small_numbers)

    @property
    def description(self) -> str:
        """`12 elements from 512 on, bit 9` or `… as sent by rank 3`."""
        location = f"{number_of(self.elements, 'element')} from {self.first} on"
        if self.how:
            return f"{location}, {self.how}{'' if self.other is None else f' {self.other}'}"
        return f"{location}, {bits_in_words(self.bits)}"


@record
class OperationResult(Reported):
    """One operation in one data type, as one rank saw it."""

    operation = Field(text)
    type = Field(text)
    rounds = Field(integer)
    wrong = Field(objects_as(WrongBlock))
    why = Field(optional(text))  # why it was not run

    @property
    def name(self) -> str:
        """`all-reduce of float32`."""
        return f"{self.operation.replace('_', '-')} of {self.type}"


@record
class RankResult(Reported):
    """The answer of one rank."""

    rank = Field(optional(integer))
    rounds = Field(integer)
    gb_per_s = Field(number)
    address = Field(optional(text))  # of its GPU on the PCI bus
    error = Field(optional(text))  # why it ran no more operations
    _made = Field(optional(every_alone(OperationResult)), "operations")

    @property
    def operations(self) -> tuple[OperationResult, ...]:
        """The operations, at least one unless there is an error. Raises Incomplete."""
        return made_unless(self.error, self._made, "operation")


@record
class NodeResult(Reported):
    """The answers of the ranks of one node."""

    backend = Field(text)
    ranks = Field(integer)
    of_each_node = Field(integer)
    node = Field(integer)
    message_bytes = Field(integer)
    answers = Field(every_alone(RankResult))

    @property
    def gap(self) -> str:
        """Why its answers prove nothing about GPUs; empty if they do. Raises Incomplete."""
        over = self.backend
        return "" if over == NCCL else f"the ranks exchanged over {over[:40]}, not over NCCL: no GPU took part"

    @property
    def answered(self) -> tuple[RankResult, ...]:
        """Its ranks, at least one, with their numbers. Raises Incomplete."""
        return tuple(at_least_one([*self.answers], "rank"))

    def number(self, index: int) -> int:
        """The rank of an answer by its place on the node."""
        return self.node * self.of_each_node + index


@record
class ExactCollective(Reported):
    """The collectives of one node's GPUs."""

    given = Field(optional(integer), "gpus")  # number of GPUs available to the measuring process

    @property
    def found(self) -> NodeResult:
        """What PyTorch printed. Raises Incomplete."""
        return NodeResult(document(ProgramRun(self.data)))


@record
class Block:
    """A sender's block that is wrong on one rank, in one round of an operation in one type."""

    operation: OperationResult
    round: int
    sender: int | None
    receiver: int
    words: str

    @classmethod
    def of(cls, operation: OperationResult, wrong: WrongBlock, receiver: int) -> Block:
        """From that rank's report. Raises Incomplete."""
        is_known = wrong.sender is None or (wrong.how and wrong.other == wrong.sender)
        source = "" if is_known else f" from rank {wrong.sender}"
        message = f"rank {receiver}{source}: {wrong.description}"
        return cls(operation, wrong.round, wrong.sender, receiver, message)

    @property
    def cell(self) -> tuple[str, str, int | None, int]:
        """The key for weighing evidence."""
        return self.operation.operation, f"{self.operation.type} {self.round}", self.sender, self.receiver


def wrong_blocks(node: NodeResult) -> list[Block]:
    """Every wrong block on the ranks of a node; unreadable ones make that part of a check incomplete."""
    blocks: list[Block] = []
    for index, answer in enumerate(known(lambda: node.answered, ())):
        with part:
            for operation in each(answer.operations, lambda operation: operation):
                with part:
                    rank = node.number(index)
                    blocks += each(operation.wrong, lambda wrong: Block.of(operation, wrong, rank))  # noqa: B023
    return blocks


def addresses_of(node: NodeResult) -> Iterator[tuple[int, str | None]]:
    """The ranks of a node with the addresses of their GPUs."""
    answers = enumerate(known(lambda: node.answered, ()))
    return each(answers, lambda numbered: (node.number(numbered[0]), numbered[1].address))


@record
class Blame:
    """What was wrong on the ranks of these nodes, and the suspects; `names` are in the order of ranks.

    `addresses` are those of ranks' GPUs on the PCI bus, as far as they are known.
    """

    blocks: tuple[Block, ...]
    names: tuple[str, ...]
    of_each_node: int
    suspects: tuple[Suspect, ...]
    addresses: Mapping[int, str | None]

    @classmethod
    def of(cls, nodes: Sequence[NodeResult], names: Sequence[str] = ("this node",)) -> Blame:
        """From all reports of these nodes. Unreadable ones are left out, and make the check incomplete."""
        names = names if len({*names}) == len(names) else [f"node {number}" for number in range(len(names))]
        blocks = [block for node in nodes for block in wrong_blocks(node)]
        each_node = min(max(each(nodes, lambda node: node.of_each_node), default=1), MAX_RANKS // len(names))
        ranks = Ranks([name for name in names for _ in range(each_node)])
        there = range(ranks.count)
        cells = [
            block.cell
            for block in blocks
            if block.receiver in there and (block.sender is None or block.sender in there)
        ]
        addresses = {rank: address for node in nodes for rank, address in addresses_of(node)}
        return cls(tuple(blocks), tuple(names), max(each_node, 1), suspects(seen(cells), ranks), addresses)

    @property
    def description(self) -> str:
        """What was wrong and who is suspected, in one sentence; empty if nothing was."""
        if not self.blocks:
            return ""
        counted = Counter(block.operation.name for block in self.blocks)
        where = ", ".join(f"{count} wrong in {name}" for name, count in counted.most_common())
        return f"{where} (first {self.blocks[0].words}): {self.verdict}"

    @property
    def verdict(self) -> str:
        """The suspects in words, or that they cannot be determined."""
        if not self.suspects or len(self.suspects) > MAX_SUSPECTS:
            return "whose fault it is cannot be told"
        called = " or ".join(map(self._called, self.suspects))
        return called if len(self.suspects) == 1 else f"{called}; which cannot be told yet"

    @property
    def node(self) -> str:
        """The one node with all suspects; empty for several nodes, or without suspects."""
        nodes = {name for suspect in self.suspects for name in suspect.nodes or map(self._node, suspect.ranks)}
        return nodes.pop() if len(nodes) == 1 else ""

    def _called(self, suspect: Suspect) -> str:
        if suspect.kind == "network":
            return f"the network between {' and '.join(suspect.nodes)}"
        gpus = [self._gpu(rank) for rank in suspect.ranks]
        if suspect.kind == "link":
            return f"the link between {' and '.join(gpus)}"
        return f"the NIC of {gpus[0]}" if suspect.kind == "NIC" else gpus[0]

    def _gpu(self, rank: int) -> str:
        """`GPU 3 (0000:53:00.0)` for one node; `GPU 3 (0000:53:00.0) of gpu007` for several."""
        called = gpu_called(rank % self.of_each_node, self.addresses.get(rank))
        return f"{called} of {self._node(rank)}" if len(self.names) > 1 else called

    def _node(self, rank: int) -> str:
        return self.names[rank // self.of_each_node]
