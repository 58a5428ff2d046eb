"""A section of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its name in links, its title, and its HTML, in which everything of a node is escaped."""

    name: str
    title: str
    body: str

    @property
    def html(self) -> str:
        """The section with its heading."""
        heading = f'<h2 id="{self.name}-title">{escape(self.title)}</h2>'
        return f'<section id="{self.name}" aria-labelledby="{self.name}-title">{heading}{self.body}</section>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table of texts, which scrolls by itself where it is too wide."""
    titles = "".join(f'<th scope="col">{escape(word)}</th>' for word in head)
    data = "".join(_row(row) for row in rows)
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{above}<thead><tr>{titles}</tr></thead><tbody>{data}</tbody></table></div>'


def _row(row: Sequence[str]) -> str:
    first, *others = (escape(word) for word in row)
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{word}</td>" for word in others)}</tr>'
