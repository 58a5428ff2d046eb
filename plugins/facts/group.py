"""The nodes that are meant to be alike, and what most of them have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clusterproof.plugins.catalog import threshold
from clusterproof.plugins.verdict import Incomplete, NotApplicable

if TYPE_CHECKING:
    from clusterproof.plugins.facts.node import Node


@dataclass(slots=True)
class Group:
    """Nodes of one group and instance type."""

    nodes: list[Node] = field(default_factory=list)
    known: dict[str, frozenset[str]] = field(default_factory=dict)

    def most(self, what: str, read: Callable[[Node], Iterable[str]]) -> frozenset[str]:
        """What more than half of its nodes tell under `what`; nothing in a group too small to have a majority.

        A node that cannot tell counts on neither side.
        """
        if what not in self.known:
            self.known[what] = self._most(read)
        return self.known[what]

    def _most(self, read: Callable[[Node], Iterable[str]]) -> frozenset[str]:
        counts: Counter[str] = Counter()
        telling = 0
        for node in self.nodes:
            try:
                counts.update(set(read(node)))
                telling += 1
            except (Incomplete, NotApplicable):
                continue
        if telling < threshold("mounts.expected_minimum_nodes"):
            return frozenset()
        return frozenset(
            entry for entry, count in counts.items() if count > telling * threshold("mounts.expected_share")
        )
