"""Records which collectors each check reads while it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected
from clusterproof.plugins.evaluation import evaluate as evaluating
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.needs import PAIRWISE
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.fact import Fact
from clusterproof.plugins.evidence.node import Node

FINDS = evaluating._findings  # a check's reads, without those that every result makes about its node
READS = Fact.__get__


class Watch:
    """The collectors and facts read by each check (by id), with everything that each fact ever read."""

    def __init__(self) -> None:
        self._by_check: dict[str, set[object]] = {}
        self._by_fact: dict[object, set[object]] = {}
        self._reading: list[set[object]] = []  # one set per check and per nested fact, innermost last

    @property
    def by_check(self) -> dict[str, frozenset[str]]:
        """The collectors that each check reads. For a fact, that includes all the fact reads from any node."""
        return {check: self.collectors(read) for check, read in self._by_check.items()}

    def collectors(self, read: set[object]) -> frozenset[str]:
        """The collectors in a set of reads, including those of its facts."""
        whole = read.union(*(self._by_fact.get(item, ()) for item in read))
        return frozenset(item for item in whole if isinstance(item, str))

    def note(self, what: object) -> None:
        """Record this read for everything that is being read."""
        for seen in self._reading:
            seen.add(what)

    @contextmanager
    def reading(self) -> Iterator[set[object]]:
        """Collect what is read in the block."""
        own: set[object] = set()
        self._reading.append(own)
        try:
            yield own
        finally:
            self._reading.pop()

    def findings(self, check: Check, owner: Any) -> Any:
        """Evaluate a check; its remedy and its command to run by hand may depend on the node too."""
        with self.reading() as own:
            result = FINDS(check, owner)
            with suppress(Exception):
                check.route.shown_by(owner), check.route.remedy_for(owner)
        self._by_check.setdefault(check.route.check, set()).update(own)
        return result

    def fact(self, fact: Fact[Any], owner: Any, kind: type) -> Any:
        """Read a fact, which a node may have cached."""
        if owner is None:
            return fact
        self.note(fact)
        if fact.key == PAIRWISE:
            self.note(PAIRWISE)
        with self.reading() as own:
            try:
                return READS(fact, owner, kind)
            finally:
                self._by_fact.setdefault(fact, set()).update(own)


class Watched(dict[str, Collected]):
    """The answers of all collectors; those accessed by name count as read."""

    def __init__(self, collected: Mapping[str, Collected], watch: Watch) -> None:
        super().__init__(collected)
        self.watch = watch

    def __getitem__(self, name: str) -> Collected:
        self.watch.note(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.watch.note(name)
        return super().get(name, default)


@contextmanager
def watched() -> Iterator[Watch]:
    """Watch every check evaluated in the block."""
    watch = Watch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluating, "_findings", watch.findings)
        patch.setattr(Fact, "__get__", lambda fact, owner, kind=None: watch.fact(fact, owner, kind))
        for kind in (Node, ClusterFacts):
            _watch(kind, watch, patch)
        yield watch


def _watch(kind: Any, watch: Watch, patch: pytest.MonkeyPatch) -> None:
    collector, collectors = kind.collector, kind.collectors.fget

    def collected(owner: Any, name: str) -> Collected:
        watch.note(name)
        answer: Collected = collector(owner, name)
        return answer

    patch.setattr(kind, "collector", collected)
    patch.setattr(kind, "collectors", property(lambda owner: Watched(collectors(owner), watch)))
