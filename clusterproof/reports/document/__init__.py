"""`report.html`: one file that an operator opens first, and that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path

from clusterproof.plugins.catalog import PACKAGED, Catalog
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.reports.asked import NOT_PROVEN
from clusterproof.reports.commands import commands
from clusterproof.reports.cut import cut_of
from clusterproof.reports.document.data import data
from clusterproof.reports.document.section import Section
from clusterproof.reports.document.sections import sections
from clusterproof.reports.run import Run
from clusterproof.reports.standing import headline, standing
from clusterproof.reports.to_do import Task, fit_nodes, shared_finding, to_do
from clusterproof.reports.wording import counted

_STYLES = ("page.css", "tiles.css", "grid.css", "pairs.css", "map.css", "trend.css", "training.css")
_SCRIPTS = ("words.js", "grid.js", "node.js", "map.js", "gpus.js", "page.js")
_CLASSES = {"not fit": "fail", "not proven": "incomplete", "fit": "pass"}


def document(run: Run) -> str:
    """The page of a run. What nodes and people named is text in it; no script runs but the page's own."""
    style, script = _joined(_STYLES), _joined(_SCRIPTS)
    raw = sections(run)
    body = "\n".join([_header(run, raw), '<main id="main" tabindex="-1">', *(section.html for section in raw)])
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(run.cluster.name)}: {standing(run.results)}</title>",
            f"<style>{style}</style></head><body>",
            '<a class="skip" href="#findings">to the findings</a>',
            _STEERING.sub(_made_visible, body),
            "</main>",
            '<main id="node" tabindex="-1" aria-label="one node" hidden></main>',
            f'<script type="application/json" id="data">{data(run)}</script>',
            f"<script>{script}</script></body></html>\n",
        )
    )


# What steers instead of being read: of a name too, which no probe has made safe. The script has the same.
_STEERING = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def _made_visible(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _header(run: Run, raw: list[Section]) -> str:
    stands = standing(run.results)
    where = "".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in raw)
    types = sorted({result.instance_type for result in run.results if result.instance_type})
    facts = (
        f"{run.began:%Y-%m-%d %H:%M:%S %Z}",
        f"{run.seconds:.1f} s",
        f"by {run.cluster.connection}",
        counted(len({result.check for result in run.results}), "check"),
        ", ".join(types),
        f"exit code {run.exit_code}",
        f"{counted(run.broken, 'test')} broke: nobody's verdict" if run.broken else "",
    )
    return (
        f'<header><h1>{escape(run.cluster.name)}</h1><p class="verdict {_CLASSES.get(stands, "none")}">'
        f'<strong>{stands}</strong> <span class="headline">{escape(headline(run.results))}</span></p>'
        f"{tiles(run.results, run.facts.catalog, run.acted_on)}"
        f'<p class="facts">{escape(" · ".join(filter(None, facts)))}</p>'
        f'<nav aria-label="sections">{where}</nav></header>'
    )


def _policy(style: str, script: str) -> str:
    """Only the page's own style and script, by their hashes; no picture, no font, no request, no form, no frame."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _joined(names: tuple[str, ...]) -> str:
    folder = Path(__file__).parent
    return "\n".join((folder / name).read_text(encoding="utf-8").strip() for name in names)


def tiles(results: Iterable[Result], catalog: Catalog = PACKAGED, cluster: Cluster | None = None) -> str:
    """A tile for each thing to do, the gravest first, and one for the nodes that are fit; as HTML.

    `cluster` is what the commands to copy are for; without it there are none.
    """
    results = list(results)
    tasks, fit = to_do(results, catalog), fit_nodes(results)
    if not tasks and not fit:
        return ""
    has_nodes = any(result.is_of_node for result in results)
    of_fit = _tile("pass", str(fit), "fit", "in every check that ran", "") if has_nodes else ""
    shared = shared_finding(results)
    said = f'<p class="shared">{escape(shared)}</p>' if shared else ""
    of_tasks = "".join(map(_of_task, tasks))
    cut = cut_of(results)
    of_cut = f'<p class="cut"><strong>{escape(cut.words)}</strong></p>' if cut else ""
    return f'{of_cut}<ul class="tiles" aria-label="what to do">{of_tasks}{of_fit}</ul>{said}{_commands(tasks, cluster)}'


def _commands(tasks: Iterable[Task], cluster: Cluster | None) -> str:
    found = [(task.action, line) for task in tasks for line in commands(task, cluster)]
    rows = "".join(f"<dt>{escape(action)}</dt><dd><pre>{escape(line)}</pre></dd>" for action, line in found)
    words = "commands to copy; they are printed, never run"
    return f'<details class="commands"><summary>{words}</summary><dl>{rows}</dl></details>' if found else ""


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
