"""`--cloudwatch`: a run's metrics as CloudWatch stores them, and the outcome of a run that cannot send them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest

from clusterproof.plugins.core.result import PAIR_SUBJECT, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.reporters.cloudwatch import MAX_METRICS, metrics_of
from tests.aws.service import DENIED, Service
from tests.builders.runs import LIGHT, VERDICTS, Runs, all_verdicts, saying

pytest_plugins = ["pytester"]
NAMESPACE = "clusterproof"


def output_of(name: str, **dimensions: str) -> list[float]:
    """What CloudWatch has stored of a metric."""
    client: Any = boto3.client("cloudwatch")
    now = datetime.now(timezone.utc)
    answer = client.get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName=name,
        Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(hours=1),
        Period=7200,
        Statistics=["Sum"],
    )
    return [point["Sum"] for point in answer["Datapoints"]]


def test_cloudwatch_has_the_numbers_of_the_run(runs: Runs, service: Service) -> None:
    runs.checks(test_it=LIGHT)
    ran = runs.over(all_verdicts(), "--cloudwatch", NAMESPACE)
    assert ran.ret == 1
    assert "warning: " not in ran.stdout.str()
    assert service.calls == ["PutMetricData"]
    numbers = {"NodesFit": 3, "NodesFailed": 1, "NodesNotProven": 3, "NodesNotChecked": 1}
    numbers |= {"Failures": 1, "Concerns": 1, "Incomplete": 3}
    assert {name: output_of(name, Cluster="small") for name in numbers} == {name: [n] for name, n in numbers.items()}
    assert output_of("SubsystemFailures", Cluster="small", Subsystem="host") == [1]
    assert output_of("New", Cluster="small") == []


def test_a_test_that_broke_is_counted_as_incomplete(runs: Runs, service: Service) -> None:
    runs.checks(test_it=LIGHT, test_other="def test_other(): assert False")
    runs.over([saying("gpu001", "pass")], "--cloudwatch", NAMESPACE)
    assert output_of("Incomplete", Cluster="small") == [1]


def test_changes_are_counted_where_there_is_a_history(runs: Runs, service: Service) -> None:
    runs.checks(test_it=LIGHT)
    for _ in range(2):
        runs.over(all_verdicts(), "--cloudwatch", NAMESPACE, "--history=history.sqlite")
    assert output_of("New", Cluster="small") == [0]


def test_no_change_is_counted_without_a_readable_history(runs: Runs, service: Service) -> None:
    runs.checks(test_it=LIGHT)
    (runs.folder / "history.sqlite").write_text("no database " * 100)
    runs.over(all_verdicts(), "--cloudwatch", NAMESPACE, "--history=history.sqlite")
    assert output_of("Incomplete", Cluster="small") == [3]
    assert output_of("New", Cluster="small") == []


def test_nothing_is_sent_unasked_or_for_a_list_of_tests(runs: Runs, service: Service) -> None:
    runs.checks(test_it=LIGHT)
    runs.over(all_verdicts())
    runs.over(all_verdicts(), "--cloudwatch", NAMESPACE, "--collect-only")
    assert service.calls == []


def test_what_is_denied_costs_a_line_and_no_verdict(runs: Runs, service: Service) -> None:
    service.says("PutMetricData", DENIED)
    runs.checks(test_it=LIGHT)
    ran = runs.over(all_verdicts(), "--cloudwatch", NAMESPACE)
    assert (ran.ret, runs.verdicts) == (1, VERDICTS)
    ran.stdout.fnmatch_lines(
        ["warning: CloudWatch has no metrics of this run: cloudwatch:PutMetricData is not allowed*"]
    )


def test_without_a_region_a_line_says_what_is_missing(
    runs: Runs, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    runs.checks(test_it=LIGHT)
    ran = runs.over(all_verdicts(), "--cloudwatch", NAMESPACE)
    ran.stdout.fnmatch_lines(["warning: CloudWatch has no metrics of this run: no AWS region*"])


@pytest.mark.parametrize("name", ["", "AWS/EC2", "a b", ":x", "x" * 256, "ü"])
def test_a_namespace_that_cloudwatch_refuses_is_refused_before_the_run(runs: Runs, name: str) -> None:
    runs.checks(test_it=LIGHT)
    ran = runs.over(all_verdicts(), f"--cloudwatch={name}")
    assert ran.ret == 4
    assert "--cloudwatch is" in ran.stderr.str()


def test_a_pair_is_no_node() -> None:
    results = [
        Result("network.not_a_straggler", "gpu1", Verdict.PASS, subsystem="network"),
        Result("network.pairwise_busbw", "gpu1~gpu2", Verdict.FAIL, subsystem="network", subject=PAIR_SUBJECT),
    ]
    counts = {metric["MetricName"]: metric["Value"] for metric in metrics_of("hp", results, has_history=False)}
    assert (counts["NodesFit"], counts["NodesFailed"], counts["Failures"]) == (1, 0, 1)


def test_however_large_the_cluster_the_metrics_are_few_and_of_characters_that_aws_takes() -> None:
    results = [Result("a.b", f"n{number}", Verdict.FAIL, subsystem=f"s{number}\x00ü") for number in range(5_000)]
    metrics = metrics_of(":\n\ud800" * 500, results, has_history=True)
    assert len(metrics) == MAX_METRICS
    values = [dimension["Value"] for metric in metrics for dimension in metric["Dimensions"]]
    assert all(value.isascii() and value.isprintable() and len(value) <= 255 and value[0] != ":" for value in values)
