"""The gate's requests: many side by side, each refusal kept in its own words, none repeated for a thousand nodes."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.kubernetes.api import Api, KubernetesDenied, KubernetesError, KubernetesRefused
from clusterproof.plugins.kubernetes.gate.objects import EVENTS, MERGE, NODES, Seen, seen_of

AT_ONCE = 16  # requests
TRIES = 5  # to change a node that others change too
DEADLINE_S = 300.0  # for all of it: an API server that is gone costs no more
MAX_NAMES = 200  # characters of names in a line
MAX_PROBLEMS = 5  # lines
GONE, CHANGED = 404, 409
RIGHTS = (
    "expected the rights of gate.yaml in integrations/kubernetes, for taints taints.yaml too (docs/kubernetes-gate.md)"
)
Patch = dict[str, object]
T = TypeVar("T")


def of_nodes(names: Iterable[str], words: str) -> str:
    """`gpu[001-016]: words`."""
    return f"{printable(within(fold(set(names)), MAX_NAMES))}: {words}"


@dataclass
class Writer:
    """An API server that is written to; what went wrong is kept, by its words, with the nodes that it is about."""

    api: Api
    problems: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    gone: set[str] = field(default_factory=set)  # nodes that are no more
    is_refused: bool = False  # whether there was anything that would hold for every node
    is_silent: bool = False  # whether events are not taken
    until: float = field(default_factory=lambda: time.monotonic() + DEADLINE_S)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def each(self, act: Callable[[str], T | None], names: Sequence[str]) -> dict[str, T]:
        """What became of each of these nodes, without those that it failed for."""
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="gate") as pool:
            found = zip(names, pool.map(lambda name: self.tried(name, lambda: act(name)), names), strict=True)
            return {name: one for name, one in found if one is not None}

    def tried(self, name: str, ask: Callable[[], T | None]) -> T | None:
        """What was answered; None where it was not, and why is kept. `name` is a node's; empty: it is about all."""
        try:
            if time.monotonic() > self.until:
                raise KubernetesError(f"not tried, as {DEADLINE_S:.0f} s have passed; expected a faster API server")
            return ask()
        except KubernetesError as problem:
            with self.lock:
                self._keep(name, problem)
            return None

    def _keep(self, name: str, problem: KubernetesError) -> None:
        if name and problem.status == GONE:
            self.gone.add(name)
            return
        self.is_refused |= isinstance(problem, (KubernetesDenied, KubernetesRefused)) or not problem.status
        words = f"{problem}; {RIGHTS}" if isinstance(problem, KubernetesDenied) else str(problem)
        self.problems[words.replace(f'"{name}"', "NODE") if name else words].add(name)

    def changed(self, seen: Seen, patch_of: Callable[[Seen], Patch]) -> Seen:
        """A node after a patch that only the version takes that it was made for; of a later one it is made anew.

        Raises KubernetesError.
        """
        for _ in range(TRIES):
            patch = patch_of(seen)
            if not patch:
                return seen
            try:
                return seen_of(self.api.patch(seen.path, patch, MERGE))
            except KubernetesError as problem:
                if problem.status != CHANGED:
                    raise
            now = [seen_of(one) for one in self.api.listed(NODES, fieldSelector=f"metadata.name={seen.node.name}")]
            if [one.uid for one in now] != [seen.uid]:
                raise KubernetesError("another node has this name by now; expected the one that was evaluated", GONE)
            seen = now[0]
        raise KubernetesError(f"others changed it {TRIES} times meanwhile; expected to write it in the next run")

    def create_event(self, event: Mapping[str, object]) -> None:
        """Create an event; where that may not be, it is tried once."""
        if not self.is_silent and self.tried("", lambda: self._created(event)) is None:
            self.is_silent = True

    def _created(self, event: Mapping[str, object]) -> bool:
        try:
            self.api.create(EVENTS, event)
        except KubernetesRefused as refused:
            raise KubernetesError(f"an event was refused: {refused}") from None
        return True

    def lines(self) -> list[str]:
        """What could not be done, a line for each reason."""
        said = [of_nodes(names, why) if any(names) else why for why, names in self.problems.items()]
        more = [f"and {len(said) - MAX_PROBLEMS} more reasons"] if len(said) > MAX_PROBLEMS else []
        return [*said[:MAX_PROBLEMS], *more]
