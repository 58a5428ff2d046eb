"""What is new, still there or gone: pure functions for all reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import PROVEN, Verdict
from clusterproof.reports.history import FINE, FOUND, Devices, Pair, Past, Standing

NEW, STILL, GONE = "new", "still", "gone"
_WEIGHT = {Verdict.INCOMPLETE: 1, Verdict.CONCERN: 2, Verdict.FAIL: 3}  # evidence outweighs a lack of it
MAX_NODES = 80  # characters of a nodeset


@dataclass(frozen=True, slots=True)
class Change:
    """A check and a node with a verdict that is, or was, not fine."""

    check: str
    node: str
    before: Verdict | None
    now: Verdict
    title: str = ""
    cause: str = ""  # of missing evidence
    devices: tuple[str, ...] = ()  # that were not found before, or less gravely; empty if none were named then

    @property
    def kind(self) -> str:
        """`new`, `still` or `gone`."""
        kind = change(self.before, self.now)
        return NEW if kind == STILL and self.devices else kind

    @property
    def is_of_others(self) -> bool:
        """Whether it is new only because it is about further devices."""
        return self.kind == NEW and change(self.before, self.now) == STILL


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between two runs, and what they share."""

    new: tuple[Change, ...] = ()
    still: tuple[Change, ...] = ()
    gone: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)

    @property
    def kinds(self) -> Iterator[tuple[str, tuple[Change, ...]]]:
        """Each kind by name, with its changes."""
        yield from ((NEW, self.new), (STILL, self.still), (GONE, self.gone))


def change(before: Verdict | None, now: Verdict) -> str:
    """The change of a verdict: new, still, gone, or empty if it was and is fine.

    A finding that becomes incomplete is still there; one that gets worse is new.
    """
    weight, weighed = _WEIGHT.get(now, 0), _WEIGHT.get(before, 0) if before else 0
    if not weight:
        return GONE if weighed else ""
    return NEW if weight > weighed else STILL


def standing_after(before: Standing | None, result: Result) -> Standing:
    """The state after a run: a finding lasts until a run with complete evidence sees that it is gone.

    What an interrupted run did not evaluate is unchanged: *not applicable*, if it was never evaluated.
    """
    if not result.is_evaluated:
        return before or Standing(Verdict.NOT_APPLICABLE)
    was, now = before.verdict if before else None, known(result)
    is_read = all(part.verdict is not Verdict.INCOMPLETE for part in result.by_verdict)
    devices = _devices_after(before.devices if before else {}, result)
    if before and was in FOUND and not is_read and change(was, now) == STILL:
        return Standing(before.verdict, devices or before.devices)
    return Standing(now, devices)


def _devices_after(before: Devices, result: Result) -> Devices:
    """The devices found, and those found before that were not read."""
    parts = {part.verdict: part.devices for part in result.by_verdict}
    unread = parts.get(Verdict.INCOMPLETE)  # empty if it does not say which
    devices = {verdict: parts[verdict] for verdict in FOUND if parts.get(verdict)}
    seen = {device for named in devices.values() for device in named}
    for verdict, named in before.items() if unread is not None else ():
        lasting = tuple(device for device in named if device not in seen and (not unread or device in unread))
        if lasting:
            devices[verdict] = devices.get(verdict, ()) + lasting
    return devices


def further_devices(before: Devices, now: Devices) -> tuple[str, ...]:
    """The devices that were not found before, or less gravely; empty if none were named then."""
    failed = set(before.get(Verdict.FAIL, ()))
    known = {Verdict.FAIL: failed, Verdict.CONCERN: failed.union(before.get(Verdict.CONCERN, ()))}
    return tuple(
        device for verdict, named in now.items() for device in named if device not in known[verdict] and before
    )


def known(result: Result) -> Verdict:
    """The known verdict of a result: an incomplete check may also have found something."""
    return max((part.verdict for part in result.by_verdict), key=lambda verdict: _WEIGHT.get(verdict, 0))


def marked(result: Result, before: Mapping[Pair, Standing]) -> Result:
    """A result marked with its change since the last run; `before` is the state then, if it was not fine."""
    return replace(result, since_last=_change_of(result, before.get((result.check, result.node))).kind)


def _change_of(result: Result, before: Standing | None) -> Change:
    was, devices = (before.verdict, before.devices) if before else (None, {})
    further = further_devices(devices, _devices_after({}, result))
    return Change(result.check, result.node, was, known(result), result.title, result.cause, further)


def since_last(results: Iterable[Result], before: Mapping[Pair, Standing] | None = None) -> Changes:
    """What is new, still there and gone since the last run, according to the results; None without a history.

    `before` is the state then, if known. Of a test with parameters nothing is gone while anything is still there.
    """
    results, stood = list(results), before or {}
    there = {(result.check, result.node) for result in results if result.since_last in (NEW, STILL)}
    kinds: dict[str, list[Change]] = {NEW: [], STILL: [], GONE: []}
    for result in results:
        if result.since_last and not (result.since_last == GONE and (result.check, result.node) in there):
            kinds[result.since_last].append(_change_of(result, stood.get((result.check, result.node))))
    return Changes(tuple(kinds[NEW]), tuple(kinds[STILL]), tuple(kinds[GONE]))


def between(past: Past, before: int, now: int) -> Changes:
    """The differences between run number `now` and the state after run number `before`."""
    kinds: dict[str, list[Change]] = {NEW: [], STILL: [], GONE: [], "": []}
    for (check, node), track in past.tracks.items():
        last = [entry for entry in track if entry.run == now and not entry.is_of_interruption]
        if last:
            stood = [entry for entry in track if entry.run <= before]
            was, devices = (stood[-1].stands, stood[-1].standing_devices) if stood else (None, {})
            entry = last[0]
            further = further_devices(devices, entry.standing_devices)
            is_found = entry.stands in FOUND and (entry.stands is not was or further)
            change = Change(check, node, was, entry.stands if is_found else entry.verdict, devices=further)
            kinds[change.kind].append(change)
    return Changes(tuple(kinds[NEW]), tuple(kinds[STILL]), tuple(kinds[GONE]))


def is_green(verdicts: Iterable[Verdict]) -> bool:
    """Whether something was proven, nothing failed and nothing is incomplete."""
    proven = set(verdicts)
    return bool(proven & PROVEN) and proven <= {*FINE, Verdict.CONCERN}


def headline(changes: Changes) -> str:
    """`3 findings new on gpu[003-005]; 1 gone from gpu002; 18 still there; newly incomplete: gpu006`."""
    kinds = ((changes.new, "new on"), (changes.gone, "gone from"), (changes.still, "still there"))
    counts = list(_counts((changed, suffix) for kind, suffix in kinds if (changed := [*filter(_finding, kind)])))
    incomplete = _with_gaps(changes.still)
    of_gaps: tuple[tuple[str, tuple[Change, ...], set[str]], ...] = (
        ("newly", changes.new, incomplete),
        ("no longer", changes.gone, incomplete),
        ("still", changes.still, set()),
    )
    gaps = [f"{word} incomplete: {_nodes(names)}" for word, kind, less in of_gaps if (names := _with_gaps(kind) - less)]
    unchanged = [] if changes else ["nothing has changed"]
    return "; ".join([*unchanged, *counts, *gaps])


def _counts(changes_in_words: Iterable[tuple[list[Change], str]]) -> Iterator[str]:
    for index, (changes, suffix) in enumerate(changes_in_words):
        number = len({_finding(change) for change in changes})
        count = str(number) if index else number_of(number, "finding")
        yield f"{count} {suffix}" + (
            "" if suffix.endswith("there") else f" {_nodes({change.node for change in changes})}"
        )


def _finding(change: Change) -> tuple[str, Verdict] | None:
    """The check, and its finding now or before; None if evidence is, or was, missing."""
    for verdict in (change.now, change.before):
        if verdict in FOUND:
            return change.check, verdict
    return None if Verdict.INCOMPLETE in (change.now, change.before) else (change.check, change.now)


def _with_gaps(changes: Iterable[Change]) -> set[str]:
    return {change.node for change in changes if _finding(change) is None}


def _nodes(names: Collection[str]) -> str:
    folded = fold(names)
    return folded if len(folded) <= MAX_NODES else number_of(len(names), "node")
