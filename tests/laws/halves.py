"""The law of halves: a fault stays named where half of the entries beside it are missing, or lack a value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding
from tests.laws.cases import Case
from tests.laws.counted import counted
from tests.laws.findings import in_line, is_reported, words_of
from tests.laws.losses import Loss, Tried, instead
from tests.laws.pairs import reckoned
from tests.laws.pieces import EACH, WHOLLY, Difference, Path, in_words, leaves
from tests.laws.removal import reason

HALVES = ("the first half", "the second half")
Lose = Callable[[list[Any], list[int], list[Any]], list[Any]]  # entries, which of them lose something, what is gone


@dataclass(frozen=True)
class Halved:
    """One case in which half of a list's entries are gone, or lack a key, and what is gone."""

    what: str
    fact: str
    evidence: NodeEvidence
    gone: tuple[Any, ...]


def tried(case: Case, checks: Collection[str]) -> Tried:
    """Halve each list that a check reads which names the fault, of these checks; what the fault changed stays."""
    count = 0
    losses: list[Loss] = []
    for check, findings in case.named.items():
        for halved in halves(case, check) if check in checks else ():
            count += 1
            after = case.says(check, halved.evidence)
            excused = words_of(leaves(halved.gone)) | case.context
            lost = [
                finding
                for finding in findings
                if not is_reported(finding, after, excused | reckoned(finding, case), or_worse=True)
            ]
            losses += [
                Loss(
                    check,
                    case.name,
                    halved.what,
                    in_line(finding),
                    instead(after),
                    _reason(check, halved.fact, finding),
                )
                for finding in lost
            ]
    return Tried(count, tuple(losses))


def _reason(check: str, fact: str, finding: Finding) -> str:
    return reason(check, fact, finding) or counted(check, fact)


def halves(case: Case, check: str) -> Iterator[Halved]:
    """The evidence without half of the entries of each list of objects, and with half of them lacking each key."""
    reads = case.reads[check]
    lists = {path[:at] for path in reads for at, key in enumerate(path) if key == EACH}
    for path in sorted(lists):
        yield from _each_half(case, path, path, _without_entries)
    for path in sorted(path for path in reads if EACH in path[:-1]):
        last = len(path) - 1 - path[::-1].index(EACH)
        if path[last + 1 :]:
            yield from _each_half(case, path[:last], path, _without_key(path[last + 1 :]))


def _each_half(case: Case, path: Path, fact: Path, lose: Lose) -> Iterator[Halved]:
    for half, name in enumerate(HALVES):
        gone: list[Any] = []
        collectors = _halved(dict(case.evidence.collectors), path, case.changed, half, lose, gone)
        if gone:
            evidence = replace(case.evidence, collectors=collectors)
            yield Halved(f"{name} of {in_words(fact)}", in_words(fact), evidence, tuple(gone))


def _halved(value: Any, path: Path, changed: Difference, half: int, lose: Lose, gone: list[Any]) -> Any:
    if changed is WHOLLY:
        return value
    within: Mapping[Any, Any] = changed if isinstance(changed, dict) else {}
    if isinstance(value, Collected):
        return replace(value, value=_halved(value.value, path, changed, half, lose, gone))
    if not path:
        return _half_of(value, within, half, lose, gone)
    key, *rest = path
    if key == EACH and isinstance(value, list):
        return [_halved(entry, tuple(rest), within.get(at), half, lose, gone) for at, entry in enumerate(value)]
    if not isinstance(value, dict) or key not in value:
        return value
    return {**value, key: _halved(value[key], tuple(rest), within.get(key), half, lose, gone)}


def _half_of(value: Any, within: Mapping[Any, Any], half: int, lose: Lose, gone: list[Any]) -> Any:
    """A list of objects of which one half of those that the fault did not change lose something."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        return value  # such as the states of links, whose position is their name
    others = [at for at in range(len(value)) if at not in within]
    middle = (len(others) + 1) // 2
    return lose(value, others[middle:] if half else others[:middle], gone)


def _without_entries(entries: list[Any], chosen: list[int], gone: list[Any]) -> list[Any]:
    gone += [entries[at] for at in chosen]
    return [entry for at, entry in enumerate(entries) if at not in chosen]


def _without_key(path: Path) -> Lose:
    def lose(entries: list[Any], chosen: list[int], gone: list[Any]) -> list[Any]:
        return [_less(entry, path, gone) if at in chosen else entry for at, entry in enumerate(entries)]

    return lose


def _less(value: Any, path: Path, gone: list[Any]) -> Any:
    """The value without what is at a path of keys."""
    key, *rest = path
    if not isinstance(value, dict) or key not in value:
        return value
    if rest:
        return {**value, key: _less(value[key], tuple(rest), gone)}
    gone.append(value[key])
    return {name: entry for name, entry in value.items() if name != key}
