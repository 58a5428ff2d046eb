"""Meters of two ends: a server on one node and a client on the other, each started by the cluster's own connection."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from clusterproof.plugins.benchmarks.launchers.launcher import NOT_STARTED, Campaign, at_fault, attributed, check, typed
from clusterproof.plugins.benchmarks.launchers.over_nodes import Outcome, OverNodes, Turn
from clusterproof.plugins.benchmarks.launchers.visit import ENDS_S, MAX_BYTES, NodeAnswer
from clusterproof.plugins.evidence.pairs import Pair, Reading
from clusterproof.plugins.transport import Unusable

ADDRESS = "clusterproofaddress"  # in the client's command: the address is known only once it was tried
PORTS = range(20_000, 30_000, 2)  # below those that a kernel gives by itself
MEET_S = 15.0  # beside two log-ins
ATTEMPTS = 3  # at ports that nobody else uses
GRACE_S = 5.0  # for the second end, once the first has reported that the run failed


@dataclass(frozen=True, slots=True)
class Ends:
    """The requests of one pair: of the node that serves, and of the other."""

    server: Mapping[str, object]
    client: Mapping[str, object]


def ends_of(campaign: Campaign, run: str, addresses: tuple[str, ...]) -> Ends:
    """What both nodes are asked to do; `addresses` are those of the server's node."""
    meter, settings = campaign.meter, campaign.settings
    assert meter.server
    assert meter.client
    rendezvous_port = PORTS[secrets.randbelow(len(PORTS))]
    timeout_s = min(campaign.run_s, MEET_S + 2 * campaign.limits.connect_s)
    common = {"run": run, "deadline_s": campaign.run_s, "most_bytes": MAX_BYTES}
    ports = {"rendezvous_port": rendezvous_port, "port": rendezvous_port + 1}
    rendezvous = {**ports, "timeout_s": timeout_s, "word": secrets.token_hex(16)}  # both know the word
    searches = {"addresses": list(addresses), "stands_for_address": ADDRESS}
    environment = dict(settings.environment)
    serves = {"shell": meter.server(settings, rendezvous_port + 1), "environment": environment}
    comes = {"shell": meter.client(settings, ADDRESS, rendezvous_port + 1), "environment": environment}
    return Ends(
        {**common, "commands": [serves], "rendezvous": rendezvous},
        {**common, "commands": [comes], "rendezvous": {**rendezvous, **searches}},
    )


def is_worth_another_port(server: NodeAnswer) -> bool:
    """Whether the pair may be measured on other ports."""
    return server.unmet.startswith("port ")


def reading_of(campaign: Campaign, pair: Pair, server: NodeAnswer, client: NodeAnswer) -> Reading:
    """The answers of both ends as one measurement; where an end is at fault, it is named."""
    a, b = pair
    silent = {node: data.unreached for node, data in ((a, server), (b, client)) if data.unreached}
    if silent:
        words = ", ".join(f"{node} did not answer: {why}" for node, why in silent.items())
        return Reading(problem=words, culprit=at_fault(silent))
    if is_worth_another_port(server):
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
    if reading.busbw_gb_per_s is not None or reading.culprit:
        return reading
    unable = [node for node, data in ((a, server), (b, client)) if any(o.exit in NOT_STARTED for o in data.outputs)]
    return replace(reading, culprit=unable[0] if len(unable) == 1 else "")


def ssh(campaign: Campaign) -> OverNodes:
    """The launcher for meters of two ends. Raises Unusable for another meter."""
    if not (campaign.meter.server and campaign.meter.client):
        raise Unusable(f"{campaign.meter.name} needs ranks; expected the launcher mpirun or srun for it, and not ssh")
    check(campaign)
    return OverNodes(campaign, two_ends)


def two_ends(turn: Turn) -> Outcome:
    """Visit both nodes at the same time."""
    for _ in range(ATTEMPTS):
        data = _visited(turn, ends_of(turn.campaign, turn.run, turn.where[turn.pair.a].addresses))
        if not is_worth_another_port(data[turn.pair.a]):
            break
    server, client = (data[node] for node in turn.pair)
    to_clean_up = tuple(node for node, one in data.items() if one.unreached)
    return Outcome(reading_of(turn.campaign, turn.pair, server, client), to_clean_up)


def _visited(turn: Turn, ends: Ends) -> Mapping[str, NodeAnswer]:
    """The answers of both nodes. An end that is silent after the other has reported a failure is not waited for."""
    answers: SimpleQueue[tuple[str, NodeAnswer]] = SimpleQueue()
    requests = {turn.pair.a: ends.server, turn.pair.b: ends.client}
    timeout_s = turn.campaign.run_s + ENDS_S

    def visit(node: str) -> None:
        answers.put((node, turn.visit(node, requests[node], timeout_s)))

    for node in requests:
        threading.Thread(target=visit, args=(node,), daemon=True).start()
    first, data = answers.get()
    has_failed = bool(data.unreached or data.unmet or data.is_lost)
    try:
        return dict([(first, data), answers.get(timeout=GRACE_S if has_failed else None)])
    except Empty:
        silent = NodeAnswer(unreached=f"nothing came within {GRACE_S:g} s after {first} had ended")
        return {first: data, turn.pair.other(first): silent}
