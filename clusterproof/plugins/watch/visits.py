"""Full checks during a watch: each visit gathers all evidence of some nodes, in its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.interning import Interning
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import why_unreachable
from clusterproof.plugins.transport import Connection, Limits, connection_for
from clusterproof.plugins.transport.fan_out import PendingNodes
from clusterproof.plugins.transport.gather import gather
from clusterproof.plugins.watch.own_health import in_one_line


@dataclass(frozen=True)
class Visited:
    """The result of a visit, until it is evaluated: what nodes reported, or why it failed, and for which nodes."""

    evidence_by_node: dict[str, NodeEvidence]
    failed: Exception | None = None
    names: tuple[str, ...] = ()

    @property
    def not_reached(self) -> dict[str, str]:
        """Why each node that was not reached was not."""
        if self.failed:
            return dict.fromkeys(self.names, in_one_line(self.failed))
        every = self.evidence_by_node.items()
        return {name: why_unreachable(evidence.unreached) for name, evidence in every if evidence.unreached}


class Visits:
    """The visits of a watch: no node is in two at once."""

    def __init__(
        self,
        cluster: Cluster,
        collectors: frozenset[str],
        probe: ProbeOptions,
        limits: Limits,
        ended: Callable[[Visited], object],
    ) -> None:
        """`ended` is called on a visit's thread."""
        self._cluster, self._collectors, self._probe, self._limits = cluster, collectors, probe, limits
        self._ended = ended
        self.nodes: set[str] = set()  # being visited
        self._connections: list[Connection] = []
        self._awaited = PendingNodes("asking the nodes", [target.name for target in cluster.targets], are_named=True)

    @property
    def awaited(self) -> str:
        """Which nodes have not answered yet, in words."""
        return self._awaited.description

    def begin(self, names: Iterable[str]) -> tuple[str, ...]:
        """Visit those that are not being visited; returns these."""
        chosen = tuple(dict.fromkeys(name for name in names if name not in self.nodes))
        if chosen:
            self.nodes.update(chosen)
            threading.Thread(target=self._visit, args=(chosen,), name="watch-visit", daemon=True).start()
        return chosen

    def end(self, visited: Visited) -> None:
        """Its nodes may be visited again."""
        self.nodes.difference_update(visited.names or visited.evidence_by_node)

    def abandon(self) -> None:
        """Stop waiting for visits."""
        for connection in list(self._connections):
            connection.abandon()

    def _visit(self, names: tuple[str, ...]) -> None:
        try:
            self._ended(Visited(self._gathered(frozenset(names)), names=names))
        except Exception as problem:  # of a first visit: ends the watch
            self._ended(Visited({}, problem, names))

    def _gathered(self, names: frozenset[str]) -> dict[str, NodeEvidence]:
        targets = tuple(target for target in self._cluster.targets if target.name in names)
        connection = connection_for(self._cluster.connection)
        once = Interning().intern  # a thousand nodes at once use much memory, and report mostly the same

        def answered(evidence: NodeEvidence) -> NodeEvidence:
            self._awaited.answered(evidence)
            return once(evidence)

        self._connections.append(connection)
        try:
            some = replace(self._cluster, targets=targets)
            return gather(some, connection, self._collectors, self._probe, self._limits, answered)
        finally:
            self._connections.remove(connection)
