"""A line for each finding as GitHub Actions reads it off a job's log: an annotation of the run and its pull request."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.nodeset import within
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.findings import findings
from clusterproof.reports.standing import cut_of

MAX_EACH = 10  # of errors and of warnings: GitHub shows no more of one step
MAX_NODES = 300  # characters of a nodeset
MAX_WORDS = 1_000
_KINDS = {Verdict.FAIL: "error", Verdict.CONCERN: "warning"}
_IN_WORDS = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_TITLE = {**_IN_WORDS, ":": "%3A", ",": "%2C"}


def are_read() -> bool:
    """Whether the CI system that runs this reads annotations."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def lines(results: Iterable[Result], catalog: Catalog) -> Iterator[str]:
    """`::error title=…::…` for what failed, `::warning …` for concerns, those on most nodes first."""
    results = list(results)
    cut = cut_of(results)
    if cut:
        yield f"::error title=clusterproof::{_escaped(cut.words, _IN_WORDS)}"
    for verdict, kind in _KINDS.items():
        for finding in findings(results, verdict, catalog)[:MAX_EACH]:
            where = finding.where(within(finding.nodes, MAX_NODES))
            words = "\n".join(
                [
                    *finding.lines_within(MAX_WORDS)[:MAX_EACH],
                    f"do: {finding.first.remedy}",
                    f"check: {finding.first.check}",
                ]
            )
            title = _escaped(f"{finding.first.title}: {where}", _IN_TITLE)
            yield f"::{kind} title={title}::{_escaped(words, _IN_WORDS)}"


def _escaped(text: str, signs: Mapping[str, str]) -> str:
    """Text that cannot end the line, nor the part of it where it stands."""
    line = "\n".join(printable(part, MAX_WORDS) for part in text.split("\n"))
    return "".join(signs.get(char, char) for char in line)
