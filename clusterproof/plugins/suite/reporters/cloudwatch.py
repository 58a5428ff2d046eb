"""`--cloudwatch NAMESPACE`: sends a few CloudWatch metrics of a run, for alarms and dashboards; opt-in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, TypedDict

import pytest

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch.notify.services import within
from clusterproof.reports.history.changes import since_last

MAX_METRICS = 40  # of one run: AWS charges for each combination of name and dimensions
TIMEOUT_S = 30.0
_NODES = {
    Verdict.FAIL: "NodesFailed",
    Verdict.INCOMPLETE: "NodesNotProven",
    Verdict.NOT_APPLICABLE: "NodesNotChecked",
}


class Dimension(TypedDict):
    """A CloudWatch dimension."""

    Name: str
    Value: str


class MetricDatum(TypedDict):
    """One number of a run, in PutMetricData's form."""

    MetricName: str
    Value: float
    Unit: str
    Dimensions: list[Dimension]


def metrics_of(cluster: str, results: Sequence[Result], has_history: bool) -> list[MetricDatum]:
    """The metrics of a run: for the cluster and each checked subsystem; none for single nodes.

    Counts are 0 if nothing was found: an alarm needs a number to clear.
    """
    of_cluster: list[Dimension] = [{"Name": "Cluster", "Value": _ascii(cluster)}]
    worst: dict[str, Verdict] = {}
    failures: dict[str, int] = defaultdict(int)
    for result in results:
        failures[result.subsystem] += result.verdict is Verdict.FAIL
        if result.is_of_node:
            worst[result.node] = min(
                result.verdict, worst.get(result.node, result.verdict), key=lambda verdict: verdict.rank
            )
    verdicts = Counter(part.verdict for result in results for part in result.by_verdict)
    nodes = Counter(_NODES.get(verdict, "NodesFit") for verdict in worst.values())
    counts = {
        **{name: nodes[name] for name in ("NodesFit", *_NODES.values())},
        "Failures": verdicts[Verdict.FAIL],
        "Concerns": verdicts[Verdict.CONCERN],
        "Incomplete": verdicts[Verdict.INCOMPLETE],
    }
    if has_history:
        changes = since_last(results)
        counts |= {"New": len(changes.new), "Gone": len(changes.gone)}
    metrics = [_metric(name, count, of_cluster) for name, count in counts.items()]
    for subsystem, count in sorted(failures.items()):
        if subsystem:
            of_subsystem: list[Dimension] = [*of_cluster, {"Name": "Subsystem", "Value": _ascii(subsystem)}]
            metrics.append(_metric("SubsystemFailures", count, of_subsystem))
    return metrics[:MAX_METRICS]


def _metric(name: str, count: int, dimensions: list[Dimension]) -> MetricDatum:
    return {"MetricName": name, "Value": float(count), "Unit": "Count", "Dimensions": dimensions}


def _ascii(text: str) -> str:
    """A dimension value with the characters that CloudWatch accepts."""
    safe = "".join(char if " " <= char <= "~" else "?" for char in text)[:255].strip().lstrip(":")
    return safe or "?"


class CloudWatchReporter:
    """The plugin of a run that is reported to CloudWatch."""

    def __init__(self, config: pytest.Config, cluster: Cluster, results: Sequence[Result], namespace: str) -> None:
        self.cluster = cluster
        self.results = results
        self.namespace = namespace
        history = config.pluginmanager.get_plugin("clusterproof-history")
        self.has_history = bool(history and history.is_compared)  # with an unreadable one, nothing is new or gone
        self.region = config.option.region or cluster.settings.get("region", "")
        self.profile = config.option.profile or ""
        self.warning = ""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the metrics; a run without any verdict has none."""
        if self.results:
            outcomes: Any = session.config.pluginmanager.get_plugin("clusterproof-outcomes")
            (self.warning,) = within(TIMEOUT_S, [partial(self._send, outcomes.reported)])

    def _send(self, reported: Sequence[Result]) -> str:
        metrics = metrics_of(self.cluster.name, reported, self.has_history)
        try:
            account = Account(self.region, self.profile)
            account.call("cloudwatch", "put_metric_data", Namespace=self.namespace, MetricData=metrics)
        except AwsError as problem:
            return str(problem)
        return ""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what could not be sent."""
        if self.warning:
            terminalreporter.write_line(f"warning: CloudWatch has no metrics of this run: {self.warning}", yellow=True)


def reporter(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> CloudWatchReporter | None:
    """The reporter of `--cloudwatch NAMESPACE`; None if nothing is run."""
    option = config.option
    return None if option.collectonly else CloudWatchReporter(config, cluster, results, option.cloudwatch)
