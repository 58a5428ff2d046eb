"""The sections of the page, in order. To add one, append a function of the run to this list."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape

from clusterproof.plugins.core.cluster import is_of_aws, is_of_kubernetes
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import LOOK_AT, topology
from clusterproof.reports.document import Section, of_nodes, table
from clusterproof.reports.document.charts import file_systems_section
from clusterproof.reports.document.hardware import gpus_section, versions_section
from clusterproof.reports.document.node_map import map_section
from clusterproof.reports.document.trend import trend_section
from clusterproof.reports.findings import missing_evidence_in_short, shortened, with_verdict
from clusterproof.reports.history.changes import GONE, NEW, STILL, headline
from clusterproof.reports.page import finding_block, gap_block
from clusterproof.reports.run import Run, Since
from clusterproof.reports.to_do import again, to_do

MAX_ROWS = 300  # of the table of what does not apply
MAX_NODES = 600  # characters of a nodeset in it
MAX_WORDS = 300  # characters of a reason

TOOLS = """<form class="tools" role="search" hidden>
<label>Search <input type="search" id="search" placeholder="gpu[001-016], check, UUID …" autocomplete="off"></label>
<fieldset><legend>Show</legend>
<label><input type="checkbox" name="F" checked> fail</label>
<label><input type="checkbox" name="I" checked> incomplete</label>
<label><input type="checkbox" name="C" checked> concern</label></fieldset>
<label>Subsystem <select id="subsystem"><option value="">all</option></select></label>
<label>Owner <select id="owner"><option value="">all</option></select></label>
<a href="#q=" id="all" hidden>show everything</a>
<output id="shown" aria-live="polite"></output></form>"""
_GRID = """<p class="legend"></p>
<p class="tools" hidden><label><input type="checkbox" id="all-checks"> checks that pass too</label></p>
<div class="scroll" id="grid-scroll"><table id="grid-table"></table></div>
<p id="more" hidden></p>
<p id="grid-detail" aria-live="polite"></p>
<noscript><p>The map, the grid, the search and the page of each node need this file's own script, which this
browser does not run. The findings above have everything that is wrong.</p></noscript>"""


_NOT_ALL = '<p>Nothing failed, but not everything was measured: <a href="#gaps">what was not, and why</a>.</p>'


def _findings(run: Run) -> Section | None:
    blocks = [
        finding_block(finding, verdict, run.site)
        for verdict in (Verdict.FAIL, Verdict.CONCERN)
        for finding in run.findings(verdict)
    ]
    is_open = any(with_verdict(run.results, Verdict.INCOMPLETE))
    nothing = _NOT_ALL if is_open else "<p>Nothing failed, and nothing is worth a look.</p>"
    return Section("findings", "Findings", "".join(blocks) or nothing)


def _missing_evidence(run: Run) -> Section | None:
    blocks = [gap_block(gap) for gap in missing_evidence_in_short(run.results)]
    count = f"{len(blocks)} reasons" if len(blocks) > 1 else "one reason"
    is_open = " open" if not any(result.verdict is Verdict.FAIL for result in run.results) else ""
    missing = sum(1 for _ in with_verdict(run.results, Verdict.INCOMPLETE))
    verdicts = f"{missing:,} verdicts are" if missing > 1 else "one verdict is"
    card = (
        f'<details class="card"{is_open}><summary><b>incomplete</b> {verdicts} missing, for {count}; '
        "they neither pass nor drain a node</summary>"
    )
    return Section("gaps", "Not measured", f"{card}{''.join(blocks)}</details>") if blocks else None


def _since(run: Run) -> Section | None:
    since = run.since
    if since is None:
        return None
    listed, still = _changed(since, NEW, GONE), _changed(since, STILL)
    body = f"<p>{escape(shortened(headline(since.changes), MAX_WORDS))}</p>" + (f"<ul>{listed}</ul>" if listed else "")
    body += f"<details><summary>what is still there</summary><ul>{still}</ul></details>" if still else ""
    return Section("since", since.title, body)


def _changed(since: Since, *kinds: str) -> str:
    lines = since.lines(*kinds)
    listed = "".join(
        f"<li{of_nodes([match[1]]) if (match := _WHOSE(line)) else ''}>{escape(shortened(line, MAX_WORDS))}</li>"
        for line in lines[:MAX_ROWS]
    )
    return listed + (f"<li>… and {len(lines) - MAX_ROWS} more</li>" if len(lines) > MAX_ROWS else "")


_WHOSE = re.compile(r"\w+ (\S+): ").match  # `new gpu[003-005]: fail: …`


def _grid(run: Run) -> Section | None:
    return Section("grid", "Nodes × checks" if run.nodes else "Checks", _GRID) if run.results else None


def _pairs(run: Run) -> Section | None:
    if run.between is None:
        return None
    from clusterproof.reports.document.pairs import pairs_section  # few runs measure pairs

    return pairs_section(run.between, run.nodes)


def _training(run: Run) -> Section | None:
    if run.training is None:
        return None
    from clusterproof.reports.document.training import training_section  # few runs evaluate a training run

    return training_section(run.training, run.results, run.compared)


def _again(run: Run) -> Section | None:
    commands = {
        what: command
        for verdict, what in ((Verdict.FAIL, "failed checks"), (Verdict.INCOMPLETE, "incomplete checks"))
        if (command := again(run, verdict))
    }
    if not commands:
        return None
    rows = "".join(f"<dt>{what}</dt><dd><pre>{escape(command)}</pre></dd>" for what, command in commands.items())
    note = "<p>Some checks compare a node with its peers: to run those again, leave out --nodes.</p>"
    has_nodes = any("--nodes" in command for command in commands.values())
    return Section("again", "Run again", f"<dl>{rows}</dl>{note if has_nodes else ''}")


def _topology(run: Run) -> Section | None:
    has_places = is_of_aws(run.cluster) or is_of_kubernetes(run.cluster)
    layout = topology.topology(run.facts) if has_places else None
    return Section("topology", "Topology", topology.section(layout)) if layout else None


def _passed_over(run: Run) -> Section | None:
    """What was not evaluated: not applicable on a node, or deselected by the command line."""
    reasons: dict[str, list[Result]] = defaultdict(list)
    for result in run.results:
        if result.verdict is Verdict.NOT_APPLICABLE:
            reasons[result.message].append(result)
    rows = sorted(reasons.items(), key=lambda entry: -len(entry[1]))
    body = ""
    if rows:
        shown = rows[:MAX_ROWS]
        nodes = [{result.node for result in results if result.is_of_node} for _, results in shown]
        body = table(("reason", "checks", "nodes"), map(_reason, shown), nodes=nodes)
        body += f"<p>… and {number_of(len(rows) - MAX_ROWS, 'more reason')}</p>" if len(rows) > MAX_ROWS else ""
    if run.left_out:
        named = "".join(f"<li><code>{escape(check)}</code> {escape(why)}</li>" for check, why in run.left_out.items())
        body += f"<details><summary>{_not_chosen(len(run.left_out))}</summary><ul>{named}</ul>"
        body += "</details>"
    return Section("passed-over", "Not applicable, not chosen", body) if body else None


def _not_chosen(count: int) -> str:
    return f"{number_of(count, 'check')} {'was' if count == 1 else 'were'} not chosen for this run"


def _reason(row: tuple[str, Sequence[Result]]) -> tuple[str, str, str]:
    reason, results = row
    checks = sorted({result.check for result in results})
    nodes = fold({result.node for result in results})
    return shortened(reason, MAX_WORDS), shortened(", ".join(checks), MAX_NODES), within(nodes, MAX_NODES)


SECTIONS: tuple[Callable[[Run], Section | None], ...] = (
    map_section,
    _findings,
    _missing_evidence,
    _since,
    trend_section,
    _grid,
    gpus_section,
    _training,
    _pairs,
    _again,
    _topology,
    versions_section,
    file_systems_section,
    _passed_over,
)


def sections(run: Run) -> list[Section]:
    """The sections with content; if nothing failed, the to-do section stays first."""
    tasks = to_do(run.results, run.facts.catalog)
    if any(with_verdict(run.results, Verdict.FAIL)) or (tasks and tasks[0].action == LOOK_AT):
        return [section for make in SECTIONS if (section := make(run))]
    swapped: dict[object, Callable[[Run], Section | None]] = {
        _findings: _missing_evidence,
        _missing_evidence: _findings,
    }
    return [section for make in SECTIONS if (section := swapped.get(make, make)(run))]
