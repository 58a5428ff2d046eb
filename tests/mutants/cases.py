"""Cases: every check's results on a faulty or healthy node or on a test's evidence, to compare later results with."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import MeasuredPair, PairwiseRun
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes.facts_cluster import NodeOfCluster
from clusterproof.plugins.evidence.node import Node
from tests.mutants.mutations import Mutant, live_objects

Lines = frozenset[tuple[str, int]]  # a file and one of its lines
PARTS = (
    "checks/",
    "plugins/catalog/",
    "plugins/transport/kubernetes/report_cache.py",
)  # in the package: where mutants are
CPU_S = 20.0  # limit for one case: a mutant may never end


class Endless(BaseException):
    """A mutant that does not end."""


@dataclass
class Case:
    """A node, pair or cluster with each check's result; for one check, also words of the message."""

    name: str
    owner: Any
    checks: Mapping[str, Check]
    words: Mapping[str, str] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    ran: dict[str, Lines] = field(default_factory=dict)  # by check, the lines of checks that run
    catalogue: Lines = frozenset()  # the lines of the catalogue that any of them runs

    def finds(self, mutant: Mutant) -> str:
        """The check with another result under the mutant, or empty."""
        names = self._trials(mutant)
        if names and mutant.is_of_catalogue:
            forget(self.owner)
        try:
            with cpu_limit():
                return next((name for name in names if self._differs(name)), "")
        except Endless:
            return "no end"
        finally:
            if names and mutant.is_of_catalogue:
                forget(self.owner)

    def _differs(self, name: str) -> bool:
        forget_groups(self.owner)
        try:
            result = evaluate(self.checks[name], self.owner)
        except Exception:  # whatever breaks a run is noticed
            return True
        return result.verdict is not self.verdicts[name] or self.words.get(name, "") not in result.message

    def learn(self, root: str) -> None:
        """Run each check twice and note its result and lines; drop checks whose results differ."""
        forget(self.owner)
        forget_catalogue()
        with traced(root) as lines:
            self.verdicts = {name: evaluate(check, self.owner).verdict for name, check in self.checks.items()}
        self.catalogue = frozenset(lines)
        for name in self.checks:
            with traced(root) as lines:
                same = not self._differs(name)
            if same:
                self.ran[name] = frozenset(lines)

    def _trials(self, mutant: Mutant) -> list[str]:
        """The checks that run what the mutant changes, those with findings first."""
        touched = {(mutant.place[0], line) for line in mutant.lines}
        if mutant.is_of_catalogue:
            return [*self.ran] if touched & self.catalogue else []
        names = [name for name, lines in self.ran.items() if touched & lines]
        return sorted(names, key=lambda name: self.verdicts[name] in (Verdict.PASS, Verdict.NOT_APPLICABLE))


@contextmanager
def traced(root: str) -> Iterator[set[tuple[str, int]]]:
    """The lines of checks and catalogue that run in the block."""
    lines: set[tuple[str, int]] = set()
    before = tuple(f"{root}/{part}" for part in PARTS)

    def of_call(frame: FrameType, _event: str, _argument: object) -> Any:
        return of_line if frame.f_code.co_filename.startswith(before) else None

    def of_line(frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename[len(root) + 1 :], frame.f_lineno))
        return of_line

    earlier = sys.gettrace()
    sys.settrace(of_call)
    try:
        yield lines
    finally:
        sys.settrace(earlier)


def forget(owner: Any) -> None:
    """Discard an owner's facts, and those of the nodes beside it."""
    for node in _nodes(owner):
        node.facts.clear()
    whole = owner.cluster if isinstance(owner, NodeOfCluster) else owner
    if isinstance(whole, ClusterFacts):
        whole.facts.clear()
    for campaign in _campaigns(owner):
        for name in ("key", "floor_gb_per_s", "baseline"):
            vars(campaign).pop(name, None)
    forget_groups(owner)


def forget_groups(owner: Any) -> None:
    """Discard the reference values of an owner's groups, which checks compute."""
    for group in {id(group): group for node in _nodes(owner) for group in (node.group, node.run)}.values():
        for kept in (group.common, group.counted, group.measured, group.owners, group.read, group.most_common_values):
            kept.clear()
        group.computed.clear()


def _nodes(owner: Any) -> Iterable[Node]:
    whole = owner.cluster if isinstance(owner, NodeOfCluster) else owner
    if isinstance(whole, ClusterFacts):
        return whole.nodes.values()
    return (owner, *owner.group.nodes) if isinstance(owner, Node) else ()


def _campaigns(owner: Any) -> Iterable[Campaign]:
    if isinstance(owner, MeasuredPair):
        return (owner.campaign,)
    return owner.between.campaigns if isinstance(owner, Node) and isinstance(owner.between, PairwiseRun) else ()


def forget_catalogue(with_files: bool = False) -> None:
    """Discard the catalogue's rows; its files' content stays, unless that is included."""
    for cached in _kept_by_catalogue():
        if with_files or cached.__name__ != "document":
            cached.cache_clear()


@functools.cache
def _kept_by_catalogue() -> list[functools._lru_cache_wrapper[Any]]:
    wrappers = live_objects(functools._lru_cache_wrapper)
    return [cached for cached in wrappers if cached.__module__.startswith("clusterproof.plugins.catalog")]


@contextmanager
def cpu_limit() -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Endless

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
