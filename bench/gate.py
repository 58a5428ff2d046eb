"""What a gate costs: its requests to an API server over a simulated half hour without changes, and how long it takes to
read a large cluster's answers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from bench.api_stand_in import large_node
from bench.figure import Figure
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.command_line import gate_run
from clusterproof.plugins.command_line.gate_run import Rounds
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.kubernetes import decoded
from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import PAGE
from clusterproof.plugins.kubernetes.gate import TRUE, GateSettings, Health, resident
from clusterproof.plugins.kubernetes.gate.metrics import GateMetrics
from clusterproof.plugins.kubernetes.gate.objects import seen_of
from clusterproof.plugins.kubernetes.gate.write import write
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.gather import gather
from clusterproof.plugins.transport.kubernetes.agents import Agents
from clusterproof.plugins.transport.kubernetes.report_cache import REPORTS, AgentPods
from clusterproof.plugins.transport.kubernetes.shares import NodeShare
from tests.kubernetes.agents import STARTED, agents, report
from tests.kubernetes.kubelets import Log
from tests.testbed import needs
from tests.testbed.kubernetes.bed import Bed, bed

NODES = 200
LARGE = 5000
EVERY_S = 60.0
ROUNDS = 30  # half an hour; each node is evaluated twice
FIT = Health(TRUE, "ChecksPassed", "63 checks found no fault")
LATER = 4_000_000_000.0  # later than the creation of any node of this bench
NAME = "gate_requests_per_s_per_node_in_rest"


def in_rest() -> Iterator[Figure]:
    """Requests per second and node without changes, beside a gate that reads every log in every round."""
    if needs.needs_kubernetes.args[0]:
        yield Figure(NAME, None, "≤ 0.005", str(needs.needs_kubernetes.kwargs["reason"]))
        return
    names = [f"many{number:03d}" for number in range(1, NODES + 1)]
    with (
        bed() as kubernetes,
        mock.patch.dict(os.environ, KUBECONFIG=str(kubernetes.plane.kubeconfig())),
        mock.patch.object(Log, "written", report("one").encode()),
        agents(kubernetes, STARTED, *names),
        tempfile.TemporaryDirectory() as folder,
    ):
        gate, began = _gate(Path(folder)), time.time()
        _rounds(gate, 1, began)
        kept = _requests_during(kubernetes, lambda: _rounds(gate, ROUNDS, began + EVERY_S))
        each = _requests_during(kubernetes, lambda: _evaluations(names, ROUNDS, LATER))
    seconds = ROUNDS * EVERY_S
    detail_in_words = ", ".join(f"{count / NODES:.2f} {what}" for what, count in sorted(kept.items()))
    detail = f"of each of {NODES} nodes in {seconds:.0f} s: {detail_in_words}"
    yield Figure(NAME, round(kept.total() / NODES / seconds, 5), "≤ 0.005", detail)
    ratio, detail_in_words = round(kept.total() / each.total(), 2), f"{kept.total()} and {each.total()} requests"
    yield Figure("gate_requests_beside_reading_each_log", ratio, "≤ 0.3", detail_in_words)


def listing() -> Iterator[Figure]:
    """CPU seconds to list a cluster's nodes, which each round does twice."""
    pages = [json.dumps({"items": [large_node(f"node-{number}") for number in range(PAGE)]}).encode()] * (LARGE // PAGE)
    began = time.process_time()
    seen = [seen_of(item) for page in pages for item in decoded(page)["items"]]
    seconds = time.process_time() - began
    detail = f"{len(seen)} nodes of {len(pages[0]) // PAGE / 1000:.0f} kB; without the way over the network"
    yield Figure("gate_listing_cpu_s", round(seconds, 2), "≤ 1.5", detail)


class Gate(Rounds):
    """A gate that reads all logs whenever it evaluates, since by its clock they are old."""

    def _evaluate(self, share: NodeShare, agents: AgentPods, began: float) -> None:
        shutil.rmtree(self._keep / REPORTS, ignore_errors=True)
        super()._evaluate(share, agents, began)


def _gate(folder: Path) -> Gate:
    option = argparse.Namespace(x="k8s:bed/many=yes", every=int(EVERY_S), region="", profile="")
    return Gate(option, [], folder, GateMetrics(EVERY_S), threading.Event())


def _rounds(gate: Gate, count: int, begin: float) -> None:
    """Run this many rounds, one per minute of a simulated clock."""
    for number in range(count):
        now = begin + number * EVERY_S
        clock = SimpleNamespace(time=lambda now=now: now, monotonic=time.monotonic)
        with mock.patch.object(gate_run, "time", clock):
            gate.make()


def _evaluations(names: Sequence[str], count: int, begin: float) -> None:
    """Run this many rounds that each read all logs, without an evaluation that sends requests."""
    cluster, orders = Cluster("bed", "agents", tuple(map(Target, names))), resident(GateSettings(), EVERY_S)
    for number in range(count):
        now = begin + number * EVERY_S
        evidence_by_node = gather(cluster, Agents(), ["boot"], ProbeOptions(), Limits(), lambda evidence: evidence)
        assert not [node_evidence for node_evidence in evidence_by_node.values() if node_evidence.unreached]
        write(open_api({}), orders, dict.fromkeys(names, FIT), now, now)


def _requests_during(kubernetes: Bed, act: Callable[[], None]) -> Counter[str]:
    """The suite's requests in the audit log during a call, by verb and resource."""
    before = len(_requests(kubernetes))
    act()
    return Counter(
        f"{request['verb']} {request['objectRef']['resource']}" for request in _requests(kubernetes)[before:]
    )


def _requests(kubernetes: Bed) -> list[dict[str, Any]]:
    made = (request for request in kubernetes.plane.requests("admin") if request.get("userAgent") == "clusterproof")
    return list({request["auditID"]: dict(request) for request in made}.values())
