"""The cases that laws are tried on: each fault's evidence, with that of the healthy node it was injected into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import examine
from tests.builders.evaluated import among
from tests.faults import captured_fault, proof
from tests.faults.captured_fault import CapturedFault
from tests.faults.fault import Fault
from tests.laws.findings import Words, without_chance, words_of
from tests.laws.merge import changed_keys
from tests.laws.pieces import Difference, Path, changed_leaves, difference, leaves, noted

LOG = "kernel_log"
NAMED = (Verdict.FAIL, Verdict.CONCERN)


@dataclass(frozen=True)
class Case:
    """One fault's evidence, and the findings that name it, by check."""

    name: str
    evidence: NodeEvidence
    healthy: NodeEvidence
    checks: tuple[str, ...]
    peers: Sequence[NodeEvidence] = ()
    policy: Policy = NO_POLICY
    occasion: str = "preflight"
    files: Mapping[str, str] = field(default_factory=dict)  # of a capture
    healthy_files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def changed(self) -> Difference:
        """The fault's changes to the healthy node's evidence, by collector."""
        return difference(dict(self.evidence.collectors), dict(self.healthy.collectors))

    @cached_property
    def own(self) -> Words:
        """The words of the fault's changes."""
        return words_of(changed_leaves({**self.evidence.collectors, **_in_words(self.evidence)}, self.changed))

    @cached_property
    def context(self) -> Words:
        """The words of the healthy node's evidence other than the fault's own."""
        return words_of(leaves(dict(self.healthy.collectors))) - self.own

    @cached_property
    def changed_keys(self) -> frozenset[Path]:
        """The keys that the fault changed, in the same form as noted reads."""
        return changed_keys(dict(self.evidence.collectors), dict(self.healthy.collectors))

    @cached_property
    def reads(self) -> dict[str, frozenset[Path]]:
        """The reads of each check that names the fault."""
        return {check: self.read_by(check)[0] for check in self.named}

    def read_by(self, check: str) -> tuple[frozenset[Path], frozenset[Path]]:
        """A check's reads of the node and of its peers."""
        own: set[Path] = set()
        of_peers: set[Path] = set()
        self.says(check, noted(self.evidence, own), [noted(peer, of_peers) for peer in self.peers])
        return frozenset(own), frozenset(of_peers)

    def says(
        self, check: str, evidence: NodeEvidence | None = None, peers: Sequence[NodeEvidence] | None = None
    ) -> list[Finding]:
        """A check's findings on the node, or on it with other evidence or other peers."""
        node = among(evidence or self.evidence, self.occasion, self.peers if peers is None else peers, self.policy)
        return examine(node_checks()[check], node)[0]

    @cached_property
    def named(self) -> dict[str, list[Finding]]:
        """By check, the findings that name the fault: each fail and concern; else the first check's incomplete."""
        findings_of = {check: self.says(check) for check in self.checks}
        named = {
            check: [finding for finding in all_said if finding.verdict in NAMED]
            for check, all_said in findings_of.items()
        }
        if not any(named.values()):
            first = self.checks[0]
            named[first] = [finding for finding in findings_of[first] if finding.verdict is Verdict.INCOMPLETE]
        return {check: findings for check, findings in named.items() if findings}


def _in_words(evidence: NodeEvidence) -> dict[str, Collected]:
    """The kernel log without what a finding may not quote: levels, and a count of zero lines left out."""
    log = evidence.collectors.get(LOG)
    if not log or not isinstance(log.value, dict) or not isinstance(log.value.get("lines"), list):
        return {}
    lines = [[*line[:2], *filter(None, line[2:3])] for line in log.value["lines"]]
    return {LOG: replace(log, value={**log.value, "lines": lines})}


def healthy_name(fault: Fault) -> str:
    """The name under which the evidence of a fault's healthy node is kept."""
    return f"healthy {fault.base.__name__}"


def case_of(fault: Fault | CapturedFault, evidence: Mapping[str, NodeEvidence]) -> Case:
    """The case of one fault; `evidence` has live faults by name, and the healthy nodes under `healthy_name`."""
    if isinstance(fault, CapturedFault):
        files = {name: text for name, text in {**fault.healthy, **fault.files}.items() if text}
        both = captured_fault.read(files)[1], captured_fault.read(fault.healthy)[1]
        return Case(fault.name, *both, tuple(fault.expect), files=files, healthy_files=fault.healthy)
    healthy = evidence[healthy_name(fault)]
    peers = proof.peers_of(healthy)
    faulty = without_chance(evidence[fault.name], healthy)
    return Case(fault.name, faulty, healthy, tuple(fault.expect), peers, fault.policy, fault.occasion)
