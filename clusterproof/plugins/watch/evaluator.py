"""Evaluates the packaged checks on nodes: all of them at the start, then those that read changed evidence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.interning import Interning
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks, occasions
from clusterproof.plugins.evaluation.evaluate import verdicts_on
from clusterproof.plugins.evidence.fact import LOAD_COLLECTORS, ONLY_CAPTURED
from clusterproof.plugins.evidence.kernel_log.wording import gpus_by_address, line_findings
from clusterproof.plugins.evidence.kernel_log.xid_findings import XidFinding, evaluate, evaluate_switches
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.watch import ALSO, RuleResult, Unknown
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
XIDS: Mapping[str, str] = {"gpu.no_xid": "Xid", "gpu.no_sxid": "SXid"}  # whose findings are reported individually …
LASTING = frozenset({"gpu.no_throttle"})  # transient conditions: evaluated at each tick

VISIT_CHECKS = frozenset({"host.shm_leftovers"})  # changes with each job, and is only collected at visits

RuleResults = dict[tuple[str, str], RuleResult]  # by device and check
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
            rule_results = self._rule_results(made[name], results)
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
        rule_results = self._rule_results(node, results)
        self.on_results(name, results, rule_results)
        known, unknown = evaluated(results)
        return known | (_over_by_line(node) & frozenset(rules)), rule_results, unknown

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

    def _rule_results(self, node: Node, results: Iterable[Result]) -> RuleResults:
        rule_results: RuleResults = {}
        every = (part for result in results for part in result.by_verdict)
        for result in sorted(every, key=lambda part: part.verdict.rank):
            if result.verdict not in (Verdict.FAIL, Verdict.CONCERN):
                continue
            one_by_one = {**_xid_results(node, result), **_line_results(node, result)}
            if one_by_one:
                rule_results = one_by_one | rule_results
            else:
                for device in result.devices or ("",):
                    before = rule_results.get((device, result.check))
                    rule_results[device, result.check] = _joined(before, result.verdict, result.message.split("\n"))
        return rule_results


def _joined(earlier: RuleResult | None, verdict: Verdict, messages: Sequence[str]) -> RuleResult:
    """The findings so far and further ones in one line, with the worst verdict."""
    if earlier is None:
        return RuleResult(verdict, ALSO.join(messages), len(messages))
    worst = min(earlier.verdict, verdict, key=lambda one: one.rank)
    return RuleResult(worst, ALSO.join([earlier.message, *messages]), earlier.findings + len(messages))


def evaluated(results: Iterable[Result]) -> tuple[frozenset[str], Unknown]:
    """The checks that could be evaluated, and the devices for which they could not: their states stay open."""
    every = list(results)
    unknown = {
        (device, part.check)
        for result in every
        for part in result.by_verdict
        if part.verdict is Verdict.INCOMPLETE
        for device in part.devices or ("",)
    }
    return frozenset(part.check for part in every if ("", part.check) not in unknown), frozenset(unknown)


def _line_results(node: Node, result: Result) -> RuleResults:
    """Findings of the kernel log, for checks that evaluate nothing else: each form of line and device once."""
    if result.check not in evaluated_by_line():
        return {}
    try:
        lines, _ = line_findings(node, result.check)
    except (Incomplete, NotApplicable):
        return {}
    rule_results: RuleResults = {}
    for line in lines:
        key = (", ".join(filter(None, (line.device, line.form.label))), result.check)
        verdict, before = _read(Verdict.FAIL if line.fails else Verdict.CONCERN, node, result), rule_results.get(key)
        rule_results[key] = _joined(before, verdict, [line.words])
    return rule_results


def _read(verdict: Verdict, node: Node, result: Result) -> Verdict:
    """The verdict as the site's policy reads it in a result of the same check."""
    return node.policy.verdict_of(result.check, result.owner, verdict)


def _over_by_line(node: Node) -> frozenset[str]:
    """The checks whose findings end with a later line: they do not stay open because the log lost its beginning."""
    try:
        node.kernel_events  # noqa: B018 - raises Incomplete if it could not be read
    except Incomplete:
        return frozenset()
    return evaluated_by_line()


@cache
def evaluated_by_line() -> frozenset[str]:
    """Checks that only evaluate forms of kernel log lines, and those of Xids."""
    by_form = {form.check for form in log_forms().values() if form.check}
    return frozenset(by_form - {form.check for form in log_forms().values() if form.event}) | XIDS.keys()


def _xid_results(node: Node, result: Result) -> RuleResults:
    """The Xid findings of the kernel log: each GPU and code once."""
    if result.check not in XIDS:
        return {}
    try:
        findings = [finding for finding in _xids(node) if finding.severity != "none"]
        names = gpus_by_address(node)
    except (Incomplete, NotApplicable):
        findings, names = [], {}
    rule_results: RuleResults = {}
    for finding in findings:
        if finding.family == XIDS[result.check]:
            where = names[finding.pci].label if finding.pci in names else finding.pci or "an unnamed device"
            title = f"{finding.family} {finding.code} ({finding.name}){f', {finding.part}' if finding.part else ''}"
            verdict = _read(Verdict.FAIL if finding.severity == "fail" else Verdict.CONCERN, node, result)
            rule_results[f"{where}, {finding.family} {finding.code}", result.check] = RuleResult(
                verdict, f"{title}: {finding.action}"
            )
    return rule_results


def _xids(node: Node) -> tuple[XidFinding, ...]:
    events, gpus = node.kernel_events, gpus_by_address(node)
    due = [address for address, gpu in gpus.items() if gpu.remap_is_due]
    uuids = {address: gpu.uuid for address, gpu in gpus.items()}
    return (*evaluate(events, node.catalog, remap_due=due, uuids=uuids), *evaluate_switches(events, node.catalog))
