"""The two ends of a meter: one node of a pair or group connects to the others, which serve."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from clusterproof.plugins.benchmarks.launchers import (
    MeterCampaign,
    PairOrGroup,
    attributed,
    check_settings,
    typed,
)
from clusterproof.plugins.benchmarks.launchers.by_visits import ByVisits, Outcome, PairMeasuring
from clusterproof.plugins.benchmarks.launchers.rendezvous import SECRET
from clusterproof.plugins.benchmarks.launchers.visit import (
    ENDS_S,
    MAX_BYTES,
    NodeAnswer,
    not_reached,
)
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.evidence.pairs import Failure, Reading
from clusterproof.plugins.transport import Unusable

NOT_STARTED = (126, 127)  # exit codes of a shell that cannot start a program
ADDRESS = "clusterproofaddress"  # placeholder in the client's command: addresses are only known after trying
MAX_ADDRESSES = 4  # tried per node of a group: the addresses of a thousand nodes are one argument, of 128 KiB at most
PORTS = range(20_000, 30_000, 2)  # below the ephemeral ports
MEET_S = 15.0  # in addition to two logins
ATTEMPTS = 3  # with different ports
GRACE_S = 5.0  # for the second end, once the first has reported a failure


def requests_of(
    campaign: MeterCampaign, run: str, together: PairOrGroup, addresses: Mapping[str, Sequence[str]]
) -> dict[str, Mapping[str, object]]:
    """The request for each node: the last connects to the others, which serve at these addresses."""
    meter, settings = campaign.meter, campaign.settings
    assert meter.server
    assert meter.client
    *servers, client = together
    rendezvous_port = PORTS[secrets.randbelow(len(PORTS))]
    timeout_s = min(campaign.run_s, MEET_S + 2 * campaign.limits.connect_s)
    common = {"run": run, "deadline_s": campaign.run_s, "most_bytes": MAX_BYTES}
    ports = {"rendezvous_port": rendezvous_port, "port": rendezvous_port + 1}
    word = secrets.token_hex(16)  # the shared secret
    rendezvous = {**ports, "timeout_s": timeout_s, "word": word}
    most = MAX_ADDRESSES if len(servers) > 1 else None
    tried = [(node, list(addresses[node][:most])) for node in servers]
    environment = {**settings.environment, SECRET: word}
    serves = {"shell": meter.server(settings, rendezvous_port + 1), "environment": environment}
    comes = {"shell": meter.client(settings, ADDRESS, rendezvous_port + 1), "environment": environment}
    searches = {**rendezvous, "servers": tried, "stands_for_addresses": ADDRESS}
    requests: dict[str, Mapping[str, object]] = {client: {**common, "commands": [comes], "rendezvous": searches}}
    return requests | {node: {**common, "commands": [serves], "rendezvous": rendezvous} for node in servers}


def reading_of(campaign: MeterCampaign, together: PairOrGroup, answers: Mapping[str, NodeAnswer]) -> Reading:
    """All ends' answers as one measurement; names the end at fault, if any."""
    *servers, b = together
    client = answers[b]
    if any(answer.unreached for answer in answers.values()):
        return _silent(answers)
    for node in servers:
        if answers[node].is_port_taken:  # by any user: that is no evidence against the node
            problem, failure = f"{node}: {answers[node].unmet}; expected a free port", Failure.NOT_AT_FAULT
            return Reading(problem=problem, culprit=node, failure=failure)
    unmet = [f"{node}: {answers[node].unmet}" for node in (b, *servers) if answers[node].unmet]
    if unmet:
        reach = f"expected that nodes reach each other on TCP ports {PORTS[0]} to {PORTS[-1]}"
        return Reading(problem=f"{unmet[0]}; {reach}")
    if any(answer.is_lost for answer in answers.values()):
        return Reading(problem=f"{fold(together)} lost touch of each other in mid-run")
    outputs = (*client.outputs, *(output for node in servers for output in answers[node].outputs))
    reading = typed(campaign, campaign.meter.read(campaign.settings, outputs), "", together)
    called = {node: [answers[node].name] for node in together}
    reading = attributed(reading, called, any(output.exit is None for output in outputs))
    if reading.has_succeeded or reading.culprit:
        return reading
    unable = [node for node in together if any(output.exit in NOT_STARTED for output in answers[node].outputs)]
    return replace(reading, culprit=unable[0] if len(unable) == 1 else "")


def _silent(answers: Mapping[str, NodeAnswer]) -> Reading:
    """The measurement when these did not answer; nodes that only waited for another are not named."""
    silent = {node: answer for node, answer in answers.items() if answer.unreached}
    named = {node: answer for node, answer in silent.items() if not answer.is_late} or silent
    reading = not_reached(named, "did not answer")
    return reading if len(named) == len(silent) else replace(reading, culprit="")


def ssh(campaign: MeterCampaign) -> ByVisits:
    """The launcher for two-ended meters. Raises Unusable for another meter."""
    if not (campaign.meter.server and campaign.meter.client):
        raise Unusable(f"{campaign.meter.name} needs ranks; expected the launcher mpirun or srun for it, and not ssh")
    check_settings(campaign)
    return ByVisits(campaign, measured_by_visits)


def measured_by_visits(turn: PairMeasuring) -> Outcome:
    """Visit all nodes at the same time."""
    addresses = {node: turn.where[node].addresses for node in turn.together}
    for _ in range(ATTEMPTS):
        answers = _visited(turn, requests_of(turn.campaign, turn.run, turn.together, addresses))
        if not any(answer.is_port_taken for answer in answers.values()):
            break
    to_clean_up = tuple(node for node, answer in answers.items() if answer.unreached)
    return Outcome(reading_of(turn.campaign, turn.together, answers), to_clean_up)


def _visited(turn: PairMeasuring, requests: Mapping[str, Mapping[str, object]]) -> dict[str, NodeAnswer]:
    """All nodes' answers. After one end has reported a failure, silent other ends are not waited for."""
    answers: SimpleQueue[tuple[str, NodeAnswer]] = SimpleQueue()
    timeout_s = turn.campaign.run_s + ENDS_S

    def visit(node: str) -> None:
        answers.put((node, turn.visit(node, requests[node], timeout_s)))

    for node in requests:
        threading.Thread(target=visit, args=(node,), daemon=True).start()
    answered: dict[str, NodeAnswer] = {}
    first, until = "", float("inf")
    while len(answered) < len(requests):
        try:
            node, answer = answers.get(timeout=max(0.0, until - time.monotonic()) if first else None)
        except Empty:
            late = NodeAnswer(f"nothing came within {GRACE_S:g} s after {first} had ended", is_late=True)
            return {**dict.fromkeys(requests, late), **answered}
        answered[node] = answer
        if not first and (answer.unreached or answer.unmet or answer.is_lost):
            first, until = node, time.monotonic() + GRACE_S
    return answered
