"""Writes what the gate changes, with many concurrent requests.

Each refusal is reported in the server's words, and only once for all nodes.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.kubernetes import CONFLICT, NOT_FOUND, TOO_MANY
from clusterproof.plugins.kubernetes.api import MERGE, Api, KubernetesDenied, KubernetesError, KubernetesRefused
from clusterproof.plugins.kubernetes.gate.objects import EVENTS, NODES, GateNode, Patch, seen_of
from clusterproof.plugins.kubernetes.nodes import NODES_AT_ONCE

AT_ONCE = 16  # requests
TRIES = 5  # to change a node that others change concurrently
DEADLINE_S = 300.0  # for everything: limits the delay by an unavailable API server
MAX_NAMES = 200  # characters of names in a line
MAX_PROBLEMS = 5  # lines
SLOW = (0, TOO_MANY)  # what is tried for half a minute
RIGHTS = (
    "expected the rights of gate.yaml in integrations/kubernetes, for taints taints.yaml too (docs/kubernetes-gate.md)"
)
T = TypeVar("T")


def of_nodes(names: Iterable[str], message: str) -> str:
    """`gpu[001-016]: words`."""
    return f"{printable(within(fold(set(names)), MAX_NAMES))}: {message}"


def lines_by_message(message_by_node: Mapping[str, str]) -> list[str]:
    """A line for each of these messages, with its nodes; none for an empty one."""
    nodes_by_message: dict[str, list[str]] = defaultdict(list)
    for name, message in message_by_node.items():
        nodes_by_message[message].append(name)
    return [of_nodes(names, message) for message, names in nodes_by_message.items() if message]


def every_node(api: Api) -> list[GateNode]:
    """Every node of the cluster. Raises KubernetesError."""
    return list(map(seen_of, api.listed(NODES, limit=NODES_AT_ONCE)))


@dataclass
class ObjectWriter:
    """Writes to an API server; collects errors with the nodes concerned."""

    api: Api
    problems: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    gone: set[str] = field(default_factory=set)  # nodes that no longer exist
    is_denied: bool = False  # whether a refusal applies to every node, unlike a site's policy for some
    is_silent: bool = False  # whether events are refused
    until: float = field(default_factory=lambda: time.monotonic() + DEADLINE_S)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def each(self, act: Callable[[str], T | None], names: Sequence[str]) -> dict[str, T]:
        """The results for these nodes, without those that failed."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gate") as pool:
            outcomes = zip(names, pool.map(lambda name: self.tried(name, lambda: act(name)), names), strict=True)
            return {name: outcome for name, outcome in outcomes if outcome is not None}

    def tried(self, name: str, ask: Callable[[], T | None]) -> T | None:
        """The result of a request; None if it failed, with the error recorded. An empty `name` means all nodes."""
        try:
            if time.monotonic() > self.until:
                raise KubernetesError(f"not tried, as {DEADLINE_S:.0f} s have passed; expected a faster API server")
            return ask()
        except KubernetesError as problem:
            with self.lock:
                self._keep(name, problem)
            return None

    def _keep(self, name: str, problem: KubernetesError) -> None:
        if name and problem.status == NOT_FOUND:
            self.gone.add(name)
            return
        self.is_denied |= isinstance(problem, KubernetesDenied) or not problem.status
        message = problem.with_rights(RIGHTS) if isinstance(problem, KubernetesDenied) else str(problem)
        self.problems[message.replace(f'"{name}"', "NODE") if name else message].add(name)

    def changed(self, seen: GateNode, patch_of: Callable[[GateNode], Patch]) -> GateNode:
        """A node after a patch that applies to one version only; it is rebuilt for a later version.

        Raises KubernetesError.
        """
        for _ in range(TRIES):
            patch = patch_of(seen)
            if not patch:
                return seen
            try:
                return seen_of(self.api.patch(seen.path, patch, MERGE))
            except KubernetesError as problem:
                if problem.status != CONFLICT:
                    raise
            now = list(map(seen_of, self.api.listed(NODES, fieldSelector=f"metadata.name={seen.node.name}")))
            if [node.uid for node in now] != [seen.uid]:
                raise KubernetesError(
                    "another node has this name by now; expected the one that was evaluated", NOT_FOUND
                )
            seen = now[0]
        raise KubernetesError(f"others changed it {TRIES} times meanwhile; expected to write it in the next run")

    def create_event(self, event: Mapping[str, Any]) -> None:
        """Create an event; if that is forbidden or takes too long, no other is tried."""
        if not self.is_silent:
            self.tried(str(event["involvedObject"]["name"]), lambda: self._created(event))

    def _created(self, event: Mapping[str, Any]) -> bool:
        try:
            self.api.create(EVENTS, event)
        except KubernetesError as problem:
            self.is_silent |= isinstance(problem, (KubernetesDenied, KubernetesRefused)) or problem.status in SLOW
            if isinstance(problem, KubernetesDenied) or not problem.status:
                raise
            raise KubernetesError(f"an event was refused: {problem}", problem.status) from None
        return True

    def lines(self) -> list[str]:
        """A line for each kind of error."""
        problems = [of_nodes(names, why) if any(names) else why for why, names in self.problems.items()]
        more = [f"and {len(problems) - MAX_PROBLEMS} more reasons"] if len(problems) > MAX_PROBLEMS else []
        return [*problems[:MAX_PROBLEMS], *more]
