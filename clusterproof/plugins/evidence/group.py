"""Groups of nodes that should be alike: what most of them have, and which differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.robust import median
from clusterproof.plugins.core.typed import Any, Generic, Protocol, TypeVar
from clusterproof.plugins.core.verdict import NotApplicable, Recording
from clusterproof.plugins.evidence.field import each

T = TypeVar("T")
N = TypeVar("N", bound="Member")
ABSENT = "none"  # the word for a value that a node lacks
MAX_VALUES = 4  # named where none has a majority
Values = Mapping[str, str | None]  # by name; None: unknown for this node


class Member(Protocol):
    """A node of a group."""

    @property
    def name(self) -> str:
        """The name that the inventory gives it."""

    @property
    def group(self) -> Group[Any]:
        """The nodes that should be like it, including itself."""

    def threshold(self, name: str) -> float:
        """A threshold from the catalogue or the site's policy."""


@record
class Difference:
    """A value in which a node differs from its group; `majority` is empty if no value has a majority."""

    name: str
    own: str
    majority: str
    count: int
    reporting: int
    others: str = ""  # without a majority: `A on 2, B on gpu007`

    @property
    def observed(self) -> str:
        """`kernel 6.5.0-1020-aws`."""
        name = self.name.removesuffix(" is")  # `port 1 is Ethernet`, `port 1 differs`
        return f"{self.name} {self.own}" if self.majority else f"{name} differs from node to node ({self.others})"

    @property
    def expected(self) -> str:
        """`6.8.0-1021-aws as on 15 of 16 nodes`."""
        return f"{self.majority} as on {self.count} of {self.reporting} nodes" if self.majority else "one for all nodes"


@record
class MostCommon:
    """The most frequent value among nodes that report one, and how many have it."""

    value: str
    count: int
    reporting: int
    places: Mapping[str, object]  # of each value, the most frequent first: how many nodes have it, or which one

    @property
    def how_many(self) -> str:
        """`as on 15 of 16 nodes`."""
        return f"as on {self.count} of {self.reporting} nodes"

    @classmethod
    def of(cls, values: Mapping[str, str]) -> MostCommon:
        """From the reported values, by node name."""
        counter = Counter(values.values())
        value, count = max(counter.items(), key=lambda item: item[1], default=("", 0))
        only = {value: name for name, value in values.items() if counter[value] == 1}
        return cls(value, count, len(values), {value: only.get(value, count) for value, count in counter.most_common()})

    def others(self, own: str) -> str:
        """The most frequent values, and a node's own: `A on 2, B on gpu007, and 3 more`."""
        first = [value for value in self.places if value != own][: MAX_VALUES - 1]
        shown = [value for value in self.places if value in (own, *first)]
        more = len(self.places) - len(shown)
        return ", ".join(f"{value} on {self.places[value]}" for value in shown) + (f", and {more} more" if more else "")


@record
class Median:
    """The median of a measurement over so many nodes."""

    value: float
    nodes: int
    is_comparable: bool  # whether there are enough nodes to compare one with the others


class Group(Generic[N]):
    """Nodes of one group and instance type."""

    __slots__ = (
        "catalog",
        "common",
        "computed",
        "counted",
        "is_part",
        "measured",
        "most_common_values",
        "nodes",
        "owners",
        "read",
    )

    def __init__(self, nodes: Iterable[N] = (), catalog: Catalog = PACKAGED, *, is_part: bool = False) -> None:
        self.nodes = list(nodes)
        self.catalog = catalog
        self.is_part = is_part  # whether the inventory is known to have more nodes than the run
        self.common: dict[str, frozenset[str]] = {}
        self.counted: dict[str, Mapping[str, Counter[str]]] = {}
        self.measured: dict[str, Mapping[str, Median]] = {}
        self.read: dict[str, dict[str, Values]] = {}
        self.most_common_values: dict[str, Mapping[str, MostCommon]] = {}
        self.owners: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self.computed: dict[str, Any] = {}

    def most(self, what: str, read: Callable[[N], Iterable[str]]) -> frozenset[str]:
        """What more than half of its nodes report under `what`; empty in a group too small for a majority.

        Nodes that report nothing do not count.
        """
        if what not in self.common:
            self.common[what] = self._most(read)
        return self.common[what]

    def _most(self, read: Callable[[N], Iterable[str]]) -> frozenset[str]:
        counts: Counter[str] = Counter()
        reporting = 0
        for node in self.nodes:
            with suppress(Exception), Recording():  # one node's bad data must not affect others
                counts.update(set(read(node)))
                reporting += 1
        if reporting < self.catalog.threshold("group.minimum_nodes"):
            return frozenset()
        majority = reporting * self.catalog.threshold("group.majority")
        return frozenset(entry for entry, count in counts.items() if count > majority)

    def shared(self, what: str, read: Callable[[N], Iterable[str]]) -> Mapping[str, tuple[str, ...]]:
        """What several of its nodes report under `what`, with their names.

        Nodes that report nothing do not count.
        """
        if what not in self.owners:
            owners: dict[str, list[str]] = {}
            for node in self.nodes:
                with suppress(Exception), Recording():
                    for value in set(read(node)):
                        owners.setdefault(value, []).append(node.name)
            self.owners[what] = {value: tuple(names) for value, names in owners.items() if len(names) > 1}
        return self.owners[what]

    def once(self, what: str, compute: Callable[[Group[N]], T]) -> T:
        """A value computed from all its nodes, on first use."""
        if what not in self.computed:
            self.computed[what] = compute(self)
        return self.computed[what]  # type: ignore[no-any-return]

    def keep(self, nodes: Iterable[N]) -> None:
        """Replace the group's nodes, and forget the old ones."""
        self.nodes = list(nodes)
        self.computed.clear()

    def medians(self, what: str, read: Callable[[N], Mapping[str, float]]) -> Mapping[str, Median]:
        """The median of each measurement, by name. Nodes without one do not count."""
        if what not in self.measured:
            by_name: dict[str, list[float]] = {}
            for node in self.nodes:
                with suppress(Exception), Recording():
                    for name, value in read(node).items():
                        by_name.setdefault(name, []).append(value)
            least = self.catalog.threshold("group.minimum_nodes")
            self.measured[what] = {
                name: Median(median(values), len(values), len(values) >= least) for name, values in by_name.items()
            }
        return self.measured[what]

    def counts(self, what: str, read: Callable[[N], Values]) -> Mapping[str, Counter[str]]:
        """How many nodes report each value, by name. Nodes that report none do not count."""
        if what not in self.counted:
            by_name = _by_name(self.values(what, read), absent=None)
            self.counted[what] = {name: Counter(values.values()) for name, values in by_name.items()}
        return self.counted[what]

    def values(self, what: str, read: Callable[[N], Values]) -> Mapping[str, Values]:
        """What each of its nodes reports under `what`, by node name, without those that report nothing."""
        if what not in self.read:
            self.read[what] = {}
            for node in self.nodes:
                with suppress(Exception), Recording():
                    self.read[what][node.name] = read(node)
        return self.read[what]

    def most_common(
        self, what: str, read: Callable[[N], Values], absent: str | None = ABSENT
    ) -> Mapping[str, MostCommon]:
        """What most of its nodes report, by name. Nodes that report none do not count."""
        if what not in self.most_common_values:
            by_name = _by_name(self.values(what, read), absent)
            self.most_common_values[what] = {name: MostCommon.of(values) for name, values in by_name.items()}
        return self.most_common_values[what]


def differences(
    node: N, what: str, read: Callable[[N], Values], absent: str | None = ABSENT, among: Group[N] | None = None
) -> tuple[Difference, ...]:
    """The values in which a node differs from most of its group, or of `among`; `what` names the set of values.

    Leave out a value that a node lacks, or return None if it could not be read. `absent` is what such a node has
    instead; with None only nodes with the value are compared. Raises what `read` raises for this node, and
    NotApplicable if there is nothing to compare with.
    """
    own = read(node)  # repeated for this node, whose own check reports what is unreadable
    most_frequent = (among or node.group).most_common(what, read, absent)
    least = int(node.threshold("group.compared_nodes"))
    reporting = max((common.reporting for common in most_frequent.values()), default=0)
    if reporting < least:
        raise NotApplicable(f"{reporting or 'none'} of its group reported it; {least} are needed to compare")
    majority = node.threshold("group.majority")
    deviations = (_difference(name, own.get(name, absent), common, majority) for name, common in most_frequent.items())
    return tuple(difference for difference in deviations if difference and difference.reporting >= least)


def differing(node: N, what: str, read: Callable[[N], Values]) -> tuple[Difference, ...]:
    """The same for nodes that have the value; empty in a group too small to compare, for checks that evaluate more."""
    try:
        return differences(node, what, read, absent=None)
    except NotApplicable:
        return ()


def majority_of(
    node: N, what: str, read: Callable[[N], Values], name: str, absent: str | None = ABSENT
) -> MostCommon | None:
    """What more than half of its group, and more than one node, report under a name; None if there is no such value."""
    most = node.group.most_common(what, read, absent).get(name)
    if most is None or most.reporting < int(node.threshold("group.compared_nodes")):
        return None
    return most if 1 < most.count > most.reporting * node.threshold("group.majority") else None


def describe(deviations: Iterable[Difference]) -> str:
    """The differences as a message: `kernel A, driver B; expected X as on 15 of 16 nodes, Y as on …`.

    An expectation shared by several is stated once.
    """
    deviations = tuple(deviations)
    expected = ", ".join(dict.fromkeys(deviation.expected for deviation in deviations))
    return f"{', '.join(deviation.observed for deviation in deviations)}; expected {expected}"


def compared(thing: T, values: Mapping[str, Callable[[T], str | None]]) -> Values:
    """Each of these values of an item; None for an unreadable one, which makes that part of the check incomplete."""
    return {**dict.fromkeys(values), **dict(each(values.items(), lambda value: (value[0], value[1](thing))))}


def _by_name(by_node: Mapping[str, Values], absent: str | None = ABSENT) -> dict[str, dict[str, str]]:
    """What each node reports of each value, by the value's name."""
    names: dict[str, dict[str, str]] = {}  # in the order of the first that has them
    for node, values in by_node.items():
        for name, value in values.items():
            reported = names.setdefault(name, {})
            if value is not None:
                reported[node] = value
    if absent is None:
        return names
    return {
        name: {node: value for node, values in by_node.items() if (value := values.get(name, absent)) is not None}
        for name in names
    }


def _difference(name: str, own: str | None, most: MostCommon, majority: float) -> Difference | None:
    if own is None:
        return None
    if most.count > most.reporting * majority:
        return None if own == most.value else Difference(name, own, most.value, most.count, most.reporting)
    return Difference(name, own, "", most.count, most.reporting, most.others(own))
