"""Findings between nodes as text for people."""

from __future__ import annotations

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.pairs import Estimate, Kind, PairFault

SURE_AT_MOST = 0.9999  # maximum confidence stated for any measurement


def slowdown_text(finding: PairFault) -> str:
    """`11 % slower than normal (9 to 13 %), 8 measurements with 8 partners, 99.99 % sure`.

    The confidence is omitted if it is uncertain which node is slow.
    """
    if finding.estimate is None:
        return f"{finding.failures or 'none'} of {number_of(finding.attempts, 'measurement')} failed"
    estimate = finding.estimate
    is_sure = estimate.confidence and finding.kind is not Kind.INCONCLUSIVE
    sure = f", {min(estimate.confidence, SURE_AT_MOST):.2%} sure".replace("%", " %") if is_sure else ""
    measured = f"{number_of(estimate.measurements, 'measurement')} with {number_of(estimate.partners, 'partner')}"
    return f"{estimate_text(estimate)}, {measured}{sure}"


def estimate_text(estimate: Estimate) -> str:
    """`11 % slower than normal (9 to 13 %)`."""
    if estimate.slower <= 0:
        return "as fast as normal"
    low, high = sorted((estimate.low, estimate.high))
    return f"{estimate.slower * 100:.3g} % slower than normal ({max(low, 0.0) * 100:.3g} to {high * 100:.3g} %)"


def attribution(finding: PairFault) -> str:
    """A finding in a few words, as the reason for something else."""
    if finding.kind is Kind.SLOW_NODE and finding.estimate:
        return f"{finding.nodes[0]} is {finding.estimate.slower * 100:.3g} % slow"
    if finding.kind is Kind.FAILING_NODE:
        return f"measurements with {finding.nodes[0]} fail"
    if finding.kind in (Kind.SLOW_GROUP, Kind.CONTENTION) and finding.place and finding.estimate:
        slow = f"{finding.place} ({fold(finding.nodes)}) is {finding.estimate.slower * 100:.3g} % slow to other places"
        return f"{slow}, {finding.words}"
    if finding.kind is Kind.INTERMITTENT:
        return f"{fold(finding.nodes)} is slow now and then"
    if finding.kind is Kind.INCONCLUSIVE:
        return f"{' or '.join(finding.nodes)} may be at fault"
    words = "" if finding.kind is Kind.SLOW_LINK else finding.words  # which say what failed besides
    return words or finding.kind.value


def finding_text(finding: PairFault) -> str:
    """A finding as a report lists it: `slow node n0003: 11 % slower than normal (9 to 13 %), …`."""
    kind = finding.kind
    if kind in (Kind.CONFIGURATION, Kind.CONTENTION, Kind.SLOW_GROUP):
        return f"{kind.value}: {attribution(finding)}"
    is_of_link = kind in (Kind.SLOW_LINK, Kind.FAILING_LINK)
    subject = "~".join(finding.nodes) if is_of_link else fold(finding.nodes)
    has_numbers = bool(finding.estimate or finding.attempts)
    parts = filter(None, (slowdown_text(finding) if has_numbers else "", finding.words))
    return f"{kind.value} {subject}: {'; '.join(parts)}"


def as_observed(problem: str) -> str:
    """A finding as an observation: what the run expected is not what a check expects."""
    return problem.replace("; expected ", ", expected ")
