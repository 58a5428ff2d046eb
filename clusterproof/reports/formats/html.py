"""`report.html`: one self-contained file that an operator opens first."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from functools import cache
from html import escape
from pathlib import Path

from clusterproof.plugins.core import __version__
from clusterproof.plugins.core.message import number_of
from clusterproof.reports import cluster_state, headline
from clusterproof.reports.document import Section
from clusterproof.reports.document.data import data
from clusterproof.reports.document.demo import WORDS, is_demo, with_pictures
from clusterproof.reports.document.sections import TOOLS, sections
from clusterproof.reports.formats import Format
from clusterproof.reports.page import breakable, tiles
from clusterproof.reports.run import Run
from clusterproof.reports.run_folder import PAGE
from clusterproof.reports.to_do import to_do

_STYLES = ("page.css", "tiles.css", "grid.css", "pairs.css", "map.css", "hardware.css", "trend.css", "training.css")
_SCRIPTS = ("words.js", "grid.js", "hardware.js", "node.js", "small_cells.js", "map.js", "gpus.js", "page.js")
_CLASSES = {"not fit": "fail", "not proven": "incomplete", "fit": "pass"}


def document(run: Run, live: str = "") -> str:
    """The page of a run. Names from nodes and people are escaped; only the page's own script runs.

    `live`: the version of a page served by a watch, which polls for newer ones; empty for a file.
    """
    run = with_pictures(run)
    style, script = joined_files(_STYLES), joined_files((*_SCRIPTS, *(["live.js"] if live else [])))
    raw = sections(run)
    tools = TOOLS if any(section.name == "findings" for section in raw) else ""
    main = ['<main id="main" tabindex="-1">', tools, *(section.html for section in raw)]
    body = "\n".join([_header(run, raw, live), *main])
    return "\n".join(
        (
            "<!DOCTYPE html>",
            f'<html lang="en"{_version(live)}><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{content_policy(style, script, live)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(run.cluster.name)}: {cluster_state(run.results)}</title>",
            f"<style>{style}</style></head><body>",
            '<a class="skip" href="#findings">to the findings</a>',
            _STEERING.sub(_made_visible, body),
            "</main>",
            '<main id="node" tabindex="-1" aria-label="one node" hidden></main>',
            _STEERING.sub(_made_visible, _footer(run)),
            f'<script type="application/json" id="data">{data(run)}</script>',
            f"<script>{script}</script></body></html>\n",
        )
    )


# Control characters, which names may contain too, because the probe does not escape them. The script has the same set.
_STEERING = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def _made_visible(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _version(live: str) -> str:
    return f' data-live="{escape(live)}"' if live else ""


def _header(run: Run, raw: list[Section], live: str) -> str:
    stands = cluster_state(run.results)
    where = "".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in raw)
    types = sorted({result.instance_type for result in run.results if result.instance_type})
    facts = (
        f"{run.began:%Y-%m-%d %H:%M:%S %Z}",
        f"by {run.cluster.connection}",
        number_of(len({result.check for result in run.results}), "check"),
        ", ".join(types),
        "live" if live else f"exit code {run.exit_code}",
        WORDS if is_demo(run) else "",
    )
    return (
        f'<header><h1>{escape(run.cluster.name)}</h1><p class="facts">{escape(" · ".join(filter(None, facts)))}</p>'
        f'<p class="verdict {_CLASSES.get(stands, "none")}">'
        f'<strong>{stands}</strong> <span class="headline">{escape(headline(run.results))}</span>{_first(run)}</p>'
        f"{tiles(run.results, run.facts.catalog, run.acted_on)}"
        f'<nav aria-label="sections">{where}</nav></header>'
    )


def _first(run: Run) -> str:
    """What to do first, in one sentence."""
    tasks = to_do(run.results, run.facts.catalog)
    return f' <span class="first">First {breakable(tasks[0].description)}.</span>' if tasks else ""


def _footer(run: Run) -> str:
    """What made the page: the product, the command, and the duration."""
    command = f" · <code>{escape(shlex.join(run.command))}</code>" if run.command else ""
    return f"<footer><p>clusterproof {escape(__version__)}{command} · took {run.seconds:.1f} s</p></footer>"


def content_policy(style: str, script: str, live: str) -> str:
    """Allows only the page's own style and script, by hash; no images, fonts, forms or frames.

    No requests either, except from a live page to its own origin.
    """
    requests = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; {requests}script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def joined_files(names: tuple[str, ...]) -> str:
    """These files of the page, concatenated."""
    folder = Path(__file__).parents[1] / "document"
    return "\n".join((folder / name).read_text(encoding="utf-8").strip() for name in names)


FORMAT = Format(PAGE, document)
