"""A run as reports see it: its results, its nodes' evidence, its times, and its command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from clusterproof.reports.findings import FindingGroup, findings
from clusterproof.reports.history import Pair, Past
from clusterproof.reports.history.changes import Changes, headline, since_last
from clusterproof.reports.history.words import folded, moment

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
    from clusterproof.plugins.training_run.run import TrainingRun


@dataclass(frozen=True, slots=True)
class Since:
    """The previous run: when it was, and findings that are new, still there and gone since."""

    began: float
    changes: Changes

    @property
    def title(self) -> str:
        """`Since the last run (2026-03-02 08:00 UTC)`."""
        return f"Since the last run ({moment(self.began)})"

    @property
    def words(self) -> str:
        """The title, and the headline."""
        return f"{self.title}: {headline(self.changes)}"

    def lines(self, *kinds: str) -> list[str]:
        """A line for each check of these kinds, its nodes folded: `new gpu003: fail: Active NVLinks (…)`."""
        lines_of_kinds = [
            line for kind, changes in self.changes.kinds if kind in kinds for line in folded(kind, changes)
        ]
        return [" ".join(line.split()) for line in lines_of_kinds]


@dataclass(frozen=True, slots=True)
class Run:
    """One run over a cluster. `began` is by the clock and time zone of the machine that ran it."""

    facts: ClusterFacts
    results: Sequence[Result]
    began: datetime
    seconds: float
    exit_code: int
    command: tuple[str, ...]  # that asks for the same cluster in the same way, without nodes and checks
    left_out: Mapping[str, str]  # checks that were collected and not run, by id: why
    evaluated_by_pairs: frozenset[str] = frozenset()  # checks, by id
    between: PairwiseRun | None = None  # what was measured between nodes
    past: Past | None = None  # this run and those before it, where there is a history
    site: str = ""  # where the documentation stands, with a slash at its end
    training: TrainingRun | None = None  # what a training run recorded of itself
    last_began: float | None = None  # when the run before it in the history did, in seconds since 1970
    before: Mapping[Pair, Verdict] = field(default_factory=dict)  # what stood then, where it was not fine
    is_redacted: bool = False  # its names are nobody's
    inventory: Cluster | None = None  # the cluster without what its nodes say of themselves, as their instance ids
    compared: Mapping[str, Sequence[str]] = field(default_factory=dict)  # thresholds of a training run's rules, by id
    junit_cases: str = "check"  # what a case of JUnit is: a check with its nodes, or a node with its checks
    sources: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # file and line of each check that JUnit names

    @property
    def cluster(self) -> Cluster:
        """The cluster, under names that may be written."""
        return self.facts.cluster

    @property
    def acted_on(self) -> Cluster | None:
        """The cluster that commands to copy are for; None where its names are not its own.

        No node says which instance is rebooted.
        """
        return None if self.is_redacted else self.inventory or self.cluster

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Its nodes by name, in the order of the inventory."""
        return self.facts.nodes

    def findings(self, verdict: Verdict) -> list[FindingGroup]:
        """Its findings of one verdict, those on most nodes first."""
        return findings(self.results, verdict, self.facts.catalog)

    @property
    def since(self) -> Since | None:
        """What changed since the run before it; None where the history has none, or there is no history."""
        return None if self.last_began is None else Since(self.last_began, since_last(self.results, self.before))
