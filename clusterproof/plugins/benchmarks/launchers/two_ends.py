"""Visits the nodes of each pair or group by the cluster's own connection, all in parallel; for two-ended meters."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from types import TracebackType

from clusterproof.plugins.agent.payload import new_nonce
from clusterproof.plugins.benchmarks.launchers import (
    NOT_STARTED,
    Measured,
    MeterCampaign,
    PairOrGroup,
    attributed,
    check,
    typed,
)
from clusterproof.plugins.benchmarks.launchers.rendezvous import SECRET
from clusterproof.plugins.benchmarks.launchers.visit import (
    ENDS_S,
    MAX_BYTES,
    NodeAddresses,
    NodeAnswer,
    Visitor,
    not_reached,
    silenced,
)
from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.evidence.pairs import Pair, Reading
from clusterproof.plugins.transport import Unusable


@dataclass(frozen=True, slots=True)
class PairMeasuring:
    """A pair or a group: `run` marks its processes, `where` has its nodes' names and addresses."""

    campaign: MeterCampaign
    visitor: Visitor
    together: PairOrGroup
    run: str
    where: Mapping[str, NodeAnswer]

    @property
    def pair(self) -> Pair:
        """The pair; two-ended meters take no larger groups."""
        assert isinstance(self.together, Pair)
        return self.together

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
class OverNodes:
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

    def __enter__(self) -> OverNodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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


ADDRESS = "clusterproofaddress"  # placeholder in the client's command: the address is only known after trying
PORTS = range(20_000, 30_000, 2)  # below the ephemeral ports
MEET_S = 15.0  # in addition to two logins
ATTEMPTS = 3  # with different ports
GRACE_S = 5.0  # for the second end, once the first has reported a failure


@dataclass(frozen=True, slots=True)
class EndRequests:
    """The requests for one pair: to the serving node, and to the other."""

    server: Mapping[str, object]
    client: Mapping[str, object]


def ends_of(campaign: MeterCampaign, run: str, addresses: tuple[str, ...]) -> EndRequests:
    """The requests for both nodes; `addresses` are those of the server's node."""
    meter, settings = campaign.meter, campaign.settings
    assert meter.server
    assert meter.client
    rendezvous_port = PORTS[secrets.randbelow(len(PORTS))]
    timeout_s = min(campaign.run_s, MEET_S + 2 * campaign.limits.connect_s)
    common = {"run": run, "deadline_s": campaign.run_s, "most_bytes": MAX_BYTES}
    ports = {"rendezvous_port": rendezvous_port, "port": rendezvous_port + 1}
    word = secrets.token_hex(16)  # the shared secret
    rendezvous = {**ports, "timeout_s": timeout_s, "word": word}
    searches = {"addresses": list(addresses), "stands_for_address": ADDRESS}
    environment = {**settings.environment, SECRET: word}
    serves = {"shell": meter.server(settings, rendezvous_port + 1), "environment": environment}
    comes = {"shell": meter.client(settings, ADDRESS, rendezvous_port + 1), "environment": environment}
    return EndRequests(
        {**common, "commands": [serves], "rendezvous": rendezvous},
        {**common, "commands": [comes], "rendezvous": {**rendezvous, **searches}},
    )


def reading_of(campaign: MeterCampaign, pair: Pair, server: NodeAnswer, client: NodeAnswer) -> Reading:
    """Both ends' answers as one measurement; names the end at fault, if any."""
    a, b = pair
    silent = {node: answer for node, answer in ((a, server), (b, client)) if answer.unreached}
    if silent:
        return not_reached(silent, "did not answer")
    if server.is_port_taken:
        return Reading(problem=f"{a}: {server.unmet}; expected a free port", culprit=a)
    if client.unmet or server.unmet:
        seen = f"{b} found at {a} {client.unmet}" if client.unmet else f"{a}: {server.unmet}"
        return Reading(problem=f"{seen}; expected that nodes reach each other on TCP ports {PORTS[0]} to {PORTS[-1]}")
    if server.is_lost or client.is_lost:
        return Reading(problem=f"{a} and {b} lost touch of each other in mid-run")
    reading = campaign.meter.read(campaign.settings, (*client.outputs, *server.outputs))
    reading = typed(campaign, reading, "", pair)
    was_ended = any(output.exit is None for output in (*client.outputs, *server.outputs))
    reading = attributed(reading, {a: [server.name], b: [client.name]}, was_ended)
    if reading.has_succeeded or reading.culprit:
        return reading
    unable = [node for node, answer in ((a, server), (b, client)) if any(o.exit in NOT_STARTED for o in answer.outputs)]
    return replace(reading, culprit=unable[0] if len(unable) == 1 else "")


def ssh(campaign: MeterCampaign) -> OverNodes:
    """The launcher for two-ended meters. Raises Unusable for another meter."""
    if not (campaign.meter.server and campaign.meter.client):
        raise Unusable(f"{campaign.meter.name} needs ranks; expected the launcher mpirun or srun for it, and not ssh")
    check(campaign)
    return OverNodes(campaign, two_ends)


def two_ends(turn: PairMeasuring) -> Outcome:
    """Visit both nodes at the same time."""
    for _ in range(ATTEMPTS):
        answers = _visited(turn, ends_of(turn.campaign, turn.run, turn.where[turn.pair.a].addresses))
        if not answers[turn.pair.a].is_port_taken:
            break
    server, client = (answers[node] for node in turn.pair)
    to_clean_up = tuple(node for node, answer in answers.items() if answer.unreached)
    return Outcome(reading_of(turn.campaign, turn.pair, server, client), to_clean_up)


def _visited(turn: PairMeasuring, requests: EndRequests) -> Mapping[str, NodeAnswer]:
    """Both nodes' answers. After one end has reported a failure, a silent other end is not waited for."""
    answers: SimpleQueue[tuple[str, NodeAnswer]] = SimpleQueue()
    request_of = {turn.pair.a: requests.server, turn.pair.b: requests.client}
    timeout_s = turn.campaign.run_s + ENDS_S

    def visit(node: str) -> None:
        answers.put((node, turn.visit(node, request_of[node], timeout_s)))

    for node in request_of:
        threading.Thread(target=visit, args=(node,), daemon=True).start()
    first, answer = answers.get()
    has_failed = bool(answer.unreached or answer.unmet or answer.is_lost)
    try:
        return dict([(first, answer), answers.get(timeout=GRACE_S if has_failed else None)])
    except Empty:
        silent = NodeAnswer(unreached=f"nothing came within {GRACE_S:g} s after {first} had ended")
        return {first: answer, turn.pair.other(first): silent}
