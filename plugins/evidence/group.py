"""The nodes that are meant to be alike, what most of them have, and who differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.median import median
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import NotApplicable

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

ABSENT = "none"  # the word for what a node does not have
Values = Mapping[str, str | None]  # by name; None: unknown of this node


@record
class Difference:
    """One value in which a node differs from its group; `usual` is empty where no value has a majority."""

    name: str
    own: str
    usual: str
    alike: int
    reporting: int
    others: str = ""  # where there is no majority: `A on 2, B on 2`

    @property
    def observed(self) -> str:
        """`kernel 6.5.0-1020-aws`."""
        return f"{self.name} {self.own}" if self.usual else f"{self.name} differs from node to node ({self.others})"

    @property
    def expected(self) -> str:
        """`6.8.0-1021-aws as on 15 of 16 nodes`."""
        return f"{self.usual} as on {self.alike} of {self.reporting} nodes" if self.usual else "one for all nodes"


@record
class Usual:
    """The most frequent value of the nodes that report one, and how many of them have it."""

    value: str
    alike: int
    reporting: int
    others: str  # their values, the most frequent first: `A on 2, B on 2`

    @classmethod
    def of(cls, counter: Counter[str]) -> Usual:
        """From how many nodes report each value."""
        value, alike = max(counter.items(), key=lambda item: item[1], default=("", 0))
        others = ", ".join(f"{value} on {count}" for value, count in counter.most_common(4))
        return cls(value, alike, sum(counter.values()), others)


@record
class Median:
    """The middle of what so many nodes measure."""

    value: float
    nodes: int
    is_comparable: bool  # whether there are enough of them for one to be compared with the others


class Group:
    """Nodes of one group and instance type."""

    __slots__ = ("catalog", "counted", "known", "measured", "nodes", "owners", "read", "usuals")

    def __init__(self, nodes: Iterable[Node] = (), catalog: Catalog = PACKAGED) -> None:
        self.nodes = list(nodes)
        self.catalog = catalog
        self.known: dict[str, frozenset[str]] = {}
        self.counted: dict[str, Mapping[str, Counter[str]]] = {}
        self.measured: dict[str, Mapping[str, Median]] = {}
        self.read: dict[str, dict[str, Values]] = {}
        self.usuals: dict[str, Mapping[str, Usual]] = {}
        self.owners: dict[str, Mapping[str, tuple[str, ...]]] = {}

    def most(self, what: str, read: Callable[[Node], Iterable[str]]) -> frozenset[str]:
        """What more than half of its nodes report under `what`; nothing in a group too small to have a majority.

        A node that reports none counts on neither side.
        """
        if what not in self.known:
            self.known[what] = self._most(read)
        return self.known[what]

    def _most(self, read: Callable[[Node], Iterable[str]]) -> frozenset[str]:
        counts: Counter[str] = Counter()
        reporting = 0
        for node in self.nodes:
            try:
                counts.update(set(read(node)))
                reporting += 1
            except Exception:  # noqa: S112 - what one node reported costs no other its verdict
                continue
        if reporting < self.catalog.threshold("group.minimum_nodes"):
            return frozenset()
        majority = reporting * self.catalog.threshold("group.majority")
        return frozenset(entry for entry, count in counts.items() if count > majority)

    def shared(self, what: str, read: Callable[[Node], Iterable[str]]) -> Mapping[str, tuple[str, ...]]:
        """What more than one of its nodes report under `what`, each with the names of those that do.

        A node that reports none does not count.
        """
        if what not in self.owners:
            owners: dict[str, list[str]] = {}
            for node in self.nodes:
                with suppress(Exception):
                    for value in set(read(node)):
                        owners.setdefault(value, []).append(node.name)
            self.owners[what] = {value: tuple(names) for value, names in owners.items() if len(names) > 1}
        return self.owners[what]

    def medians(self, what: str, read: Callable[[Node], Mapping[str, float]]) -> Mapping[str, Median]:
        """The median of what its nodes measure, by the measurement's name. A node without one does not count."""
        if what not in self.measured:
            data: dict[str, list[float]] = {}
            for node in self.nodes:
                with suppress(Exception):
                    for name, value in read(node).items():
                        data.setdefault(name, []).append(value)
            least = self.catalog.threshold("group.minimum_nodes")
            self.measured[what] = {
                name: Median(median(values), len(values), len(values) >= least) for name, values in data.items()
            }
        return self.measured[what]

    def counts(self, what: str, read: Callable[[Node], Values]) -> Mapping[str, Counter[str]]:
        """How many nodes report each value, by the value's name. A node that reports none does not count."""
        if what not in self.counted:
            self.counted[what] = _counts(self.values(what, read).values())
        return self.counted[what]

    def values(self, what: str, read: Callable[[Node], Values]) -> Mapping[str, Values]:
        """What each of its nodes reports under `what`, by the node's name; those that report nothing are left out."""
        if what not in self.read:
            self.read[what] = {}
            for node in self.nodes:
                with suppress(Exception):  # what one node reported costs no other its verdict
                    self.read[what][node.name] = read(node)
        return self.read[what]

    def usual(self, what: str, read: Callable[[Node], Values]) -> Mapping[str, Usual]:
        """What most of its nodes report, by the value's name. A node that reports none does not count."""
        if what not in self.usuals:
            self.usuals[what] = {name: Usual.of(counter) for name, counter in self.counts(what, read).items()}
        return self.usuals[what]


def differences(node: Node, what: str, read: Callable[[Node], Values]) -> tuple[Difference, ...]:
    """The values in which a node differs from most of its group; `what` names the set of values.

    A value that a node lacks is not there: leave it out, or say None where it could not be read. Raises what `read`
    raises for this node, and NotApplicable in a group too small to have a majority.
    """
    own = node.group.values(what, read).get(node.name)
    own = read(node) if own is None else own
    usual = node.group.usual(what, read)
    least = int(node.threshold("group.minimum_nodes"))
    reporting = max((one.reporting for one in usual.values()), default=0)
    if reporting < least:
        raise NotApplicable(f"{reporting or 'none'} of its kind; {least} are needed to compare")
    majority = node.threshold("group.majority")
    found = (_difference(name, own.get(name, ABSENT), one, majority) for name, one in usual.items())
    return tuple(difference for difference in found if difference and difference.reporting >= least)


def in_words(found: Iterable[Difference]) -> str:
    """The differences as a message: `kernel A, driver B; expected X as on 15 of 16 nodes, Y as on …`."""
    found = tuple(found)
    observed, expected = (", ".join(words) for words in zip(*((one.observed, one.expected) for one in found)))  # noqa: B905
    return f"{observed}; expected {expected}"


def _counts(data: Collection[Values]) -> dict[str, Counter[str]]:
    names = {name: None for values in data for name in values}  # in the order of the first node that has them
    return {
        name: Counter(value for values in data if (value := values.get(name, ABSENT)) is not None) for name in names
    }


def _difference(name: str, own: str | None, most: Usual, majority: float) -> Difference | None:
    if own is None:
        return None
    if most.alike > most.reporting * majority:
        return None if own == most.value else Difference(name, own, most.value, most.alike, most.reporting)
    return Difference(name, own, "", most.alike, most.reporting, most.others)
