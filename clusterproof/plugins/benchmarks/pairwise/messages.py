"""Findings and measurements as people read them."""

from __future__ import annotations

from clusterproof.plugins.benchmarks.pairwise.facts import MeasuredPair
from clusterproof.plugins.core.message import number_of, speed
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.pairs import Estimate, Finding, Kind

SURE_AT_MOST = 0.9999  # nobody is surer than that of anything measured


def slower_in_words(finding: Finding) -> str:
    """`11 % slower than normal (9 to 13 %), 8 measurements with 8 partners, 99.99 % sure`.

    How sure it is that no healthy node looks so is not said where it is not certain which node it is.
    """
    if finding.estimate is None:
        return f"{finding.failures or 'none'} of {finding.attempts} measurements failed"
    data = finding.estimate
    is_sure = data.surely and finding.kind is not Kind.INCONCLUSIVE
    sure = f", {min(data.surely, SURE_AT_MOST):.2%} sure".replace("%", " %") if is_sure else ""
    measured = f"{number_of(data.measurements, 'measurement')} with {number_of(data.partners, 'partner')}"
    return f"{estimate_in_words(data)}, {measured}{sure}"


def estimate_in_words(data: Estimate) -> str:
    """`11 % slower than normal (9 to 13 %)`."""
    if data.slower <= 0:
        return "as fast as normal"
    low, high = sorted((data.low, data.high))
    return f"{data.slower * 100:.3g} % slower than normal ({max(low, 0.0) * 100:.3g} to {high * 100:.3g} %)"


def attribution(finding: Finding) -> str:
    """A finding in a few words, as the reason of something else."""
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
    return finding.words or finding.kind.value


def finding_in_words(finding: Finding) -> str:
    """A finding as a report lists it: `slow node n0003: 11 % slower than normal (9 to 13 %), …`."""
    kind = finding.kind
    if kind in (Kind.CONFIGURATION, Kind.CONTENTION, Kind.SLOW_GROUP):
        return f"{kind.value}: {attribution(finding)}"
    is_of_link = kind in (Kind.SLOW_LINK, Kind.FAILING_LINK)
    who = "~".join(finding.nodes) if is_of_link else fold(finding.nodes)
    has_numbers = bool(finding.estimate or finding.attempts)
    data = filter(None, (slower_in_words(finding) if has_numbers else "", finding.words))
    return f"{kind.value} {who}: {'; '.join(data)}"


def measured_in_words(pair: MeasuredPair) -> str:
    """`284 GB/s, 71 % of normal; again 99 %, 98 %`; what failed says why."""
    data = [_reading(pair, number) for number in range(len(pair.measurements))]
    return f"{data[0]}{'; again ' if data[1:] else ''}{', '.join(data[1:])}".replace("; expected", ", expected")


def _reading(pair: MeasuredPair, number: int) -> str:
    reading = pair.measurements[number].reading
    usual = pair.campaign.usual_gb_per_s(pair.pair)
    if not reading.busbw_gb_per_s:
        return f"failed ({reading.problem or 'nothing says why'})"
    share = f"{reading.busbw_gb_per_s / usual:.0%}".replace("%", " %") if usual else ""
    return f"{speed(reading.busbw_gb_per_s)}, {share} of normal" if not number else share
