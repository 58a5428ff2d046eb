"""A run as seen by reports: verdicts, nodes' evidence, times, and the command to repeat it."""

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
from clusterproof.reports.history import Pair, Past, Standing
from clusterproof.reports.history.changes import Changes, headline, since_last
from clusterproof.reports.history.words import folded, moment

if TYPE_CHECKING:
    from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
    from clusterproof.plugins.training_run.run import TrainingRun


@dataclass(frozen=True, slots=True)
class Since:
    """The changes since the previous run: its time, and what is new, still there and gone."""

    began: float
    changes: Changes

    @property
    def title(self) -> str:
        """`Since the last run (2026-03-02 08:00 UTC)`."""
        return f"Since the last run ({moment(self.began)})"

    @property
    def description(self) -> str:
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
    """One run over a cluster. `began` is in the time zone of the machine that ran it."""

    facts: ClusterFacts
    results: Sequence[Result]
    began: datetime
    seconds: float
    exit_code: int
    command: tuple[str, ...]  # selects the same cluster in the same way, without nodes and checks
    left_out: Mapping[str, str]  # collected but deselected checks, by id: why
    evaluated_by_pairs: frozenset[str] = frozenset()  # checks, by id
    between: PairwiseRun | None = None  # measurements between nodes
    past: Past | None = None  # this run and earlier ones, if there is a history
    site: str = ""  # base URL of the documentation, ending in a slash
    training: TrainingRun | None = None  # the recorded data of a training run
    last_began: float | None = None  # start of the previous run in the history, in seconds since 1970
    before: Mapping[Pair, Standing] = field(default_factory=dict)  # the state then, if it was not fine
    is_redacted: bool = False  # names are placeholders
    inventory: Cluster | None = None  # the cluster without values from its nodes, such as instance ids
    compared: Mapping[str, Sequence[str]] = field(default_factory=dict)  # thresholds of a training run's rules, by id
    junit_cases: str = "check"  # what a JUnit case is: a check with its nodes, or a node with its checks
    sources: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # file and line of each check in JUnit files

    @property
    def cluster(self) -> Cluster:
        """The cluster, under displayable names."""
        return self.facts.cluster

    @property
    def acted_on(self) -> Cluster | None:
        """The cluster for commands to copy; None if its names are redacted.

        Values from nodes are excluded: a node must not determine which instance is rebooted.
        """
        return None if self.is_redacted else self.inventory or self.cluster

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Its nodes by name, in inventory order."""
        return self.facts.nodes

    def findings(self, verdict: Verdict) -> list[FindingGroup]:
        """Its findings of one verdict, those on most nodes first."""
        return findings(self.results, verdict, self.facts.catalog)

    @property
    def since(self) -> Since | None:
        """The changes since the previous run; None without one in the history."""
        return None if self.last_began is None else Since(self.last_began, since_last(self.results, self.before))
