"""Cases: what every check says of a faulty or healthy node, or of what a test made, and whether it still says so."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from clusterproof.plugins.benchmarks.pairwise.analysis import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import MeasuredPair, PairwiseRun
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.check import Check
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes.facts_cluster import NodeOfCluster
from clusterproof.plugins.evidence.node import Node
from tests.mutants.mutations import Mutant, live_objects

Lines = frozenset[tuple[str, int]]  # a file and a line of it
PARTS = (
    "checks/",
    "plugins/catalog/",
    "plugins/transport/kubernetes/report_cache.py",
)  # of the package: where mutants are
CPU_S = 20.0  # that one case may take: a mutant may well have no end


class Endless(BaseException):
    """A mutant that goes on and on."""


@dataclass
class Case:
    """A node, a pair or a cluster, with what each check says of it; of one check, words that it must say."""

    name: str
    owner: Any
    checks: Mapping[str, Check]
    words: Mapping[str, str] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    ran: dict[str, Lines] = field(default_factory=dict)  # by check, what is run of checks
    catalogue: Lines = frozenset()  # what is run of the catalogue, by any of them

    def finds(self, mutant: Mutant) -> str:
        """The check that says something else with the mutant installed, else empty."""
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
            data = evaluate(self.checks[name], self.owner)
        except Exception:  # whatever breaks a run is seen
            return True
        return data.verdict is not self.verdicts[name] or self.words.get(name, "") not in data.message

    def learn(self, root: str) -> None:
        """Note what each check says, twice, and what it runs; forget those that do not say the same again."""
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
        """The checks that run what the mutant changes, those first that have something to say."""
        touched = {(mutant.place[0], line) for line in mutant.lines}
        if mutant.is_of_catalogue:
            return [*self.ran] if touched & self.catalogue else []
        names = [name for name, lines in self.ran.items() if touched & lines]
        return sorted(names, key=lambda name: self.verdicts[name] in (Verdict.PASS, Verdict.NOT_APPLICABLE))


@contextmanager
def traced(root: str) -> Iterator[set[tuple[str, int]]]:
    """The lines of checks and of the catalogue that are run meanwhile."""
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
    """Let an owner's facts be read anew, and those of the nodes beside it."""
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
    """Let what is usual in the groups of an owner's nodes be reckoned anew: checks say how."""
    for group in {id(group): group for node in _nodes(owner) for group in (node.group, node.run)}.values():
        for kept in (group.common, group.counted, group.measured, group.owners, group.read, group.usuals):
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
    """Let the rows of the catalogue be made anew; what its files hold stays, where that is not asked for too."""
    for one in _kept_by_catalogue():
        if with_files or one.__name__ != "document":
            one.cache_clear()


@functools.cache
def _kept_by_catalogue() -> list[functools._lru_cache_wrapper[Any]]:
    wrappers = live_objects(functools._lru_cache_wrapper)
    return [one for one in wrappers if one.__module__.startswith("clusterproof.plugins.catalog")]


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
