"""The launcher that visits the nodes of every pair by the cluster's own connection, all pairs side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType

from clusterproof.plugins.agent.payload import new_nonce
from clusterproof.plugins.benchmarks.launchers.launcher import Campaign, Measured, at_fault, silenced
from clusterproof.plugins.benchmarks.launchers.visit import NodeAnswer, Visitor, Whereabouts
from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.evidence.pairs import Pair, Reading
from clusterproof.plugins.transport import Unusable


@dataclass(frozen=True, slots=True)
class Turn:
    """One pair's: `run` marks what is started for it, and `where` has both nodes' names and addresses."""

    campaign: Campaign
    visitor: Visitor
    pair: Pair
    run: str
    where: Mapping[str, NodeAnswer]

    def visit(self, node: str, request: Mapping[str, object], timeout_s: float) -> NodeAnswer:
        """Send one request to one of its nodes. Never raises: a connection that fails has not reached the node."""
        try:
            return self.visitor.visit(self.campaign.target(node), {**request, "run": self.run}, timeout_s)
        except (Unusable, InventoryError) as problem:
            return NodeAnswer(unreached=str(problem))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a turn brought, and the nodes that have not said that nothing is left on them."""

    reading: Reading
    to_clean_up: tuple[str, ...] = ()


@dataclass(slots=True)
class OverNodes:
    """Measures by visiting nodes; `take` is how one pair is measured."""

    campaign: Campaign
    take: Callable[[Turn], Outcome]
    visitor: Visitor = field(init=False)
    _where: Whereabouts = field(init=False)
    _running: dict[str, Pair] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.visitor = Visitor(self.campaign.reach(), self.campaign.limits)
        self._where = Whereabouts(self.visitor)

    def measure(self, pairs: Sequence[Pair], measured: Measured) -> None:
        """Measure all these pairs at the same time. Raises Unusable."""
        nodes = [node for pair in pairs for node in pair]
        try:
            unreached = self._where.learn([self.campaign.target(node) for node in nodes])
        except InventoryError as problem:
            raise Unusable(str(problem)) from None
        turns = []
        for pair in pairs:
            missing = {node: unreached[node] for node in pair if node in unreached}
            if missing:
                measured(pair, not_reached(missing))
            else:
                where = {node: self._where.known[node] for node in pair}
                turns.append(Turn(self.campaign, self.visitor, pair, new_nonce(), where))
        side_by_side([lambda turn=turn: measured(turn.pair, self._one(turn)) for turn in turns])  # type: ignore[misc]

    def close(self) -> None:
        """End what still runs: after an interruption."""
        running, self._running = dict(self._running), {}
        targets = {node: self.campaign.target(node) for pair in running.values() for node in pair}
        if targets:
            with suppress(Unusable, InventoryError):
                self.visitor.clean_up(list(targets.values()), list(running))

    def __enter__(self) -> OverNodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _one(self, turn: Turn) -> Reading:
        started = time.monotonic()
        self._running[turn.run] = turn.pair
        try:
            outcome = self.take(turn)
        except Exception as problem:  # a fault of ours, or of a meter's, costs one measurement
            outcome = Outcome(Reading(problem=f"{type(problem).__name__}: {problem}"), tuple(turn.pair))
        seconds = round(time.monotonic() - started, 3)
        reading = replace(outcome.reading, seconds=outcome.reading.seconds or seconds)
        cleaned = self._clean_up([self.campaign.target(node) for node in outcome.to_clean_up], turn.run)
        self._running.pop(turn.run, None)
        return reading if reading.busbw_gb_per_s is not None else _with(reading, cleaned)

    def _clean_up(self, targets: list[Target], run: str) -> dict[str, NodeAnswer]:
        """End what a run has left; nodes that do not answer are asked again what they are, before the next run."""
        if not targets:
            return {}
        try:
            cleaned = self.visitor.clean_up(targets, [run])
        except (Unusable, InventoryError):
            return {}
        for node, data in cleaned.items():
            if data.unreached:
                self._where.forget(node)
        return cleaned


def _with(reading: Reading, cleaned: Mapping[str, NodeAnswer]) -> Reading:
    """A failure with what the cleanup saw: the nodes that are silent, and what could not be ended on others."""
    if not reading.culprit:
        reading = silenced(reading, {node: data.unreached for node, data in cleaned.items() if data.unreached})
    stuck = [f"SIGKILL does not end {', '.join(data.left)} on {node}" for node, data in cleaned.items() if data.left]
    return replace(reading, problem="; ".join([reading.problem, *stuck]))


def not_reached(why: Mapping[str, str]) -> Reading:
    """The measurement of a pair of which these nodes were not reached; one alone is at fault."""
    problem = ", ".join(f"{node} was not reached: {words}" for node, words in why.items())
    return Reading(problem=problem, culprit=at_fault(why))


def side_by_side(calls: Sequence[Callable[[], None]]) -> None:
    """Make all these calls at the same time, and wait. Threads are daemons: an interruption does not wait for them."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
