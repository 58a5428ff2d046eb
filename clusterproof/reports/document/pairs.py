"""Measurements between nodes: findings, a heat map of pairs, and a strip for each of the worst nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from html import escape
from statistics import median
from urllib.parse import quote

from clusterproof.plugins.benchmarks.pairwise.analysis import TOO_FEW
from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.benchmarks.pairwise.in_words import estimate_text, finding_text
from clusterproof.plugins.benchmarks.pairwise.mesh import Mesh
from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.pairs import Kind, Measurement, PairFault
from clusterproof.reports.document import Section, heat, node_map, of_nodes
from clusterproof.reports.document.data import MAX_NAME
from clusterproof.reports.document.heat import Cell, HeatMap, HeatMapLine
from clusterproof.reports.document.node_map import Block, blocks, groups, in_order
from clusterproof.reports.findings import shortened
from clusterproof.reports.pairs import facts, measured

MAX_CAMPAIGNS = 6  # kinds of nodes, with a map each
MAX_CELL_BY_CELL = 64  # nodes shown individually
MAX_MARKED = 24  # rows of nodes that findings name, below a map of places
MAX_FINDINGS = 30
MAX_WORDS = 500  # characters of a finding, or of a fact
MAX_LISTED = 6  # measurements in the title of a cell
MAX_SHOWN = 60  # characters of a name in a tooltip
SLOW = 0.95  # of normal: below it a measurement has its own tick
_NOBODY = "No node, link or place was found to be slower than the others."
_TWO_NODES = "With only two nodes, it is impossible to tell which one is slower."
_OF_SOME = (
    Kind.SLOW_NODE,
    Kind.FAILING_NODE,
    Kind.SLOW_LINK,
    Kind.FAILING_LINK,
    Kind.INTERMITTENT,
    Kind.INCONCLUSIVE,
)  # that name single nodes, the worst first


def pairs_section(run: PairwiseRun, with_page: Container[str]) -> Section | None:
    """The section; None if nothing was measured. `with_page` are the nodes with details."""
    campaigns = measured(run)
    if not campaigns:
        return None
    parts = [_campaign(campaign, with_page, is_one=len(campaigns) == 1) for campaign in campaigns[:MAX_CAMPAIGNS]]
    if len(campaigns) > MAX_CAMPAIGNS:
        parts.append(f"<p>… and {len(campaigns) - MAX_CAMPAIGNS} more kinds of nodes; pairs.csv has all</p>")
    if run.why_not:
        parts.append(f"<p>{escape(shortened(run.why_not, MAX_WORDS))}</p>")
    is_mesh = all(campaign.mesh for campaign in campaigns)
    title = "RDMA connectivity between nodes" if is_mesh else "Bandwidth between nodes"
    return Section("pairs", title, "".join(parts))


def _campaign(campaign: Campaign, with_page: Container[str], is_one: bool) -> str:
    kind = campaign.key.instance_type if campaign.key else ""
    if campaign.mesh:
        title = "" if is_one else f"<h3>{escape(kind or 'nodes of no known type')}</h3>"
        return f"{title}{_exchanges(campaign.mesh)}{_facts(campaign)}"
    marks = _marks(campaign)
    lines = list(_lines(campaign, marks, with_page))
    nodes = in_order(campaign.by_node, campaign.journal.plan.places)
    is_small = len(nodes) <= MAX_CELL_BY_CELL
    drawing = _of_nodes(campaign, nodes, marks) if is_small else _of_places(campaign, nodes, marks)
    return "".join(
        (
            "" if is_one else f"<h3>{escape(kind or 'nodes of no known type')}</h3>",
            _findings(campaign),
            _facts(campaign),
            "<h3>Pairs, as shares of normal</h3>",
            heat.legend(),
            f'<div class="drawn-pairs">{heat.heat_map(drawing)}{_circle(campaign, nodes, marks)}</div>',
            "<h3>Nodes, the worst first</h3><p>A tick for each measurement; in the band it is normal.</p>",
            heat.strip(lines, SLOW),
        )
    )


def _circle(campaign: Campaign, nodes: Sequence[str], marks: Mapping[str, PairFault]) -> str:
    """The slow pairs by place; empty if there are none, or too many to be readable."""
    if len(nodes) > node_map.MAX_NODES:
        return ""
    slow = []
    for pair, measurements in campaign.by_pair.items():
        shares = _shares(campaign, measurements)
        share = _middle(shares)
        if share is None or share < SLOW:
            title = f"{_short(pair.a)} ~ {_short(pair.b)}: {_shares_text(shares)}"
            slow.append(node_map.SlowPair((pair.a, pair.b), share, title))
    return node_map.drawn(groups(nodes, campaign.journal.plan.places), slow, [*marks]) if slow else ""


def _findings(campaign: Campaign) -> str:
    findings = campaign.analysis.findings
    if not findings:
        is_enough = len(campaign.by_node) >= TOO_FEW
        return f"<p>{_NOBODY if is_enough else _TWO_NODES}</p>"
    items = "".join(
        f"<li{of_nodes(finding.nodes) if finding.nodes else ''}>"
        f"{escape(shortened(finding_text(finding), MAX_WORDS))}</li>"
        for finding in findings[:MAX_FINDINGS]
    )
    more = f"<li>… and {len(findings) - MAX_FINDINGS} more</li>" if len(findings) > MAX_FINDINGS else ""
    return f'<ul class="of-pairs">{items}{more}</ul>'


def _exchanges(mesh: Mesh) -> str:
    """The results of exchanges between RDMA devices."""
    if not mesh.rails:
        return "<p>No exchange was made.</p>"
    if not mesh.findings:
        return "<p>No RDMA device, rail or path was found to carry nothing.</p>"
    items = "".join(
        f"<li{of_nodes(finding.nodes)}>{escape(shortened(f'{fold(finding.nodes)}: {finding.words}', MAX_WORDS))}</li>"
        for finding in mesh.findings[:MAX_FINDINGS]
    )
    left = len(mesh.findings) - MAX_FINDINGS
    more = f"<li>… and {left} more</li>" if left > 0 else ""
    return f'<ul class="of-pairs">{items}{more}</ul>'


def _facts(campaign: Campaign) -> str:
    rows = "".join(
        f"<dt>{word}</dt><dd>{escape(shortened(value, 2 * MAX_WORDS))}</dd>" for word, value in facts(campaign) if value
    )
    return f"<dl>{rows}</dl>"


def _marks(campaign: Campaign) -> dict[str, PairFault]:
    """The nodes that findings name individually, and the finding on each, in the order of kinds."""
    findings = sorted(
        (finding for finding in campaign.analysis.findings if finding.kind in _OF_SOME),
        key=lambda finding: _OF_SOME.index(finding.kind),
    )
    marks: dict[str, PairFault] = {}
    for finding in findings:
        for node in finding.nodes:
            marks.setdefault(node, finding)
    return marks


def _of_nodes(campaign: Campaign, nodes: Sequence[str], marks: Container[str]) -> HeatMap:
    """A map of nodes by nodes."""
    at = {node: number for number, node in enumerate(nodes)}
    cells = []
    for pair, measurements in campaign.by_pair.items():
        shares = _shares(campaign, measurements)
        row, column = (at[node] for node in pair)
        title = f"{_short(pair.a)} ~ {_short(pair.b)}: {_shares_text(shares)}"
        cells.append(Cell(((row, column), (column, row)), _middle(shares), title))
    lines = [HeatMapLine(node, node in marks) for node in nodes]
    label = f"bandwidth of {number_of(len(cells), 'pair')} of {len(nodes)} nodes as shares of normal"
    starts = _starts(groups(nodes, campaign.journal.plan.places))
    return HeatMap(lines, lines, cells, starts, label, 16 if len(nodes) > 40 else 20)


def _of_places(campaign: Campaign, nodes: Sequence[str], marks: Mapping[str, PairFault]) -> HeatMap:
    """A map of places by places, and below it nodes that findings name by places."""
    slow = {finding.place for finding in campaign.analysis.findings if finding.place}
    folded = blocks(nodes, campaign.journal.plan.places, slow)
    number_of_place = {node: number for number, block in enumerate(folded) for node in block.nodes}
    named = [node for node in marks if node in number_of_place][:MAX_MARKED]
    row_of = {node: len(folded) + number for number, node in enumerate(named)}
    shares: dict[tuple[int, int], list[float | None]] = defaultdict(list)
    for pair, measurements in campaign.by_pair.items():
        measured = _shares(campaign, measurements)
        row, column = sorted(number_of_place[node] for node in pair)
        shares[row, column] += measured
        for node in pair:
            if node in row_of:
                shares[row_of[node], number_of_place[pair.other(node)]] += measured
    lines = [
        *(HeatMapLine(block.name, block.name in slow) for block in folded),
        *(HeatMapLine(node, is_marked=True) for node in named),
    ]
    cells = [
        Cell(
            ((row, column),) if row >= len(folded) or row == column else ((row, column), (column, row)),
            _middle(measured),
            f"{_short(lines[row].name)} with {_short(lines[column].name)}: {_shares_text(measured)}",
        )
        for (row, column), measured in shares.items()
    ]
    label = f"median bandwidth of {len(folded)} places of {len(nodes)} nodes as shares of normal"
    below = {len(folded): "of the findings"} if named else {}
    return HeatMap(lines, lines[: len(folded)], cells, {0: "medians", **below}, label, 26)


def _starts(of_places: Sequence[Block]) -> dict[int, str]:
    starts: dict[int, str] = {}
    at = 0
    for block in of_places:
        starts[at] = block.name
        at += len(block.nodes)
    return starts


def _lines(campaign: Campaign, marks: Mapping[str, PairFault], with_page: Container[str]) -> Iterator[heat.StripLine]:
    """The nodes that findings name, then the slowest; the rest in one line."""
    shares_of = {node: _shares(campaign, measurements) for node, measurements in campaign.by_node.items()}
    slower = {node: estimate.slower for node, estimate in campaign.analysis.estimates.items()}
    order = {node: number for number, node in enumerate(marks)}
    ranked = sorted(shares_of, key=lambda node: (order.get(node, len(order)), -slower.get(node, 1.0), node))
    if len(ranked) > heat.MAX_LINES:
        worth = [
            node for node in ranked if node in marks or any(share is None or share < SLOW for share in shares_of[node])
        ]
        shown = worth[: heat.MAX_LINES - 1]
    else:
        shown = ranked
    for node in shown:
        yield _line(campaign, node, shares_of[node], marks.get(node), with_page)
    others = set(ranked).difference(shown)
    if others:
        rest = [share for node in others for share in shares_of[node]]
        yield heat.StripLine(number_of(len(others), "other"), tuple(share for share in rest if share), rest.count(None))


def _line(
    campaign: Campaign, node: str, values: Sequence[float | None], finding: PairFault | None, known: Container[str]
) -> heat.StripLine:
    estimate = campaign.analysis.estimates.get(node)
    slower = f": {estimate_text(estimate)}" if estimate else ""
    return heat.StripLine(
        name=node,
        shares=tuple(share for share in values if share),
        failures=list(values).count(None),
        note=finding.kind.value if finding else "",
        title=f"{_short(node)}{slower}; {_shares_text(values)}",
        href=f"#node={quote(printable(node, MAX_NAME), safe='')}" if node in known else "",
        is_marked=finding is not None,
    )


def _shares(campaign: Campaign, measurements: Sequence[Measurement]) -> list[float | None]:
    """The measurements as shares of normal for their pairs; None for a failed one."""
    return [
        _share(measurement.reading.busbw_gb_per_s, campaign.normal_gb_per_s(measurement.pair))
        for measurement in measurements
    ]


def _share(busbw: float | None, normal: float | None) -> float | None:
    return busbw / normal if busbw and normal else None


def _middle(shares: Sequence[float | None]) -> float | None:
    """Their median; None if at least half of them failed."""
    well = [share for share in shares if share is not None]
    return median(well) if 2 * len(well) > len(shares) else None


def _shares_text(shares: Sequence[float | None]) -> str:
    """`71 %, 70 %, failed`; for many, their number, median and minimum."""
    if len(shares) <= MAX_LISTED:
        return ", ".join("failed" if share is None else f"{share * 100:.0f} %" for share in shares)
    well = [share for share in shares if share is not None]
    failed = f", {len(shares) - len(well)} failed" if len(well) < len(shares) else ""
    middle = f", median {median(well) * 100:.0f} %, lowest {min(well) * 100:.0f} %" if well else ""
    return f"{len(shares)} measurements{middle}{failed}"


def _short(name: str) -> str:
    return shortened(name, MAX_SHOWN)
