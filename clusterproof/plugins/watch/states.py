"""When findings on nodes are reported: events once, immediately; states when they last, and again when they are over.

It reads no clock and only knows the times that are passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import TOO_MANY, Change, ChangeKind, Key, RuleResult, RuleResults, Unknown
from clusterproof.plugins.watch.timing import TIMING, Timing

MAX_OPEN = 512  # of one node: with more, one thing is broken
FULL = RuleResult(
    Verdict.INCOMPLETE,
    f"it has had {MAX_OPEN} findings at once or within an hour, and more are not reported; "
    "expected fewer: clusterproof check names all that are there now",
)


@dataclass
class _State:
    result: RuleResult
    recent_ticks: deque[bool]
    is_open: bool = False
    is_fail: bool = False  # at any time while open
    most_findings: int = 0  # maximum while open
    is_flapping: bool = False
    is_evaluated: bool = True  # since the watch was resumed
    clean: int = 0
    opened_at: list[float] = field(default_factory=list)


class States:
    """The states of all nodes."""

    def __init__(self, timing: Timing = TIMING) -> None:
        self._timing = timing
        self._of: dict[str, dict[Key, _State]] = {}
        self._full: set[str] = set()  # nodes with states that were not reported because there were too many

    @property
    def open(self) -> Mapping[Key, RuleResult]:
        """The open states."""
        return {key: state.result for states in self._of.values() for key, state in states.items() if state.is_open}

    def open_of(self, node: str) -> Mapping[Key, RuleResult]:
        """The open states of one node."""
        return {key: state.result for key, state in self._of.get(node, {}).items() if state.is_open}

    def has_any(self, node: str) -> bool:
        """Whether a node has any state that is open, may open or was open lately; from any thread."""
        return bool(self._of.get(node))

    @property
    def opened_at(self) -> Mapping[Key, float]:
        """When each open state was last opened."""
        every = ((key, state) for states in self._of.values() for key, state in states.items())
        return {key: state.opened_at[-1] for key, state in every if state.is_open and state.opened_at}

    def resume(self, changes: Iterable[Change], now: float) -> None:
        """Continue from the changes of an earlier watch, in its order, with times of this one's clock."""
        said_at: dict[Key, float] = {}
        for change in changes:
            at = said_at[change.key] = min(change.time_s, now)  # later, if a clock was set back since
            state = (
                None if change.kind is ChangeKind.HAPPENED else self._state(change.key, RuleResult(change.verdict, ""))
            )
            if state is None:
                continue
            state.is_open = change.kind is not ChangeKind.CLOSED
            if change.kind is not ChangeKind.WORSE:
                state.is_flapping = change.kind is ChangeKind.FLAPPING
            if state.is_open:
                state.result = RuleResult(change.verdict, change.message, change.findings)
                state.most_findings = change.findings
                if change.kind is not ChangeKind.WORSE:
                    state.opened_at = [*state.opened_at, at][-self._timing.flaps_times - 1 :]
            else:
                self._drop(change.key, state, now)  # at once: there is room for a node's open ones
            state.is_fail = state.is_open and (state.is_fail or change.verdict is Verdict.FAIL)
        self._full = {key.node for key in self.open if key.rule == TOO_MANY}
        for states in self._of.values():
            for key, state in states.items():
                state.is_evaluated = False
                if state.is_flapping:  # when it opened since then was not reported
                    state.opened_at = [said_at.get(key, now)] * (self._timing.flaps_times + 1)

    def events(
        self,
        node: str,
        rules: frozenset[str],
        results: RuleResults,
        now: float,
        unknown: Unknown = frozenset(),
    ) -> list[Change]:
        """Apply results of rules that are evaluated on each event: reported at once, and closed at once.

        `unknown` are the devices for which a rule could not be evaluated now: their states stay open.
        """
        changes: list[Change] = []
        for key, state in self._without_findings(node, rules, results, unknown):
            if state.is_open:
                changes += self._close(key, state, now)
            self._drop(key, state, now)
        for (device, rule), result in results.items():
            key = Key(node, device, rule)
            held = self._state(key, result)
            if held:
                changes += self._open_or_worsen(key, held, result, now)
        return changes

    def tick(
        self,
        node: str,
        rules: frozenset[str],
        results: RuleResults,
        now: float,
        fails_ticks: int | None = None,
        unknown: Unknown = frozenset(),
    ) -> list[Change]:
        """Apply results of rules evaluated at each tick: reported if they last, a failure after so many ticks.

        `unknown` as in `events`.
        """
        changes: list[Change] = []
        for key, state in self._without_findings(node, rules, results, unknown):
            state.recent_ticks.append(False)
            state.clean += 1
            if state.is_open and state.clean >= self._timing.closes_ticks:
                changes += self._close(key, state, now)
            if not state.is_open and not any(state.recent_ticks):
                self._drop(key, state, now)
        for (device, rule), result in results.items():
            key = Key(node, device, rule)
            held = self._state(key, result)
            if held:
                held.recent_ticks.append(True)
                held.clean = 0
                opens_ticks = (result.verdict is Verdict.FAIL and fails_ticks) or self._timing.opens_ticks
                if held.is_open or sum(held.recent_ticks) >= opens_ticks:
                    changes += self._open_or_worsen(key, held, result, now)
        return changes

    def settle(self, now: float) -> list[Change]:
        """Resolve states that have stopped flapping, as open or over, and report nodes with too many states."""
        changes = []
        for node in list(self._full):
            if not self._is_full(node):
                self._full.discard(node)
            too_many = {("", TOO_MANY): FULL} if node in self._full else {}
            changes += self.events(node, frozenset({TOO_MANY}), too_many, now)
        for states in list(self._of.values()):
            for key, state in list(states.items()):
                if not (state.is_flapping and state.is_evaluated) or self._has_opened_lately(state, now):
                    continue
                state.is_flapping = False
                if state.is_open:
                    state.opened_at = [now]
                kind = ChangeKind.OPENED if state.is_open else ChangeKind.CLOSED
                changes.append(_change(kind, key, state.result, now))
        return changes

    def _without_findings(
        self, node: str, rules: frozenset[str], results: RuleResults, unknown: Unknown
    ) -> list[tuple[Key, _State]]:
        """The states of a node of which these rules, as far as they could be evaluated, find nothing now."""
        return [
            (key, state)
            for key, state in self._of.get(node, {}).items()
            if key.rule in rules and (key.device, key.rule) not in results and (key.device, key.rule) not in unknown
        ]

    def _state(self, key: Key, result: RuleResult) -> _State | None:
        states = self._of.setdefault(key.node, {})
        if key not in states and key.rule != TOO_MANY and self._is_full(key.node):
            self._full.add(key.node)
            return None
        return states.setdefault(key, _State(result, deque(maxlen=self._timing.window_ticks)))

    def _is_full(self, node: str) -> bool:
        states = self._of.get(node, {})
        return len(states) >= MAX_OPEN and len(states) - (Key(node, "", TOO_MANY) in states) >= MAX_OPEN

    def _open_or_worsen(self, key: Key, state: _State, result: RuleResult, now: float) -> Iterator[Change]:
        """The rule holds: report it if the state was closed, became a failure, or now has more findings."""
        state.result, state.is_evaluated = result, True
        if not state.is_open:
            state.is_open, was_flapping = True, state.is_flapping
            state.opened_at = [*(at for at in state.opened_at if now - at < self._timing.flaps_within_s), now]
            state.is_flapping = len(state.opened_at) > self._timing.flaps_times
            if not (was_flapping and state.is_flapping):
                state.is_fail, state.most_findings = result.verdict is Verdict.FAIL, result.findings
                kind = ChangeKind.FLAPPING if state.is_flapping else ChangeKind.OPENED
                yield _change(kind, key, result, now)
        if (result.verdict is Verdict.FAIL and not state.is_fail) or result.findings > state.most_findings:
            state.is_fail = state.is_fail or result.verdict is Verdict.FAIL
            state.most_findings = max(result.findings, state.most_findings)
            yield _change(ChangeKind.WORSE, key, result, now)

    def _close(self, key: Key, state: _State, now: float) -> Iterator[Change]:
        state.is_open, state.is_evaluated = False, True
        if not state.is_flapping:
            yield _change(ChangeKind.CLOSED, key, state.result, now)

    def _drop(self, key: Key, state: _State, now: float) -> None:
        """Forget a closed state once it can no longer count as flapping."""
        if not state.is_flapping and not self._has_opened_lately(state, now):
            self._of[key.node].pop(key, None)

    def _has_opened_lately(self, state: _State, now: float) -> bool:
        return any(now - at < self._timing.flaps_within_s for at in state.opened_at)


def _change(kind: ChangeKind, key: Key, result: RuleResult, now: float) -> Change:
    return Change(kind, key, result.verdict, result.message, now, result.findings)
