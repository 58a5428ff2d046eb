"""Measures by visiting the nodes of each pair or group over the cluster's own connection, all in parallel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from clusterproof.plugins.agent.payload import new_nonce
from clusterproof.plugins.benchmarks.launchers import (
    Launcher,
    Measured,
    MeterCampaign,
    PairOrGroup,
)
from clusterproof.plugins.benchmarks.launchers.visit import (
    NodeAddresses,
    NodeAnswer,
    Visitor,
    not_reached,
    silenced,
)
from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.evidence.pairs import Reading
from clusterproof.plugins.transport import Unusable


@dataclass(frozen=True, slots=True)
class PairMeasuring:
    """A pair or a group: `run` marks its processes, `where` has its nodes' names and addresses."""

    campaign: MeterCampaign
    visitor: Visitor
    together: PairOrGroup
    run: str
    where: Mapping[str, NodeAnswer]

    def visit(self, node: str, request: Mapping[str, object], timeout_s: float) -> NodeAnswer:
        """Send one request to one of its nodes. Never raises: a failed connection means the node was not reached."""
        try:
            return self.visitor.visit(self.campaign.target(node), {**request, "run": self.run}, timeout_s)
        except (Unusable, InventoryError) as problem:
            return NodeAnswer(unreached=str(problem))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a measurement, and the nodes that did not confirm their cleanup."""

    reading: Reading
    to_clean_up: tuple[str, ...] = ()


@dataclass(slots=True)
class ByVisits(Launcher):
    """Measures by visiting nodes; `take` measures one pair or group."""

    campaign: MeterCampaign
    take: Callable[[PairMeasuring], Outcome]
    visitor: Visitor = field(init=False)
    _where: NodeAddresses = field(init=False)
    _running: dict[str, PairOrGroup] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.visitor = Visitor(self.campaign.reach(), self.campaign.limits)
        self._where = NodeAddresses(self.visitor)

    def measure(self, together: Sequence[PairOrGroup], measured: Measured) -> None:
        """Measure all these at the same time. Raises Unusable."""
        nodes = [node for group in together for node in group]
        try:
            not_reached_nodes = self._where.learn([self.campaign.target(node) for node in nodes])
        except (InventoryError, LookupError) as problem:
            raise Unusable(str(problem)) from None
        turns = []
        for group in together:
            missing = {node: not_reached_nodes[node] for node in group if node in not_reached_nodes}
            if missing:
                measured(group, not_reached(missing))
            else:
                where = {node: self._where.answers[node] for node in group}
                turns.append(PairMeasuring(self.campaign, self.visitor, group, new_nonce(), where))
        side_by_side([lambda turn=turn: measured(turn.together, self._reading_of(turn)) for turn in turns])  # type: ignore[misc]

    def close(self) -> None:
        """End what still runs after an interruption."""
        running, self._running = dict(self._running), {}
        targets = {node: self.campaign.target(node) for group in running.values() for node in group}
        if targets:
            with suppress(Unusable, InventoryError):
                self.visitor.clean_up(list(targets.values()), list(running))

    def _reading_of(self, turn: PairMeasuring) -> Reading:
        started = time.monotonic()
        self._running[turn.run] = turn.together
        try:
            outcome = self.take(turn)
        except Exception as problem:  # a bug of ours or of a meter costs one measurement
            outcome = Outcome(Reading(problem=f"{type(problem).__name__}: {problem}"), tuple(turn.together))
        seconds = round(time.monotonic() - started, 3)
        reading = replace(outcome.reading, seconds=outcome.reading.seconds or seconds)
        cleaned = self._clean_up([self.campaign.target(node) for node in outcome.to_clean_up], turn.run)
        self._running.pop(turn.run, None)
        return reading if reading.has_succeeded else _with(reading, cleaned, turn.together)

    def _clean_up(self, targets: list[Target], run: str) -> dict[str, NodeAnswer]:
        """End a run's leftovers; nodes that do not answer are probed again before the next run."""
        if not targets:
            return {}
        try:
            cleaned = self.visitor.clean_up(targets, [run])
        except (Unusable, InventoryError):
            return {}
        for node, answer in cleaned.items():
            if answer.unreached:
                self._where.forget(node)
        return cleaned


def _with(reading: Reading, cleaned: Mapping[str, NodeAnswer], nodes: PairOrGroup) -> Reading:
    """A failure with the cleanup's results: silent nodes, and processes that could not be killed on others."""
    if not reading.culprit:
        reading = silenced(reading, {node: answer for node, answer in cleaned.items() if answer.unreached}, nodes)
    stuck = [
        f"SIGKILL does not end {', '.join(answer.left)} on {node}" for node, answer in cleaned.items() if answer.left
    ]
    return replace(reading, problem="; ".join([reading.problem, *stuck]))


def side_by_side(calls: Sequence[Callable[[], None]]) -> None:
    """Make all these calls in parallel, and wait. Threads are daemons: an interruption does not wait for them."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
