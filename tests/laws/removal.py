"""The law of removal: whatever other evidence is removed, faults that were named stay named."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from clusterproof.plugins.catalog.needs import Need, needs
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding
from tests.faults import captured_fault
from tests.laws.cases import LOG, Case
from tests.laws.findings import Words, in_line, is_reported, words, words_of
from tests.laws.losses import Loss, Tried, instead
from tests.laws.pieces import Difference, in_words, leaves, taken_away


@dataclass(frozen=True)
class Removal:
    """One case without one piece of its evidence, and that piece."""

    what: str
    evidence: NodeEvidence
    gone: Words = frozenset()  # the words of that piece
    is_alone: bool = False  # without its peers


def tried(case: Case, checks: Collection[str]) -> Tried:
    """Remove in turn each piece read by a check that names the fault, of these checks."""
    count = 0
    losses: list[Loss] = []
    for check, findings in case.named.items():
        for removal in removals(case, check) if check in checks else ():
            count += 1
            after = case.says(check, removal.evidence, () if removal.is_alone else None)
            lost = [finding for finding in findings if not is_reported(finding, after, removal.gone | case.context)]
            losses += [
                Loss(
                    check,
                    case.name,
                    removal.what,
                    in_line(lost_finding),
                    instead(after),
                    reason(check, removal.what, lost_finding),
                )
                for lost_finding in lost
            ]
    return Tried(count, tuple(losses))


def reason(check: str, fact: str, finding: Finding) -> str:
    """The row of needs.toml that explains why the finding needs the fact, or empty."""
    return next((name for name, row in needs().items() if explains(row, check, fact, finding.message)), "")


def explains(need: Need, check: str, fact: str, message: str) -> bool:
    """Whether a check's finding may disappear with this fact."""
    covers = any(fact == known or fact.startswith((f"{known}.", f"{known}[]")) for known in need.facts)
    return check in need.checks and need.finding in message and covers


def removals(case: Case, check: str) -> Iterator[Removal]:
    """Every piece that the check reads and the fault did not change, removed in turn."""
    reads, of_peers = case.read_by(check)
    changed = case.changed
    for path in sorted(reads):
        if path[0] in case.evidence.collectors:
            evidence, gone = taken_away(case.evidence, path, changed)
            if gone:
                yield Removal(in_words(path), evidence, words_of(leaves(gone)))
    if of_peers:
        yield Removal("its peers", case.evidence, is_alone=True)
    if (LOG,) in reads:
        yield from _beginning_of_log(case, changed)
    yield from _files(case)


def _beginning_of_log(case: Case, changed: Difference) -> Iterator[Removal]:
    """The kernel log from the fault's first line on, marked as having lost records."""
    log = case.evidence.collectors[LOG]
    within = changed.get(LOG) if isinstance(changed, dict) else None
    places = within.get("lines") if isinstance(within, dict) else None
    if not isinstance(places, dict) or not places or log.value.get("truncated"):
        return
    lines = log.value["lines"][min(places) :]
    value = {**log.value, "lines": lines, "truncated": True, "whole_from": lines[0][0]}
    collectors = {**case.evidence.collectors, LOG: replace(log, value=value)}
    gone = words_of(leaves(log.value["lines"][: min(places)]))
    yield Removal("the beginning of the kernel log", replace(case.evidence, collectors=collectors), gone)


def _files(case: Case) -> Iterator[Removal]:
    """Each other file of a capture, and in the fault's own file everything after its last line."""
    for name, text in case.files.items():
        others = {other: content for other, content in case.files.items() if other != name}
        if text == case.healthy_files.get(name):
            yield Removal(f"file {name}", captured_fault.read(others)[1], words(text))
            continue
        cut = _until_last_line(text, case.healthy_files.get(name, ""))
        if cut != text:
            evidence = captured_fault.read({**others, name: cut})[1]
            yield Removal(f"the end of file {name}", evidence, words(text[len(cut) :]))


def _until_last_line(text: str, healthy: str) -> str:
    """A file up to its last line that the healthy one does not have."""
    lines, known = text.splitlines(keepends=True), set(healthy.splitlines(keepends=True))
    last = max((at for at, line in enumerate(lines) if line not in known), default=len(lines))
    return "".join(lines[: last + 1])
