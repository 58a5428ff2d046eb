"""What differs between two runs in one line: findings and nodes, not checks times nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.history.changes import Change, Changes
from clusterproof.reports.history.model import FOUND
from clusterproof.reports.wording import counted

MAX_NODES = 80  # characters of a nodeset


def headline(changes: Changes) -> str:
    """`3 findings new on gpu[003-005]; 1 gone from gpu002; 18 still there; newly incomplete: gpu006`."""
    kinds = ((changes.new, "new on"), (changes.gone, "gone from"), (changes.still, "still there"))
    counts = list(_counts((found, words) for kind, words in kinds if (found := [*filter(_finding, kind)])))
    incomplete = _with_gaps(changes.still)
    of_gaps: tuple[tuple[str, tuple[Change, ...], set[str]], ...] = (
        ("newly", changes.new, incomplete),
        ("no longer", changes.gone, incomplete),
        ("still", changes.still, set()),
    )
    gaps = [f"{word} incomplete: {_nodes(names)}" for word, kind, less in of_gaps if (names := _with_gaps(kind) - less)]
    unchanged = [] if changes else ["nothing has changed"]
    return "; ".join([*unchanged, *counts, *gaps])


def _counts(data: Iterable[tuple[list[Change], str]]) -> Iterator[str]:
    for place, (found, words) in enumerate(data):
        number = len({_finding(change) for change in found})
        count = str(number) if place else counted(number, "finding")
        yield f"{count} {words}" + ("" if words.endswith("there") else f" {_nodes({change.node for change in found})}")


def _finding(change: Change) -> tuple[str, Verdict] | None:
    """The check, and the verdict that was found now or before; None where evidence is missing, or has come again."""
    for verdict in (change.now, change.before):
        if verdict in FOUND:
            return change.check, verdict
    return None if Verdict.INCOMPLETE in (change.now, change.before) else (change.check, change.now)


def _with_gaps(found: Iterable[Change]) -> set[str]:
    return {change.node for change in found if _finding(change) is None}


def _nodes(names: Collection[str]) -> str:
    folded = fold(names)
    return folded if len(folded) <= MAX_NODES else counted(len(names), "node")
