"""Measurements between nodes in words: for the terminal, and next to the heat map."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import exp
from statistics import median

from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.core.message import number_of, printable, speed
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.result import Measured
from clusterproof.reports.findings import shortened

MAX_LINES = 4  # in the terminal, of campaigns
MAX_WORDS = 600  # characters of what was left out
MAX_NODES = 300  # characters of a nodeset
MAX_REASONS = 8  # shown for unmeasured nodes
MAX_NETWORKS = 4
ALIKE = 0.01  # relative difference within and across places, below which one number is shown
BROKEN_OFF = "what followed: it was broken off"
_LABEL = "pairs".ljust(12)
_GIB, _MIB = 2**30, 2**20
UNIT = "GB/s"


def measured(run: PairwiseRun) -> list[Campaign]:
    """The campaigns with any measurement."""
    return [campaign for campaign in run.campaigns if campaign.journal.measurements]


def lines_of_pairs(run: PairwiseRun, width: int) -> Iterator[str]:
    """For each campaign what was measured, what is normal, and what was left out, in lines of so many columns."""
    campaigns = measured(run)
    for campaign in campaigns[:MAX_LINES]:
        parts = [f"{_count(campaign)}: {_outcome(campaign)}"]
        if wire := of_wire(campaign):
            parts.append(f" ({wire})")
        if left_out(campaign):
            parts.append(f"; left out: {left_out(campaign)}")
        if campaign.journal.groups:
            parts.append(f"; groups: {campaign.groups.description()}")
        line = printable("".join(parts)).replace("\n", " ")
        yield from textwrap.wrap(
            f"{_LABEL}{line}",
            max(width, 60),
            subsequent_indent=" " * len(_LABEL),
            break_long_words=False,
            break_on_hyphens=False,
        )
    if len(campaigns) > MAX_LINES:
        yield f"{_LABEL}… and {len(campaigns) - MAX_LINES} more kinds of nodes; the report has all"


def facts(campaign: Campaign) -> Iterator[tuple[str, str]]:
    """Properties of a campaign: labels and texts."""
    journal = campaign.journal
    rounds = len({measurement.round for measurement in journal.measurements})
    yield "measured", f"{_count(campaign)}, in {number_of(rounds, 'round')}"
    yield "what", what(campaign)
    yield "exchanged", exchanged(campaign)
    yield "network", _networks(campaign)
    yield "normal", _normal_and_spread(campaign)
    yield "of the wire", of_wire(campaign)
    yield "floor", "" if campaign.mesh else _floor(campaign)
    yield "groups", campaign.groups.description()
    yield "seed", str(journal.plan.seed)
    yield "left out", left_out(campaign)
    yield "not measured", _absent(campaign)


def _outcome(campaign: Campaign) -> str:
    """What is normal; for exchanges between RDMA devices how many succeeded."""
    return exchanged(campaign) or f"normal {normal(campaign) or 'unknown: all failed'}"


def exchanged(campaign: Campaign) -> str:
    """`448 of 512 exchanges between RDMA devices arrived, on 8 rails`; empty if bandwidth was measured."""
    if campaign.mesh is None:
        return ""
    rails = campaign.mesh.rails
    arrived, made = sum(rail.arrived for rail in rails), sum(len(rail.links) for rail in rails)
    if not made:
        problems = (measurement.reading.problem for measurement in campaign.journal.measurements)
        return f"no exchange was made: {shortened(next(filter(None, problems), 'nothing says why'), MAX_WORDS)}"
    return (
        f"{arrived:,} of {number_of(made, 'exchange')} between RDMA devices arrived, on {number_of(len(rails), 'rail')}"
    )


def _count(campaign: Campaign) -> str:
    pairs, nodes, times = len(campaign.by_pair), len(campaign.by_node), len(campaign.journal.measurements)
    meter = campaign.journal.about.get("meter", "")
    counted = f"{number_of(pairs, 'pair')} of {number_of(nodes, 'node')}, measured {number_of(times, 'time')}"
    return f"{counted} with {meter}" if meter else counted


def what(campaign: Campaign) -> str:
    """`all_reduce of 8 GiB, p5.48xlarge, 8 ranks on each node, 32 EFA devices`."""
    key = campaign.key
    if key is None:
        sizes = {
            measurement.reading.size_bytes
            for measurement in campaign.journal.measurements
            if measurement.reading.size_bytes
        }
        return ", ".join(map(_size, sorted(sizes)[:MAX_NETWORKS]))
    size = f" of {_size(key.size_bytes)}" if key.size_bytes else ""
    ranks = "rank" if key.ranks_per_node == 1 else "ranks"
    devices = f", {number_of(key.efa, 'EFA device')}" if key.efa else ""
    kind = f"{key.instance_type}, " if key.instance_type else ""
    return f"{key.collective}{size}, {kind}{key.ranks_per_node} {ranks} on each node{devices}"


def _size(size_bytes: int) -> str:
    for unit, word in ((_GIB, "GiB"), (_MIB, "MiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {word}"
    return f"{size_bytes} bytes"


def _networks(campaign: Campaign) -> str:
    times_by_network = Counter(
        measurement.reading.network for measurement in campaign.journal.measurements if measurement.reading.network
    )
    networks = [
        f"{network} ({number_of(times, 'time')})" for network, times in times_by_network.most_common(MAX_NETWORKS)
    ]
    if len(times_by_network) == 1:
        networks = list(times_by_network)
    return "; ".join([*networks, *(["…"] if len(times_by_network) > MAX_NETWORKS else [])])


def _normals(campaign: Campaign) -> tuple[tuple[str, float], ...]:
    """What is normal, in GB/s; by kind of pair if they differ."""
    reference = campaign.analysis.normal
    if reference is None:
        return ()
    if abs(reference.inside - reference.across) < ALIKE:
        return (("", exp(reference.across)),)
    return ("inside places ", exp(reference.inside)), ("across them ", exp(reference.across))


def normal(campaign: Campaign) -> str:
    """`398.7 GB/s`; empty if all failed."""
    return ", ".join(f"{label}{speed(busbw)}" for label, busbw in _normals(campaign))


def _normal_and_spread(campaign: Campaign) -> str:
    reference = campaign.analysis.normal
    return f"{normal(campaign)}, spread {reference.sigma * 100:.2g} %" if reference else ""


def of_wire(campaign: Campaign) -> str:
    """`95 % of the wire; with 2 nodes …`, with its interpretation; empty if the network bandwidth is unknown."""
    shares_of_wire = [(text, wire) for text, busbw in _normals(campaign) if (wire := campaign.of_wire(busbw))]
    if not shares_of_wire:
        return ""
    shares = ", ".join(f"{text}{wire.share * 100:.3g} %" for text, wire in shares_of_wire)
    notes = "; ".join(dict.fromkeys(wire.note for _, wire in shares_of_wire if wire.note))
    text = f"{shares} of the wire, {speed(shares_of_wire[0][1].wire_gb_per_s)}"
    return f"{text}; {notes}" if notes else text


def _floor(campaign: Campaign) -> str:
    floor = campaign.floor_gb_per_s
    if floor is None:
        return "none: nothing is known that was measured with the same key; --save-baseline makes a baseline"
    share = f"{campaign.floor_share * 100:.3g} %"
    own = campaign.baseline
    if own is None:
        return f"{speed(floor)}, {share} of what was published for the same key"
    text = f"{speed(floor)}, {share} of the baseline's {speed(own.figure.busbw_gb_per_s)}"
    return f"{text}, of other software: {own.stack_differs}" if own.stack_differs else text


def left_out(campaign: Campaign) -> str:
    """What was left out for lack of time, or that it was interrupted; empty if all was measured."""
    ended = campaign.journal.ended
    return BROKEN_OFF if ended is None else shortened(ended, MAX_WORDS)


def _absent(campaign: Campaign) -> str:
    reasons: dict[str, list[str]] = defaultdict(list)
    for node, why in campaign.journal.absent.items():
        reasons[why].append(node)
    reasons_in_words = [
        f"{within(fold(nodes), MAX_NODES)}: {shortened(why, MAX_NODES)}"
        for why, nodes in list(reasons.items())[:MAX_REASONS]
    ]
    return "; ".join([*reasons_in_words, *(["…"] if len(reasons) > MAX_REASONS else [])])


def measured_between(run: PairwiseRun) -> Iterator[Measured]:
    """Each node's busbw, in pairs and in groups of each size: the median of its successful measurements, 10^9 bytes/s.

    The name identifies the method of measurement: other methods form separate trends.
    """
    for campaign in run.campaigns:
        meter = str(campaign.journal.about.get("meter", ""))
        measured_with = ", ".join(filter(None, (what(campaign), meter)))
        bandwidths: dict[tuple[str, str], list[float]] = defaultdict(list)
        of_pairs = [
            ("with partners", measurement.pair.nodes, measurement.reading)
            for measurement in campaign.journal.measurements
        ]
        of_groups = [
            (f"in groups of {len(measurement.group.nodes)} nodes", measurement.group.nodes, measurement.reading)
            for measurement in campaign.journal.groups
        ]
        for how, nodes, reading in (*of_pairs, *of_groups):
            for node in nodes if reading.busbw_gb_per_s else ():
                bandwidths[how, node].append(reading.busbw_gb_per_s or 0.0)
        for (how, node), busbws in bandwidths.items():
            yield Measured(f"busbw {how}: {measured_with}", node, median(busbws), UNIT)
