"""What is said where the words of `-m` or `-k` choose nothing: which known word is near."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.strict import nearest
from clusterproof.plugins.evaluation.all_checks import all_checks

MAX_NODES = 1_000  # whose names are compared with a word
_OPERATORS = frozenset({"and", "or", "not", "True", "False", "None"})
_WORD = re.compile(r"[^\W\d][\w.\-]*")
_IN_BRACKETS = re.compile(r"\(\s*\w+\s*=[^()]*\)")  # what is said of a mark: `mark(section="G")`


def misspelt_mark(markexpr: str, lines: Iterable[str], borne: Collection[str] = ()) -> str:
    """One clear line where a mark is unknown and another is near; else empty.

    `lines` are those by which marks are registered; `borne` are marks that tests have, registered or not.
    """
    names = {re.split(r"[:(]", line, maxsplit=1)[0].strip() for line in lines} | set(borne)
    for word in _words(_IN_BRACKETS.sub("", markexpr)):
        near = "" if word in names else nearest(word, names)
        if near:
            return f"-m {markexpr!r}: no mark is called {word!r}{near}; pytest --markers lists them"
    return ""


def nothing_chosen(keyword: str, cluster: Cluster) -> str:
    """One clear line where `-k` has chosen nothing."""
    nodes = [target.name for target in cluster.targets[:MAX_NODES]]
    known = [*(name.partition(".")[2] for name in all_checks()), *nodes]
    unknown = [word for word in _words(keyword) if not any(word.lower() in name.lower() for name in known)]
    near = next(filter(None, (nearest(word.removeprefix("test_"), known) for word in unknown)), "")
    return f"-k {keyword!r} chooses nothing{near}; clusterproof checks lists what there is"


def _words(expression: str) -> Iterator[str]:
    return (word for word in _WORD.findall(expression) if word not in _OPERATORS)


def refuse_misspelt_mark(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Raise pytest.UsageError where `-m` has a mark that no test has, and one is near."""
    lines, markexpr = config.getini("markers"), config.option.markexpr
    if misspelt_mark(markexpr, lines):
        wrong = misspelt_mark(markexpr, lines, {mark.name for item in items for mark in item.iter_markers()})
        if wrong:
            raise pytest.UsageError(wrong)
