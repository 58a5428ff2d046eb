"""A server on one node and a client on the other, each started by the cluster's own connection: ssh, or another."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from queue import Empty, SimpleQueue

from clusterproof.plugins.benchmarks.launchers.ends import Ends, ends_of, is_worth_another_port, reading_of
from clusterproof.plugins.benchmarks.launchers.launcher import Campaign, check
from clusterproof.plugins.benchmarks.launchers.over_nodes import Outcome, OverNodes, Turn
from clusterproof.plugins.benchmarks.launchers.visit import ENDS_S, NodeAnswer
from clusterproof.plugins.transport import Unusable

ATTEMPTS = 3  # at ports that nobody else uses
GRACE_S = 5.0  # for the second end, once the first has reported that the run failed


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
