"""The sections, figures, styles and scripts of `report.html`. This module: what a section is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import fold

MAX_NODES = 4_000  # characters of a nodeset that a filter uses


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its name in links, its title, and its HTML, in which node data is escaped."""

    name: str
    title: str
    body: str

    @property
    def html(self) -> str:
        """The section with its heading."""
        heading = f'<h2 id="{self.name}-title">{escape(self.title)}</h2>'
        return f'<section id="{self.name}" aria-labelledby="{self.name}-title">{heading}{self.body}</section>'


def of_nodes(nodes: Iterable[str]) -> str:
    """The attribute of an element that is only about these nodes: a filter that excludes all of them hides it."""
    folded = fold(nodes)
    return f' data-nodes="{escape(printable(folded))}"' if len(folded) <= MAX_NODES else ""


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", nodes: Iterable[Iterable[str]] = ()
) -> str:
    """A table of texts, which scrolls if it is too wide. `nodes` are the subjects of each row."""
    titles = "".join(f'<th scope="col">{escape(word)}</th>' for word in head)
    body = "".join(_row(row, of_nodes(named) if named else "") for row, named in zip_longest(rows, nodes))
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{above}<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(row: Sequence[str], about: str) -> str:
    first, *others = (escape(word) for word in row)
    return f'<tr{about}><th scope="row">{first}</th>{"".join(f"<td>{word}</td>" for word in others)}</tr>'
