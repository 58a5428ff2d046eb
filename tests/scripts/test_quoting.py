"""Every command line that the documents show can be pasted into zsh too, where brackets look for files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders.wheel import ROOT

PLACES = ("README.md", "docs/*.md", "integrations/**/*.md", "scripts/*")
DOCUMENTS = sorted(path for place in PLACES for path in ROOT.glob(place) if path.is_file())
COMMAND = re.compile(
    r"(?:^|`|\s)((?:\.venv/bin/)?(?:pytest|clusterproof) --?\S.*|(?:\.venv/bin/)?clusterproof [a-z]+ .*)$"
)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\$[?*@]")  # and what a shell script says of itself


def unquoted(line: str) -> list[str]:
    """The words of a command line that zsh would take for patterns of file names."""
    found = COMMAND.search(line.partition("  #")[0])
    words = QUOTED.sub("", found[1].partition("`")[0]) if found else ""
    return [word for word in words.split() if re.search(r"[*?]|\[[^\]]+\]", word) and not word.startswith("[")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_command_line_of_a_document_has_brackets_without_quotes(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if unquoted(line)] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("    pytest --cluster ssh:gpu[001-128] -m perf", ["ssh:gpu[001-128]"]),
        ("    pytest --cluster 'ssh:gpu[001-128]'", []),
        ("- `clusterproof check ssh:gpu[1-2]` does", ["ssh:gpu[1-2]"]),
        ("  clusterproof checks [-m MARKS]", []),
    ],
)
def test_what_is_looked_for_is_found(line: str, words: list[str]) -> None:
    assert unquoted(line) == words
