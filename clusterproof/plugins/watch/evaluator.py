"""Evaluates the packaged checks on nodes: all of them at the start, then those that read changed evidence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.interning import Interning
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from clusterproof.plugins.evaluation.evaluate import verdicts_on
from clusterproof.plugins.evidence.fact import LOAD_COLLECTORS, ONLY_CAPTURED
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.watch import RuleResults, Unknown
from clusterproof.plugins.watch.findings import evaluated, over_by_line, rule_results_of
from clusterproof.plugins.watch.overlay import (
    WATCHED,
    LogCursor,
    log_cursor_of,
    with_facts,
    with_known,
    with_lines,
    with_reported,
)
from clusterproof.plugins.watch.updates import LogLine

OCCASION = "preflight"
CHANGING = frozenset(WATCHED)  # reported again while a node is watched
UNCHANGING = ("boot", "platform", "imds", "resource_config", "edac", "pci", "neuron", "memory", "nvme")
KEPT = CHANGING | frozenset(UNCHANGING)  # … and what it is evaluated with
LASTING = frozenset({"gpu.no_throttle"})  # transient conditions: evaluated at each tick

VISIT_CHECKS = frozenset({"host.shm_leftovers"})  # changes with each job, and is only collected at visits

OnResults = Callable[[str, list[Result], RuleResults], object]


class Evaluator:
    """The nodes of a cluster, with the evidence kept for evaluating them again."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.cluster, self.policy = cluster, policy
        self._checks = {name: check for name, check in node_checks().items() if OCCASION in occasions(check)}
        self._nodes: dict[str, Node] = {}
        self.on_results: OnResults = lambda *_: None  # called with each result of a node's checks

    def current(self) -> dict[str, Node]:
        """All nodes with their kept evidence; from any thread."""
        kept = self._nodes.copy()
        names = [target.name for target in self.cluster.targets]
        evidence_by_node = {name: kept[name].evidence if name in kept else NodeEvidence(name) for name in names}
        return {**nodes(self.cluster, evidence_by_node, OCCASION, self.policy), **kept}

    @property
    def checks(self) -> Collection[str]:
        """The checks that a visit evaluates, by id."""
        return self._checks.keys()

    @property
    def collectors(self) -> frozenset[str]:
        """The collectors that a node must run so that all of these checks can be evaluated."""
        collectors = frozenset[str]().union(*(check.collectors for check in self._checks.values()))
        return (collectors | {"boot", "platform"}) - ONLY_CAPTURED - LOAD_COLLECTORS

    def rules(self, *collectors: str) -> frozenset[str]:
        """The checks that read one of these and only kept evidence, except those of transient conditions."""
        return frozenset(
            name
            for name, check in self._checks.items()
            if not check.collectors.isdisjoint(collectors)
            and check.collectors <= KEPT
            and name not in LASTING | VISIT_CHECKS
        )

    def evaluate_all(self, evidence_by_node: Mapping[str, NodeEvidence]) -> dict[str, tuple[RuleResults, list[Result]]]:
        """Evaluate all checks on these nodes; keep what is needed to evaluate them again.

        Unreached nodes are not used in comparisons.
        """
        is_any_reached = any(not evidence.unreached for evidence in evidence_by_node.values())
        targets = tuple(
            reached for reached in self.cluster.targets if is_any_reached or reached.name in evidence_by_node
        )
        known = {target.name: evidence_by_node.get(target.name) or self._of(target.name) for target in targets}
        made = nodes(replace(self.cluster, targets=targets), known, OCCASION, self.policy)
        verdicts = {}
        for name in evidence_by_node:
            results = self._results(made[name], self._checks)
            rule_results = rule_results_of(made[name], results)
            self.on_results(name, results, rule_results)
            verdicts[name] = rule_results, results
        if is_any_reached:
            self._keep_all(evidence_by_node, made)
        return verdicts

    def _keep_all(self, evidence_by_node: Mapping[str, NodeEvidence], made: Mapping[str, Node]) -> None:
        """Keep the evidence of these nodes that checks read again, and drop outdated comparisons with them."""
        interning = Interning()  # nodes of a kind report mostly the same at one visit
        for name, evidence in evidence_by_node.items():
            if not evidence.unreached:
                kept = {collector: value for collector, value in evidence.collectors.items() if collector in KEPT}
                once = with_known(interning.intern(replace(evidence, collectors=kept)), self._of(name))
                self._nodes[name] = replace(made[name], evidence=once, facts={})
        for name, node in self._nodes.items():  # no node keeps its last group, and with it that group's old nodes
            self._nodes[name] = replace(node, group=made[name].group, run=made[name].run)
        for group in {id(group): group for node in made.values() for group in (node.group, node.run)}.values():
            group.keep(self._nodes[node.name] for node in group.nodes if node.name in self._nodes)

    def knows(self, name: str) -> bool:
        """Whether a node has reported enough to be evaluated again."""
        return name in self._nodes

    def latest(self, name: str) -> Mapping[str, Collected]:
        """A node's current evidence, as if it had just been visited."""
        node = self._nodes.get(name)
        collectors = node.evidence.collectors.items() if node else ()
        return {name: value for name, value in collectors if name in CHANGING}

    def log_cursor(self, name: str) -> LogCursor | None:
        """How far its kernel log was read."""
        return log_cursor_of(self._of(name))

    def logged(self, name: str, lines: Iterable[LogLine]) -> None:
        """Add lines of a node's kernel log."""
        self._keep(name, with_lines(self._nodes[name].evidence, lines))

    def changed(self, name: str, facts: Mapping[int, Mapping[str, Any]]) -> bool:
        """Update facts of a node's GPUs; returns whether anything changed."""
        before = self._nodes[name].evidence
        self._keep(name, with_facts(before, facts))
        return self._nodes[name].evidence is not before

    def reported(self, name: str, values: Mapping[str, Mapping[str, Any]]) -> bool:
        """Update what these collectors of a node report; returns whether anything changed."""
        before = self._nodes[name].evidence
        self._keep(name, with_reported(before, values))
        return self._nodes[name].evidence is not before

    def reevaluate(self, name: str, rules: Iterable[str]) -> tuple[frozenset[str], RuleResults, Unknown]:
        """Evaluate these checks on a node as far as possible: which were evaluated, findings, and unknown devices."""
        node = self._nodes[name]
        results = self._results(node, sorted(rules))
        rule_results = rule_results_of(node, results)
        self.on_results(name, results, rule_results)
        known, unknown = evaluated(results)
        return known | (over_by_line(node) & frozenset(rules)), rule_results, unknown

    def _of(self, name: str) -> NodeEvidence:
        node = self._nodes.get(name)
        return node.evidence if node else NodeEvidence(name)

    def _keep(self, name: str, evidence: NodeEvidence) -> None:
        node = self._nodes[name]
        if evidence is not node.evidence:
            self._nodes[name] = replace(node, evidence=evidence, facts={})

    def _results(self, node: Node, rules: Iterable[str]) -> list[Result]:
        self.policy = self.policy.as_of_today()
        every = (self._checks[rule] for rule in rules if rule in self._checks)
        return [result for check in every for result in verdicts_on(self.policy, check, node)]
