"""The README's table of checks is that of the checks."""

from __future__ import annotations

from pathlib import Path

from clusterproof.plugins.suite import table

BEGIN, END = "<!-- python -m clusterproof.plugins.suite -->\n", "<!-- end -->"


def test_the_table_of_checks_is_the_generated_one() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    told = text.partition(BEGIN)[2].partition(END)[0]
    assert told == table(), "run `python -m clusterproof.plugins.suite` and put its output into README.md"
