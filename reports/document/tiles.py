"""The tiles on top of the page: what to do, for how many nodes, and how many are fit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.result import Result
from clusterproof.reports.to_do import NOT_PROVEN, Task, fit_nodes, shared_finding, to_do


def tiles(results: Iterable[Result], catalog: Catalog = PACKAGED) -> str:
    """A tile for each thing to do, the gravest first, and one for the nodes that are fit; as HTML."""
    results = list(results)
    tasks, fit = to_do(results, catalog), fit_nodes(results)
    if not tasks and not fit:
        return ""
    has_nodes = any(result.is_of_node for result in results)
    of_fit = _tile("pass", str(fit), "fit", "as far as checked", "") if has_nodes else ""
    shared = shared_finding(results)
    said = f'<p class="shared">{escape(shared)}</p>' if shared else ""
    of_tasks = "".join(map(_of_task, tasks))
    return f'<ul class="tiles" aria-label="what to do">{of_tasks}{of_fit}</ul>{said}'


def _of_task(task: Task) -> str:
    """The checks that ask for it by their titles: there is more room than in a line."""
    kind = "incomplete" if task.action == NOT_PROVEN else "fail"
    count = "" if task.of_what in ("cluster", "run") else str(len(task.nodes))
    return _tile(kind, count, task.action, task.where, task.why_in_words)


def _tile(kind: str, count: str, action: str, where: str, why: str) -> str:
    number = f"<strong>{count}</strong> " if count else ""
    reasons = f"<small>{escape(why)}</small>" if why else ""
    return f'<li class="{kind}">{number}<b>{escape(action)}</b><span>{_breakable(where)}</span>{reasons}</li>'


def _breakable(nodes: str) -> str:
    """A nodeset that is broken between names, not within one."""
    return re.sub(r",(?!…)", ",<wbr>", escape(nodes))
