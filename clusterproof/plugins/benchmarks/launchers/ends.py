"""Meters of two ends: what each end is asked to do, and what is made of both answers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from clusterproof.plugins.benchmarks.launchers.attribution import NOT_STARTED, at_fault, attributed
from clusterproof.plugins.benchmarks.launchers.launcher import Campaign, typed
from clusterproof.plugins.benchmarks.launchers.visit import MAX_BYTES, NodeAnswer
from clusterproof.plugins.evidence.pairwise.model import Pair
from clusterproof.plugins.evidence.pairwise.reading import Reading

ADDRESS = "clusterproofaddress"  # in the client's command: the address is known only once it was tried
PORTS = range(20_000, 30_000, 2)  # below those that a kernel gives by itself
MEET_S = 15.0  # beside two log-ins


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
