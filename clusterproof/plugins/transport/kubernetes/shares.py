"""Which nodes a gate evaluates together, and when: after a change, and otherwise rarely.

A large cluster is divided by node name, so that a node that joins or leaves only affects its own share.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clusterproof.plugins.catalog.instance_types import instance_types
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.kubernetes.gate import NOT_REACHED, REFRESH_S, Health
from clusterproof.plugins.kubernetes.pods import Pod
from clusterproof.plugins.transport.kubernetes.agents import is_at_work, is_changing, state_of
from clusterproof.plugins.transport.kubernetes.report_cache import REST_S

MAX_NODES = 250  # nodes of one share: what a process holds in memory
NODE_S = 0.7  # between two evaluations of an unchanged node, per node of the cluster: a twentieth of the time
MAX_REST_S = 3600.0
MAX_PAUSE_S = 0.8 * REFRESH_S  # for a share that never comes to rest


@dataclass
class NodeShare:
    """Nodes that are evaluated together; all of them if `names` is None. Times in seconds since 1970."""

    names: frozenset[str] | None = None
    states: dict[str, str] = field(default_factory=dict)  # of agents, at the last evaluation
    at: float = -math.inf
    rested_at: float = -math.inf  # the last evaluation without another reason
    is_open: bool = True
    unchanged: int = 0  # consecutive evaluations with the same result

    def has(self, node: str) -> bool:
        """Whether a node is in the share."""
        return self.names is None or node in self.names

    def of(self, agents: Mapping[str, Pod]) -> dict[str, str]:
        """The states of its agents."""
        return {node: state_of(agents[node]) for node in self._among(agents)}

    def _among(self, agents: Mapping[str, Pod]) -> Iterable[str]:
        return agents if self.names is None else self.names & agents.keys()

    def is_new(self, agents: Mapping[str, Pod]) -> bool:
        """Whether there is a change to evaluate."""
        return self.is_open or self.of(agents) != self.states

    def is_restless(self, agents: Mapping[str, Pod], health: Mapping[str, Health]) -> bool:
        """Whether an agent's report may change without its state showing it."""
        return any(
            is_changing(agents[node])
            or (node in health and health[node].reason == NOT_REACHED and is_at_work(agents[node]))
            for node in self._among(agents)
        )

    def evaluated(self, agents: Mapping[str, Pod], at: float, *, is_open: bool, is_same: bool) -> None:
        """Record an evaluation and the states of the agents before it."""
        self.states, self.at, self.is_open = self.of(agents), at, is_open
        self.unchanged = self.unchanged + 1 if is_same else 0


class Shares:
    """The shares of a cluster whose agents report every `every_s`."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._all: list[NodeShare] = []
        self._bounds: list[str] = []  # the first names of all shares but the first
        self._known: frozenset[tuple[str, str]] = frozenset()  # the nodes and agents when they were divided
        self._count = 0
        self._divided_at = -math.inf

    def are_unknown(self, agents: Mapping[str, Pod], now: float) -> bool:
        """Whether the nodes have to be listed: not needed for a cluster that fits in one share."""
        if len(agents) <= MAX_NODES:
            self._undivided()
            self._count = len(agents)
            return False
        return self._known != _each_with_its_pod(agents) or now >= self._divided_at + REST_S

    def divide(self, targets: Sequence[Target], agents: Mapping[str, Pod], now: float) -> None:
        """Divide these nodes; all are in one share if a rack is one machine, whose trays are compared."""
        self._divided_at, self._count, self._known = now, len(targets), _each_with_its_pod(agents)
        names = sorted(target.name for target in targets)
        types = {target.instance_type for target in targets}
        if not names or any(name in types and row.trays and row.gpus for name, row in instance_types().items()):
            self._undivided()
            return
        count = math.ceil(len(names) / MAX_NODES)
        if not self._bounds or not count <= len(self._all) <= 2 * count:
            count = math.ceil(1.2 * len(names) / MAX_NODES)  # leaves room for nodes that join
            self._bounds = [names[len(names) * number // count] for number in range(1, count)]
            self._all = [NodeShare() for _ in range(count)]
        of_share: list[set[str]] = [set() for _ in self._all]
        for name in names:
            of_share[bisect_right(self._bounds, name)].add(name)
        for share, members in zip(self._all, of_share, strict=True):
            names_now = frozenset(members)
            share.is_open |= names_now != share.names
            share.names = names_now

    def forget(self) -> None:
        """List the nodes again before the next evaluation: one of them may be gone."""
        self._divided_at = -math.inf

    def _undivided(self) -> None:
        if [share.names for share in self._all] != [None]:
            self._all, self._bounds = [NodeShare()], []

    def has(self, node: str) -> bool:
        """Whether a node is in any share."""
        return self._of(node).has(node)

    def is_current(self, node: str, agents: Mapping[str, Pod]) -> bool:
        """Whether findings on a node are still valid: it is in a share, and its agent's state is unchanged."""
        share = self._of(node)
        state = state_of(agents[node]) if node in agents else None
        return share.has(node) and share.states.get(node) == state

    def _of(self, node: str) -> NodeShare:
        """The share for a node of this name, if any."""
        return self._all[bisect_right(self._bounds, node)]

    def due_shares(self, agents: Mapping[str, Pod], health: Mapping[str, Health], now: float) -> list[NodeShare]:
        """The shares to evaluate now; of those that are only due by time, a part, so that it is never all at once."""
        rest_s = min(max(REST_S, NODE_S * self._count), MAX_REST_S)
        at_once = math.ceil(len(self._all) * self._every_s / rest_s)
        new, old = [], []
        for share in self._all:
            if share.names is not None and not share.names:
                continue
            pause_s = min(self._every_s * 2.0 ** min(share.unchanged, 10), max(MAX_PAUSE_S, self._every_s))
            is_restless = now >= share.at + pause_s and share.is_restless(agents, health)
            if share.is_new(agents) or is_restless:
                share.rested_at = max(share.rested_at, now) if share.at == -math.inf else share.rested_at
                new.append(share)
            elif now >= share.rested_at + rest_s:
                old.append(share)
        rested = sorted(old, key=lambda share: share.rested_at)[:at_once]
        for share in rested:
            share.rested_at = now
        return [*new, *rested]


def _each_with_its_pod(agents: Mapping[str, Pod]) -> frozenset[tuple[str, str]]:
    return frozenset((node, pod.name) for node, pod in agents.items())
