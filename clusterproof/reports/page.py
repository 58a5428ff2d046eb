"""The readable part of the HTML page: findings in words, and a matrix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from urllib.parse import quote

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.nodeset import within
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports import CANNOT_REACH, COMMON_CAUSE, LOOK_AT, NOT_PROVEN, cut_of, extra_skill, headline
from clusterproof.reports.findings import FindingGroup, Gap, findings, missing_evidence_in_short, shortened
from clusterproof.reports.matrix import legend, matrix
from clusterproof.reports.to_do import Task, commands, fit_nodes, shared_finding, to_do, to_do_line

MAX_LINES = 12  # of observations, per finding; the rows below have more
MAX_NODES = 1_500  # characters of a nodeset; the matrix is complete
MAX_TITLE_NODES = 400  # of one in a title, followed by lines that name nodes again
MAX_WORDS = 1_000  # characters of an observation


def proof(
    results: Sequence[Result], nodes: Sequence[str], left_out: Mapping[Verdict, int], catalog: Catalog, where: str = ""
) -> str:
    """The headline, every finding and gap with nodes folded, and the matrix. Node data is escaped.

    `where` is the HTML of the section on places.
    """
    if not results:
        return ""
    parts = [
        '<div class="proof">',
        f'<p class="headline">{escape(to_do_line(results, catalog))}</p>',
        f"<p>{escape(headline(results))}</p>",
        *(finding_block(finding, Verdict.FAIL) for finding in findings(results, Verdict.FAIL, catalog)),
        *(gap_block(gap) for gap in missing_evidence_in_short(results)),
        *(finding_block(finding, Verdict.CONCERN) for finding in findings(results, Verdict.CONCERN, catalog)),
        *([where] if where else []),
        f'<div class="scroll">{matrix(results, nodes)}</div>',
        legend(),
        f"<p>{escape(_rows_below(left_out))}</p>",
        "</div>",
    ]
    return "\n".join(parts)


def finding_block(finding: FindingGroup, verdict: Verdict, site: str = "") -> str:
    """One finding: expanded if it failed, or is about a training run.

    `site` is the base URL of the checks' pages, ending in a slash.
    """
    first = finding.first
    more = f'<p class="suspicion">{escape(finding.suspicion)}</p>' if finding.suspicion else ""
    by_cause = [
        (
            ("see it", f"<code>{escape(result.evidence)}</code>" if result.evidence else ""),
            ("do", escape(result.remedy)),
        )
        for result in finding.of_each_cause
    ]
    rows = (
        ("means", escape(first.meaning)),
        *(row for rows_of_cause in by_cause for row in rows_of_cause),
        ("owner", _owner(finding.owner) + _skill(first)),
        ("check", _about(first.check, site)),
    )
    facts = "".join(f"<dt>{word}</dt><dd>{text}</dd>" for word, text in rows if text)
    is_open = " open" if verdict is Verdict.FAIL or first.is_of_run else ""
    where = escape(finding.where(within(finding.nodes, MAX_TITLE_NODES)))
    seen = _listed(finding.lines_within(MAX_WORDS), MAX_LINES)
    about = f'data-checks="{escape(first.check)}" data-actions="{escape("|".join(finding.actions))}"'
    asks = "".join(
        f' <span class="action {colour_of(action)}">{escape(action)}</span>'
        for action in finding.actions
        if verdict is Verdict.FAIL
    )
    return (
        f'<details class="{verdict.value}" {about}{is_open}><summary><b>{verdict.value}</b> '
        f"{escape(first.title)}: {where}{asks}</summary>{more}{seen}<dl>{facts}</dl></details>"
    )


def _about(check: str, site: str) -> str:
    """The check's id, a link if its page is known, and the command that explains it offline."""
    name = escape(check)
    link = f'<a href="{escape(site)}checks/{quote(check)}.html">{name}</a>' if site else name
    return f"{link} <code>clusterproof explain {name}</code>"


def _owner(owner: str) -> str:
    """The owner, with links in it clickable."""
    return "".join(
        f'<a href="{escape(part)}">{escape(part)}</a>' if _LINK.fullmatch(part) else escape(part)
        for part in _LINK.split(owner)
    )


def _skill(result: Result) -> str:
    """In small print the skill for a finding owned by a team."""
    skill = extra_skill(result)
    return f" <small>{escape(skill)}</small>" if skill else ""


_LINK = re.compile(r"(https?://[^\s)]+)")


def gap_block(gap: Gap) -> str:
    """One reason for missing verdicts; expanded, with remedy, if nodes were not reached."""
    more = f'<p class="suspicion">{escape(gap.suspicion)}</p>' if gap.suspicion else ""
    reached = gap.of_reaching[0] if gap.of_reaching else None
    rows = (
        ("see it", f"<code>{escape(reached.evidence)}</code>" if reached and reached.evidence else ""),
        ("do", escape(reached.remedy) if reached else ""),
        ("checks", _checks(gap)),
    )
    facts = "".join(f"<dt>{word}</dt><dd>{text}</dd>" for word, text in rows if text)
    is_open = " open" if reached else ""
    action = CANNOT_REACH if reached else NOT_PROVEN
    seen = _listed([shortened(line, MAX_WORDS) for line in gap.messages], MAX_LINES)
    about = f'data-checks="{escape(" ".join(gap.checks))}" data-actions="{action}"'
    return (
        f'<details class="incomplete" {about}{is_open}><summary><b>incomplete</b> '
        f"{escape(within(gap.nodes, MAX_NODES))}: {escape(shortened(gap.cause, MAX_WORDS))} "
        f"({escape(gap.what)})</summary>{more}{seen}<dl>{facts}</dl></details>"
    )


def _checks(gap: Gap) -> str:
    """The names of the checks, collapsed if they are many."""
    names = escape(", ".join(gap.checks))
    return f"<details><summary>{escape(gap.what)}</summary>{names}</details>" if len(gap.checks) > MAX_LINES else names


def _listed(lines: Sequence[str], most: int) -> str:
    shown = "".join(f"<li>{escape(line)}</li>" for line in lines[:most])
    more = f"<li>… and {len(lines) - most} more</li>" if len(lines) > most else ""
    return f"<ul>{shown}{more}</ul>" if lines else ""


def _rows_below(left_out: Mapping[Verdict, int]) -> str:
    short = [f"{count:,} {verdict.value}" for verdict, count in left_out.items() if verdict is not Verdict.PASS]
    more = f", except {' and '.join(short)} more, which only --results has" if short else ""
    return f"Below is a row for each verdict that is not a pass{more}."


FIT = "fit"
# The colour of an action: the class of its tile, and of the word next to each of its findings.
_COLOURS = {
    "replace": "replace",
    "reset or reboot": "reset",
    COMMON_CAUSE: "configure",
    "fix configuration": "configure",
    "fix code": "configure",
    "restore service": "service",
    "clean up": "service",
    "investigate": "look",
    LOOK_AT: "look",
    CANNOT_REACH: "reach",
    NOT_PROVEN: "open",
    FIT: "fit",
}


def colour_of(action: str) -> str:
    """The class of an action; one that only a site knows looks like "investigate"."""
    return f"a-{_COLOURS.get(action, 'look')}"


def tiles(results: Iterable[Result], catalog: Catalog = PACKAGED, cluster: Cluster | None = None) -> str:
    """HTML tiles: one for each action, the most severe first, and one for fit nodes.

    `cluster` provides the commands to copy; without it there are none.
    """
    results = list(results)
    tasks, fit = to_do(results, catalog), fit_nodes(results)
    if not tasks and not fit:
        return ""
    has_nodes = any(result.is_of_node for result in results)
    of_fit = _tile(FIT, f"{fit:,}", "in every check that ran", "", "#map") if has_nodes else ""
    shared = shared_finding(results)
    of_shared = f'<p class="shared">{escape(shared)}</p>' if shared else ""
    of_tasks = "".join(map(_of_task, tasks))
    cut = cut_of(results)
    of_cut = f'<p class="cut"><strong>{escape(cut.description)}</strong></p>' if cut else ""
    tiles = f'<ul class="tiles" aria-label="what to do">{of_tasks}{of_fit}</ul>'
    return f"{of_cut}{tiles}{of_shared}{_commands(tasks, cluster)}"


def _commands(tasks: Iterable[Task], cluster: Cluster | None) -> str:
    lines = [(task.action, line) for task in tasks for line in commands(task, cluster)]
    rows = "".join(f"<dt>{escape(action)}</dt><dd><pre>{escape(line)}</pre></dd>" for action, line in lines)
    summary = "commands to copy; clusterproof runs none of them"
    return f'<details class="commands"><summary>{summary}</summary><dl>{rows}</dl></details>' if lines else ""


def _of_task(task: Task) -> str:
    """The titles of the checks that ask for it: there is more room than in a line."""
    count = "" if task.of_what in ("cluster", "run") else f"{len(task.nodes):,}"
    where = "#gaps" if task.action in (NOT_PROVEN, CANNOT_REACH) else "#findings"
    return _tile(task.action, count, task.where, task.reasons_text, where)


def _tile(action: str, count: str, where: str, why: str, leads_to: str) -> str:
    """A link to the section; the page's script makes it a filter for the action."""
    number = f"<strong>{count}</strong> " if count else ""
    reasons = f"<small>{escape(why)}</small>" if why else ""
    return (
        f'<li class="{colour_of(action)}"><a href="{leads_to}" data-action="{escape(action)}">'
        f"{number}<b>{escape(action)}</b><span>{breakable(where)}</span>{reasons}</a></li>"
    )


def breakable(nodes: str) -> str:
    """A nodeset that may only wrap between names."""
    return re.sub(r",(?!…)", ",<wbr>", escape(nodes))
