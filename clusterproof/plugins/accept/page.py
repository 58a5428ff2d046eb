"""`acceptance.html`: the report as one self-contained page that a browser can print as PDF."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from html import escape

from clusterproof.plugins.accept.population import declared
from clusterproof.plugins.accept.report import NOT_ASKED, Report, headline, removed_node_line
from clusterproof.plugins.accept.verdicts import ClusterVerdict, NodeVerdict
from clusterproof.plugins.core.message import printable
from clusterproof.reports.document import Section, table
from clusterproof.reports.document.heat import StripLine, strip
from clusterproof.reports.formats.html import content_policy, joined_files

STYLES = ("page.css", "pairs.css", "acceptance.css")
MAX_LINES = 40  # of a chart: the slowest nodes
_CLASSES = {
    NodeVerdict.ACCEPTED: "pass",
    NodeVerdict.REJECTED: "fail",
    NodeVerdict.TO_FIX: "fail",
    NodeVerdict.OPEN: "incomplete",
}
_OUTCOMES = {
    ClusterVerdict.ACCEPTED: "pass",
    ClusterVerdict.NOT_ACCEPTED: "fail",
    ClusterVerdict.UNDECIDED: "incomplete",
}


def page(report: Report) -> str:
    """The page. Names of nodes and people are escaped; it has no script."""
    style = joined_files(STYLES)
    sections = [section for section in _sections(report) if section.body]
    where = "".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in sections)
    verdict, counts = ClusterVerdict(report["outcome"]), escape(headline(report))
    stopped = f"<p>Not finished: {_bounded(report['stopped'])}.</p>" if report["stopped"] else ""
    title = f"Acceptance of {_bounded(report['cluster'])}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{content_policy(style, "", "")}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="referrer" content="no-referrer"><title>{title}</title><style>{style}</style></head><body>'
        f'<header><h1>{title}</h1><p class="facts">{_time(report["began"])} to {_time(report["ended"])} · clusterproof '
        f"{escape(report['clusterproof'])} · plan {escape(report['plan']['digest'][:16])}</p>"
        f'<p class="verdict {_OUTCOMES[verdict]}"><strong>{verdict.value}</strong> '
        f'<span class="headline">{counts}</span></p>'
        f'{stopped}<nav aria-label="sections">{where}</nav></header><main>'
        + "".join(section.html for section in sections)
        + "</main></body></html>\n"
    )


def _sections(report: Report) -> Iterator[Section]:
    yield Section("bought", "What was bought, and what is there", _bought(report))
    yield Section("nodes", "Nodes that are not accepted", "".join(_nodes(report)))
    yield Section("left", "Nodes that left", _list([removed_node_line(node) for node in report["left"]]))
    yield Section("others", "Pairs, links and the cluster", _others(report))
    yield Section("accepted", "Accepted nodes", _accepted(report))
    yield Section("stages", "Stages", _stages(report))
    yield Section("populations", "What was measured", "".join(_populations(report)))
    yield Section("errors", "How sure this is", _errors(report))
    yield Section("not-covered", "What this does not prove", _list(report["not_covered"]))
    yield Section(
        "evidence", "Evidence: every run, its command, and the digest of what it left", "".join(_runs(report))
    )
    yield Section("signatures", "Signatures", _signatures())


def _bought(report: Report) -> str:
    word_of = {True: "yes", False: "no", None: "not known"}
    rows = [
        (
            line["what"],
            line["bought"],
            line["there"],
            "not asked" if line["bought"] == NOT_ASKED else word_of[line["is_met"]],
            _bounded(line["not_on"], 2000),
        )
        for line in report["bought"]
    ]
    return table(("what", "bought", "there", "met", "not on"), rows)


def _nodes(report: Report) -> Iterator[str]:
    for verdict in (NodeVerdict.REJECTED, NodeVerdict.TO_FIX, NodeVerdict.OPEN):
        for node in report["nodes"]:
            if node["said"] != verdict.value:
                continue
            yield (
                f'<details class="{_CLASSES[verdict]}" open><summary><b>{verdict.value}</b> {_bounded(node["node"])}: '
                f"{_bounded(_hardware(node['hardware']), 400)}</summary>{_list(node['reasons'])}</details>"
            )


def _hardware(identity: Report) -> str:
    gpus = ", ".join(f"GPU {gpu['index']} {gpu['serial'] or gpu['uuid']}" for gpu in identity.get("gpus", ()))
    machine = ", ".join(filter(None, (identity.get("serial"), identity.get("instance_id"))))
    return "; ".join(filter(None, (machine, gpus))) or "it said no serial"


def _others(report: Report) -> str:
    rows = [
        (other["of"], other["verdict"], other["check"], other["message"], other["folder"])
        for other in report["of_others"]
    ]
    left = sum(report["summary_of_others"].values()) - len(report["of_others"])  # those that are listed are the gravest
    more = f"<p>and {left} more: results.jsonl in the folders of the runs has them</p>" if left else ""
    return f"{table(('of', 'verdict', 'check', 'message', 'evidence'), rows)}{more}" if rows else ""


def _accepted(report: Report) -> str:
    chosen = [node for node in report["nodes"] if node["said"] == NodeVerdict.ACCEPTED.value]
    rows = [
        (node["node"], node["kind"], _hardware(node["hardware"]), "; ".join(node["concerns"]), _before(node))
        for node in chosen
    ]
    return table(("node", "kind", "serials", "concerns", "replaced"), rows) if rows else ""


def _before(node: Report) -> str:
    return "; ".join(_hardware(before) for before in node["replaced"])


def _stages(report: Report) -> str:
    head = ("stage", "proves", "runs", "hours", "node hours", "nodes", "taken out")
    rows = [
        (
            stage["title"],
            stage["proves"],
            str(stage["runs"]),
            f"{stage['hours']:.2f}",
            f"{stage['node_hours']:.2f}",
            str(stage["nodes"]),
            stage["taken_out"],
        )
        for stage in report["stages"]
    ]
    return table(head, rows)


def _populations(report: Report) -> Iterator[str]:
    for row in report["populations"]:
        title = f"<h3>{_bounded(row['what'])} ({_bounded(row['kind'])})</h3>"
        if row["usual"] is None:
            yield f"{title}<p>too few nodes to say what is usual</p>"
            continue
        shares = list(row["shares"].items())
        lines = [StripLine(node, (share,), 0, f"{share:.1%}") for node, share in shares[:MAX_LINES]]
        more = f"; the {MAX_LINES} slowest of {len(shares)} nodes" if len(shares) > MAX_LINES else ""
        floor = f", due {row['floor']:g}" if row["floor"] is not None else ""
        yield (
            f"{title}{_in_common(row)}"
            f"<p>usual {row['usual']:.4g} {escape(row['unit'])}{floor}; {row['noise']:.1%} from run to run, "
            f"{row['between_nodes']:.1%} between nodes{more}. Each tick is the slowest device of a node.</p>"
            f"{strip(lines, 1 - report['errors']['slower'])}"
        )


def _in_common(row: Report) -> str:
    """What racks, batches and all nodes have in common; the ticks below are relative to that."""
    lines = [
        f"{', '.join(of['levels'])}: {of['nodes']} nodes at {of['share']:.1%} of what is usual elsewhere"
        for of in row["in_common"]
    ]
    if row["drift"] is not None:
        lines.append(f"all nodes: {row['drift']:.1%} in the last runs of what they had in the first")
    return _list(lines)


def _errors(report: Report) -> str:
    if not {"exact", "speed"} & {*report["plan"]["stages"]}:
        return "<p>The plan measures no node alone: no errors are declared.</p>"
    of, accepted = report["errors"], report["summary"].get(NodeVerdict.ACCEPTED.value, 0)
    hours = sum(stage["node_hours"] for stage in report["stages"])
    slower, shows_in = declared(of["slower"]), declared(of["shows_in"])
    bad = f"{slower} slower than its population or more, in all runs or in {shows_in} of them"
    often, most, half = (
        of[key] for key in ("runs_of_each_node", "runs_at_most", "missed_if_it_shows_in_half_of_the_runs")
    )
    lines = [
        f"Declared: at most {declared(of['good_rejected'])} of good nodes are rejected.",
        f"Declared: at most {declared(of['bad_accepted'])} of bad nodes are accepted.",
        f"Bad is a node of which something is {bad}; or that computes wrong in as many.",
        f"A node is accepted after {often} runs of these stages or more; open ones are measured up to {most} times.",
        f"A fault that shows in half of the runs is missed by {half:.1%} of such acceptances.",
    ]
    is_selection = bool(report["left"]) or any(node["replaced"] for node in report["nodes"])  # which can be any number
    if accepted and hours and report["outcome"] == ClusterVerdict.ACCEPTED.value and not is_selection:
        bound = min(1.0, 3 / accepted)
        lines.append(
            f"No accepted node failed: of nodes like these at most {bound:.2%} fail such runs (95 %), "
            f"and not more often than once in {hours / 3:.3g} node hours."
        )
    return _list(lines)


def _runs(report: Report) -> Iterator[str]:
    rows = [
        (
            run["folder"],
            _time(run["began"]),
            f"{run['seconds']:.0f} s",
            str(run["exit_code"]),
            str(len(run["nodes"])),
            shlex.join(run["command"]),
            run["evidence"],
        )
        for run in report["runs"]
    ]
    if rows:
        yield "<p>In a folder <code>sha256sum -c SHA256SUMS</code> compares its files; the digest is of that list.</p>"
        yield table(("folder", "began", "took", "exit", "nodes", "command", "SHA-256"), rows)


def _signatures() -> str:
    return table(("", "name", "date", "signature"), [("buyer", "", "", ""), ("seller", "", "", "")])


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_bounded(line, 2000)}</li>' for line in lines)}</ul>" if lines else ""


def _bounded(text: str, most: int = 500) -> str:
    return escape(printable(text, most))


def _time(at: float | None) -> str:
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M:%S} UTC" if at else "not begun"
