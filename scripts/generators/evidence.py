"""Generates the parts of docs/evidence.md that collectors describe themselves: `scripts/generate`.

Such a collector's docstring says what it is, a colon, and where it is read; then a paragraph with the JSON it returns.
Collectors that the page describes by hand are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from clusterproof.plugins.agent.program import collector_names, files

PATH = Path(__file__).parents[2] / "docs" / "evidence.md"
BEGIN = "<!-- what follows is written by scripts/generate, of collectors that describe themselves -->\n"
END = "\n## Collectors that load the hardware\n"
HEADING = re.compile(r"^### `(\w+)` — ", re.MULTILINE)


def document(page: str, descriptions: Mapping[str, str]) -> str:
    """The page, with a section for each collector it does not describe by hand. Raises ValueError."""
    before, begin, written = page.partition(BEGIN)
    _, end, after = written.partition(END)
    if not begin or not end:
        raise ValueError(f"{PATH.name} has no {(BEGIN if not begin else END).strip()!r}; expected both lines")
    by_hand = set(HEADING.findall(before + after))
    sections = "".join(_section(name, text) for name, text in descriptions.items() if name not in by_hand)
    return f"{before}{begin}{sections}{end}{after}"


def _section(name: str, text: str) -> str:
    first, _, rest = text.partition("\n\n")
    where = first.partition(": ")[2].rstrip(".")
    if not where:
        raise ValueError(f"the docstring of {name} begins {first!r:.80}; expected WHAT IT IS: WHERE IT IS READ.")
    return f"\n### `{name}` — {where}\n{rest}\n"


def descriptions() -> Iterator[tuple[str, str]]:
    """Each collector's description from its docstring."""
    for name in collector_names():
        yield name, ast.get_docstring(ast.parse(Path(files()[name]).read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    PATH.write_text(document(PATH.read_text(encoding="utf-8"), dict(descriptions())), encoding="utf-8")
