"""`--cloudwatch NAMESPACE`: metrics of a run in CloudWatch, for alarms and dashboards."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypedDict

import pytest

from clusterproof.plugins.aws import Account, AwsError
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch.notify.services import within
from clusterproof.reports.history.changes import since_last

MAX_METRICS = 40  # of one run: each name and set of dimensions is one that AWS counts
TIMEOUT_S = 30.0
_NODES = {
    Verdict.FAIL: "NodesFailed",
    Verdict.INCOMPLETE: "NodesNotProven",
    Verdict.NOT_APPLICABLE: "NodesNotChecked",
}


class Dimension(TypedDict):
    """A dimension of CloudWatch."""

    Name: str
    Value: str


class MetricDatum(TypedDict):
    """One metric value, as PutMetricData takes it."""

    MetricName: str
    Value: float
    Unit: str
    Dimensions: list[Dimension]


def metrics_of(cluster: str, results: Sequence[Result], has_history: bool) -> list[MetricDatum]:
    """The metrics of a run: of the cluster, and of each subsystem that was looked at; none of a node.

    What was found is 0 where nothing was: an alarm needs a number to end on.
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
    """A value of a dimension: what CloudWatch takes."""
    safe = "".join(char if " " <= char <= "~" else "?" for char in text)[:255].strip().lstrip(":")
    return safe or "?"


class CloudWatchReporter:
    """The plugin of a run with `--cloudwatch`."""

    def __init__(self, config: pytest.Config, cluster: Cluster, results: Sequence[Result], namespace: str) -> None:
        self.cluster = cluster
        self.results = results
        self.namespace = namespace
        history = config.pluginmanager.get_plugin("clusterproof-history")
        self.has_history = bool(history and history.is_compared)  # of one that cannot be read nothing is new or gone
        self.region = config.option.region or cluster.settings.get("region", "")
        self.profile = config.option.profile or ""
        self.warning = ""

    def pytest_sessionfinish(self) -> None:
        """Send the metrics of what was found; a run that found nothing out has none."""
        if self.results:
            (self.warning,) = within(TIMEOUT_S, [self._send])

    def _send(self) -> str:
        metrics = metrics_of(self.cluster.name, self.results, self.has_history)
        try:
            account = Account(self.region, self.profile)
            account.call("cloudwatch", "put_metric_data", Namespace=self.namespace, MetricData=metrics)
        except AwsError as problem:
            return str(problem)
        return ""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what did not arrive."""
        if self.warning:
            terminalreporter.write_line(f"warning: CloudWatch has no metrics of this run: {self.warning}", yellow=True)


def reporter(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> CloudWatchReporter | None:
    """The one of `--cloudwatch NAMESPACE`; None where nothing is run."""
    option = config.option
    return None if option.collectonly else CloudWatchReporter(config, cluster, results, option.cloudwatch)
