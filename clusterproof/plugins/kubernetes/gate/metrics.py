"""Prometheus metrics of a gate's rounds."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clusterproof.plugins.core.record import replace
from clusterproof.plugins.kubernetes.gate import FALSE, TRUE, UNKNOWN
from clusterproof.plugins.kubernetes.gate.round import Round

NOT_EVALUATED = "NotEvaluated"
Labels = TypeVar("Labels", bound=tuple[str, ...])  # label values, in the order of the label names
PREFIX = "clusterproof_gate"
WRITTEN, UNWRITTEN, FAILED = "written", "unwritten", "failed"  # outcomes of a round


class GateMetrics(Collector):
    """The cumulative results of rounds; may be read while one is added."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._began = time.time()
        self._lock = threading.Lock()
        self._last: Round | None = None
        self._rounds = Counter({WRITTEN: 0, UNWRITTEN: 0, FAILED: 0})
        self._requests: Counter[str] = Counter()
        self._changes = 0

    def add(self, latest: Round | None, silent: Collection[str] = ()) -> None:
        """Add a round, and the nodes about which nothing is known; None for one without a result."""
        with self._lock:
            if latest is None:
                self._rounds[FAILED] += 1
                self._last = self._last and without_silent(self._last, frozenset(silent))
                return
            self._rounds[UNWRITTEN if latest.problems else WRITTEN] += 1
            self._requests.update(latest.requests)
            self._changes += len(latest.changes)
            self._last = with_silent(latest, silent, self._last)

    def describe(self) -> Iterable[Metric]:
        """Empty: names need not be known before there is data."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All metric families with current values."""
        with self._lock:
            return [*self._of_gate(), *(self._of_nodes(self._last) if self._last else ())]

    def _of_gate(self) -> Iterator[Metric]:
        yield _gauge("start_timestamp_seconds", "When the gate began, since 1970.", {(): self._began})
        yield _gauge("interval_seconds", "Time between two rounds.", {(): self._every_s})
        rounds = {(outcome,): count for outcome, count in self._rounds.items()}
        yield _counter("rounds", "Rounds by what they came to.", rounds, ("outcome",))
        requests = {tuple(key.split()): count for key, count in self._requests.items()}
        help_text = "Requests to the API server, by method and status; 0: no answer."
        yield _counter("api_requests", help_text, requests, ("method", "code"))
        yield _counter("changes", "Changes of conditions.", {(): self._changes})

    def _of_nodes(self, last: Round) -> Iterator[Metric]:
        yield _gauge("round_timestamp_seconds", "When the last whole round began, since 1970.", {(): last.began})
        yield _gauge("round_duration_seconds", "How long it took.", {(): last.seconds})
        statuses = {(status,): float(last.statuses.get(status, 0)) for status in (TRUE, FALSE, UNKNOWN)}
        yield _gauge("nodes", "Nodes by the status of ClusterproofHealthy.", statuses, ("status",))
        for name, help_text, nodes in (
            ("node_unfit", "1 for each node that is unfit.", last.unfit),
            ("node_unknown", "1 for each node that is neither proven nor unfit.", last.unknown),
        ):
            yield _gauge(name, help_text, dict.fromkeys(nodes.items(), 1.0), ("node", "reason"))
        reported = {(node,): at for node, at in last.reported.items()}
        help_text = "When the gate last had a report of a node, since 1970."
        yield _gauge("report_timestamp_seconds", help_text, reported, ("node",))


def with_silent(gate_round: Round, silent: Collection[str], before: Round | None) -> Round:
    """The round with nodes that gave no result: unfit ones stay so, all others become unknown."""
    unfit = {node: before.unfit[node] for node in silent if before and node in before.unfit}
    unknown = {node: NOT_EVALUATED for node in silent if node not in unfit}
    statuses = Counter(gate_round.statuses) + Counter({FALSE: len(unfit), UNKNOWN: len(unknown)})
    return replace(
        gate_round, statuses=statuses, unfit={**gate_round.unfit, **unfit}, unknown={**gate_round.unknown, **unknown}
    )


def without_silent(last: Round, silent: Set[str]) -> Round:
    """The last round, after one without a result: nodes are no longer proven fit, and unfit as before."""
    unproven = silent - last.unfit.keys() - last.unknown.keys()
    statuses = Counter(last.statuses)
    statuses.subtract({TRUE: min(len(unproven), statuses[TRUE]), UNKNOWN: -len(unproven)})
    return replace(last, statuses=statuses, unknown={**last.unknown, **dict.fromkeys(unproven, NOT_EVALUATED)})


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    help_text: str,
    values: Mapping[Labels, float],
    labels: tuple[str, ...] = (),
) -> Metric:
    family = kind(f"{PREFIX}_{name}", help_text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


_gauge, _counter = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)
