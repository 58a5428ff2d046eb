"""Updates the state of watched nodes from their reports. Reads no clock and no connection: both are passed in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import REACHABLE
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key, RuleResult, RuleResults, Unknown
from clusterproof.plugins.watch.evaluator import LASTING, Evaluator
from clusterproof.plugins.watch.findings import evaluated
from clusterproof.plugins.watch.overlay import LOG, NVML, LogCursor, PendingUpdates, boot_of
from clusterproof.plugins.watch.own_health import (
    CLOCK,
    GPU_SOURCE,
    NO_LOG,
    REBOOT,
    SAMPLED_RULES,
    SILENT,
    THROTTLED,
    TICK_RULES,
    clock_step,
    is_slowed,
    late_sources,
    lines_lost,
    silent,
)
from clusterproof.plugins.watch.states import States
from clusterproof.plugins.watch.timing import TIMING, Timing
from clusterproof.plugins.watch.updates import Hello, LogUpdate, Tick, Update

AGAIN_S, MAX_DOUBLINGS = 60.0, 5  # from the start of a visit that did not reach a node; doubled after each failure


@dataclass
class _WatchedNode:
    last_seen: float  # when it last sent anything, or was first connected to
    is_expected: bool = True  # at each tick: its first connection has sent something, or ended
    silent_ticks: int = 0  # consecutive checks without anything from it
    last: Hello | None = None  # when it last was heard, by its own clocks
    boot_id: str = ""
    sequence: int = 0  # of the last kernel log line that it sent in this boot
    end_reason: str = ""  # why the connection ended
    slowed: set[int] = field(default_factory=set)  # its GPUs with clocks held down
    ticks: int = 0
    pending: PendingUpdates | None = None  # during a visit
    is_due: bool = True  # it needs a full visit: none in this boot, or not the last one, has reached it
    due_from_s: float = 0.0
    failed_visits: int = 0  # consecutive visits that did not reach it in this boot
    has_sent: bool = False  # since its last visit began
    has_booted: bool = False  # since its last visit began


@dataclass
class Watch:
    """A watched cluster: the states of its nodes, and what was reported of them."""

    evaluator: Evaluator
    every_s: float
    names: Iterable[str]
    began: float
    timing: Timing = TIMING
    states: States = field(init=False)
    verdicts: dict[Key, Verdict] = field(default_factory=dict)  # the worst reported for each
    incomplete: dict[str, int] = field(default_factory=dict)  # number of checks that could not be evaluated, by node

    def __post_init__(self) -> None:
        self.states = States(self.timing)
        self._nodes = {name: _WatchedNode(self.began) for name in self.names}

    @property
    def samples(self) -> int:
        """The number of samples."""
        return sum(node.ticks for node in self._nodes.values())

    @property
    def silent(self) -> list[str]:
        """The nodes that send nothing."""
        return sorted({key.node for key in self.states.open if key.rule == SILENT})

    @property
    def unknown(self) -> list[str]:
        """The nodes that no visit has reached and that have sent no sample."""
        return [name for name, node in self._nodes.items() if not node.ticks and not self.evaluator.knows(name)]

    def resume(self, changes: Iterable[Change], later_s: float) -> int:
        """Continue from earlier changes, whose clock is ahead of ours by so much; returns how much is open."""
        own_changes = (change for change in changes if change.key.node in self._nodes)
        self.states.resume((replace(change, time_s=change.time_s - later_s) for change in own_changes), self.began)
        for key, seen in self.states.open.items():
            self.verdicts[key] = seen.verdict
        return len(self.states.open)

    def connecting(self, now: float) -> None:
        """Nodes are connecting for the first time, so many at once: none counts as silent before its turn."""
        for node in self._nodes.values():
            node.last_seen, node.is_expected = now, False

    def visiting(self, names: Iterable[str], now: float) -> None:
        """A visit of these nodes has begun; what they send meanwhile is newer."""
        for name in names:
            node = self._nodes[name]
            node.pending, node.has_sent, node.has_booted = PendingUpdates(), False, False
            node.is_due, node.due_from_s = True, now + AGAIN_S * 2 ** min(node.failed_visits, MAX_DOUBLINGS)
            node.failed_visits += 1

    def due_visits(self, now: float) -> list[str]:
        """Nodes that send data and need a full visit: none succeeded in this boot, or the last one failed."""
        return [name for name, node in self._nodes.items() if node.is_due and node.has_sent and now >= node.due_from_s]

    def booted(self) -> list[str]:
        """Nodes that have rebooted and were not visited since."""
        return [name for name, node in self._nodes.items() if node.is_due and node.has_sent and not node.failed_visits]

    def evidence(self, evidence_by_node: Mapping[str, NodeEvidence], now: float) -> list[Change]:
        """Evaluate all checks on the results of a visit. States that could not be evaluated stay open."""
        changes = []
        evidence_by_node = {name: self._with_pending(name, evidence) for name, evidence in evidence_by_node.items()}
        for name, (rule_results, results) in self.evaluator.evaluate_all(evidence_by_node).items():
            parts = (part for result in results for part in result.by_verdict)
            self.incomplete[name] = len({part.check for part in parts if part.verdict is Verdict.INCOMPLETE})
            node = self._nodes[name]
            if evidence_by_node[name].unreached:
                node.end_reason = next((result.cause for result in results if result.check == REACHABLE), "")
                continue
            node.failed_visits = 0
            boot_id = boot_of(evidence_by_node[name])
            node.is_due = node.has_booted and boot_id != node.boot_id  # it answered before the reboot
            node.boot_id = node.boot_id or boot_id
            lasting = {key: seen for key, seen in rule_results.items() if key[1] not in LASTING}
            rules, unknown = evaluated(results)
            rules = (rules - LASTING) | self._no_longer_evaluated(name)
            changes += self.states.events(name, rules, lasting, now, unknown)
        return self._reported(changes)

    def update(self, name: str, update: Update, now: float) -> list[Change]:
        """Handle an update from a node's sampler."""
        node = self._nodes[name]
        if self._is_silent(node, now):
            node.due_from_s = now  # it can be reached again
        node.last_seen, node.is_expected, node.silent_ticks, node.end_reason = now, True, 0, ""
        node.has_sent = True
        if node.pending:
            node.pending.add(update)
        changes = self.states.events(name, frozenset({SILENT}), {}, now)
        if isinstance(update, Hello):
            changes += self._hello(name, node, update, now)
        elif isinstance(update, Tick):
            changes += self._tick(name, node, update, now)
        elif isinstance(update, LogUpdate):
            node.sequence = max((line.sequence for line in update.lines), default=node.sequence)
            if update.lost:
                changes.append(_event(name, NO_LOG, lines_lost(update.lost), now, Verdict.INCOMPLETE))
            if self.evaluator.knows(name):
                self.evaluator.logged(name, update.lines)
                changes += self._reevaluated(name, (LOG,), now)
        return self._reported(changes)

    def is_without_news(self, name: str, update: object) -> bool:
        """Whether nothing can be said of it: a sample without news, from a node without findings. From any thread."""
        node = self._nodes[name]
        if not isinstance(update, Tick) or update.facts or update.reported or update.late:
            return False
        if node.is_due or node.last is None or self.states.has_any(name):
            return False
        return not clock_step(node.last, update, self.timing.clock_step_s)

    def ended(self, name: str, why: str) -> None:
        """A node's connection has ended; this is reported if it does not come back soon."""
        node = self._nodes[name]
        node.is_expected, node.end_reason = True, why or node.end_reason

    def log_cursor(self, name: str) -> LogCursor | None:
        """Where to follow its kernel log from: in a boot that no visit has reached, after the last line it sent."""
        node, cursor = self._nodes[name], self.evaluator.log_cursor(name)
        if cursor and node.boot_id and cursor[0] != node.boot_id:
            return node.boot_id, node.sequence, 0.0
        return cursor

    def check_silence(self, now: float) -> list[Change]:
        """Find nodes that are silent or have too many findings, and states that no longer flap.

        Call this about once per tick, after handling everything that nodes sent before `now`. Silence is also counted
        in calls, because the watch itself may have been stopped in between.
        """
        changes: list[Change] = []
        for name, node in self._nodes.items():
            node.silent_ticks += 1
            if node.is_expected and self._is_silent(node, now):
                results = {("", SILENT): silent(now - node.last_seen, node.end_reason)}
                changes += self.states.events(name, frozenset({SILENT}), results, now)
        return self._reported([*changes, *self.states.settle(now)])

    def _is_silent(self, node: _WatchedNode, now: float) -> bool:
        ticks = self.timing.silent_ticks
        return now - node.last_seen >= ticks * self.every_s and node.silent_ticks >= ticks

    def _hello(self, name: str, node: _WatchedNode, hello: Hello, now: float) -> list[Change]:
        changes = []
        if node.boot_id and hello.boot_id and node.boot_id != hello.boot_id:  # so that all must be evaluated again
            node.pending = PendingUpdates() if node.pending else None
            node.is_due, node.due_from_s, node.failed_visits = True, now, 0
            node.has_booted, node.sequence = True, 0
            changes.append(_event(name, REBOOT, "it has booted; expected to stay up while it is watched", now))
        node.last = hello
        node.slowed.clear()  # its sampler reports it again
        node.boot_id = hello.boot_id or node.boot_id
        results: RuleResults = {}
        if hello.no_log:
            message = f"the kernel log is not followed: {hello.no_log}; expected to be let at it (--sudo)"
            results = {("", NO_LOG): RuleResult(Verdict.INCOMPLETE, message)}
        return changes + self.states.events(name, frozenset({NO_LOG}), results, now)

    def _tick(self, name: str, node: _WatchedNode, tick: Tick, now: float) -> list[Change]:
        node.ticks += 1
        changes = []
        if node.last and (step := clock_step(node.last, tick, self.timing.clock_step_s)):
            changes.append(_event(name, CLOCK, step, now))
        node.last = Hello("", tick.now, tick.up)  # its values are not needed again
        is_new = self.evaluator.changed(name, tick.facts) if tick.facts and self.evaluator.knows(name) else False
        if is_new:
            changes += self._reevaluated(name, (NVML,), now)
        if tick.reported and self.evaluator.knows(name) and self.evaluator.reported(name, tick.reported):
            changes += self._reevaluated(name, tick.reported, now)
        changes += self.states.tick(name, TICK_RULES, late_sources(tick), now)
        was_slowed = bool(node.slowed)
        for index, facts in tick.facts.items():
            if THROTTLED.intersection(facts):
                (node.slowed.add if is_slowed(facts) else node.slowed.discard)(index)
        is_reevaluated = bool(node.slowed or was_slowed)  # once more after it is over
        return changes + self._slowdowns(name, now, is_reevaluated=is_reevaluated, is_late=GPU_SOURCE in tick.late)

    def _slowdowns(self, name: str, now: float, *, is_reevaluated: bool, is_late: bool) -> list[Change]:
        """Evaluate transient conditions; of what is not known now, nothing is over."""
        slowed: RuleResults = {}
        rules, unknown = LASTING, Unknown()
        if is_reevaluated and self.evaluator.knows(name):
            rules, slowed, unknown = self.evaluator.reevaluate(name, LASTING)
        elif is_reevaluated:
            rules = frozenset()
        rules = frozenset() if is_late else rules
        return self.states.tick(name, rules, slowed, now, self.timing.slowdown_opens_ticks, unknown)

    def _reevaluated(self, name: str, collectors: Iterable[str], now: float) -> list[Change]:
        """The results of checks that read one of these."""
        rules, results, unknown = self.evaluator.reevaluate(name, self.evaluator.rules(*collectors))
        return self.states.events(name, rules, results, now, unknown)

    def _no_longer_evaluated(self, name: str) -> frozenset[str]:
        """Rules of an earlier version with open states, which nothing would ever close."""
        known = {*self.evaluator.checks, *SAMPLED_RULES}
        return frozenset(key.rule for key in self.states.open_of(name) if key.rule not in known)

    def _with_pending(self, name: str, evidence: NodeEvidence) -> NodeEvidence:
        pending, self._nodes[name].pending = self._nodes[name].pending, None
        return pending.applied_to(evidence) if pending and not evidence.unreached else evidence

    def _reported(self, changes: list[Change]) -> list[Change]:
        for change in changes:
            before = self.verdicts.get(change.key, Verdict.PASS)
            if change.kind is not ChangeKind.CLOSED and change.verdict.rank < before.rank:
                self.verdicts[change.key] = change.verdict
        return changes


def _event(name: str, rule: str, message: str, now: float, verdict: Verdict = Verdict.CONCERN) -> Change:
    """An event, which is over at once."""
    return Change(ChangeKind.HAPPENED, Key(name, "", rule), verdict, message, now)
