"""What there is to do, as tiles: one for each action, the gravest first, each a link to what it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.reports.actions import CANNOT_REACH, COMMON_CAUSE, LOOK_AT, NOT_PROVEN
from clusterproof.reports.commands import commands
from clusterproof.reports.standing import cut_of
from clusterproof.reports.to_do import Task, fit_nodes, shared_finding, to_do

FIT = "fit"
# The colour of an action: the class of its tile, and of the word beside each finding that asks for it.
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
    """The class of an action; one that only a site knows looks as what is to be investigated."""
    return f"a-{_COLOURS.get(action, 'look')}"


def tiles(results: Iterable[Result], catalog: Catalog = PACKAGED, cluster: Cluster | None = None) -> str:
    """A tile for each thing to do, the gravest first, and one for the nodes that are fit; as HTML.

    `cluster` is what the commands to copy are for; without it there are none.
    """
    results = list(results)
    tasks, fit = to_do(results, catalog), fit_nodes(results)
    if not tasks and not fit:
        return ""
    has_nodes = any(result.is_of_node for result in results)
    of_fit = _tile(FIT, str(fit), "in every check that ran", "", "#map") if has_nodes else ""
    shared = shared_finding(results)
    said = f'<p class="shared">{escape(shared)}</p>' if shared else ""
    of_tasks = "".join(map(_of_task, tasks))
    cut = cut_of(results)
    of_cut = f'<p class="cut"><strong>{escape(cut.words)}</strong></p>' if cut else ""
    return f'{of_cut}<ul class="tiles" aria-label="what to do">{of_tasks}{of_fit}</ul>{said}{_commands(tasks, cluster)}'


def _commands(tasks: Iterable[Task], cluster: Cluster | None) -> str:
    lines = [(task.action, line) for task in tasks for line in commands(task, cluster)]
    rows = "".join(f"<dt>{escape(action)}</dt><dd><pre>{escape(line)}</pre></dd>" for action, line in lines)
    words = "commands to copy; they are printed, never run"
    return f'<details class="commands"><summary>{words}</summary><dl>{rows}</dl></details>' if lines else ""


def _of_task(task: Task) -> str:
    """The checks that ask for it by their titles: there is more room than in a line."""
    count = "" if task.of_what in ("cluster", "run") else str(len(task.nodes))
    where = "#gaps" if task.action in (NOT_PROVEN, CANNOT_REACH) else "#findings"
    return _tile(task.action, count, task.where, task.why_in_words, where)


def _tile(action: str, count: str, where: str, why: str, leads_to: str) -> str:
    """A link to the section; the page's script makes it one that filters the page to the action."""
    number = f"<strong>{count}</strong> " if count else ""
    reasons = f"<small>{escape(why)}</small>" if why else ""
    return (
        f'<li class="{colour_of(action)}"><a href="{leads_to}" data-action="{escape(action)}">'
        f"{number}<b>{escape(action)}</b><span>{breakable(where)}</span>{reasons}</a></li>"
    )


def breakable(nodes: str) -> str:
    """A nodeset that is broken between names, not within one."""
    return re.sub(r",(?!…)", ",<wbr>", escape(nodes))
