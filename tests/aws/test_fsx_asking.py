"""Queries to AWS for FSx file systems: which, denied, paged, for a window, recorded, redacted, by workers."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from clusterproof.plugins.aws.collectors import fsx
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from tests.aws.clusters import NAME, client
from tests.aws.fsx_runs import ALL, CAPACITY, CHECKS, FULL, PASSED, THROUGHPUT, UTILIZATION, only, ran, verdicts
from tests.aws.service import DENIED, Service
from tests.aws.storage import (
    LUSTRE_MOUNT,
    CloudWatch,
    lustre,
    nodes_that_mount,
    quiet_lustre,
)
from tests.builders.runs import Runs


@pytest.mark.parametrize(
    ("action", "name"),
    [
        ("DescribeFileSystems", "fsx:DescribeFileSystems"),
        ("ListMetrics", "cloudwatch:ListMetrics"),
        ("GetMetricData", "cloudwatch:GetMetricData"),
    ],
)
def test_a_denied_call_leaves_the_checks_incomplete_and_is_named(
    runs: Runs, service: Service, system: str, action: str, name: str
) -> None:
    service.says(action, DENIED)
    results = ran(runs)
    assert verdicts(results) == dict.fromkeys(ALL, Verdict.INCOMPLETE)
    assert all(f"{name} is not allowed to this identity" in result.message for result in results.values())


def test_file_systems_that_nobody_mounts_are_not_asked_for(
    runs: Runs, service: Service, watch: CloudWatch, system: str
) -> None:
    quiet_lustre(watch, lustre(service, "elsewher"))
    ran(runs)
    names = {
        entry["Value"]
        for request in watch.asked
        for query in request["MetricDataQueries"]
        for entry in query["MetricStat"]["Metric"]["Dimensions"]
        if entry["Name"] == "FileSystemId"
    }
    assert names == {system}


def test_file_systems_beyond_the_first_page_are_found(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(120):
        lustre(service, f"name{number:04d}")
    name = lustre(service)
    quiet_lustre(watch, name)
    nodes_that_mount(service, monkeypatch, LUSTRE_MOUNT)
    assert verdicts(ran(runs)) == PASSED
    assert service.calls.count("DescribeFileSystems") > 2


def test_more_metrics_than_one_call_takes_are_asked_for_in_several(runs: Runs, watch: CloudWatch, system: str) -> None:
    for number in range(520):
        watch.put(system, "DiskIopsUtilization", "Average", [5.0] * 20, target=f"OST{number:04d}")
    watch.put(system, "DiskIopsUtilization", "Average", [99.0] * 20, target="OST0519")
    for key, points in watch.data.items():
        watch.data[key] = points[-20:]
    results = ran(runs, "--fsx-window", "20m")
    assert verdicts(results) == only(UTILIZATION, Verdict.FAIL)
    assert "OST0519" in results[UTILIZATION].message
    assert {len(request["MetricDataQueries"]) for request in watch.asked} == {500, 31}


def test_the_window_is_the_one_that_is_asked_for(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [FULL] * 60 + [0.0] * 120)
    assert verdicts(ran(runs)) == only(THROUGHPUT, Verdict.FAIL)
    assert verdicts(ran(runs, "--fsx-window", "2h")) == PASSED


def test_more_points_than_can_be_kept_are_refused_in_one_line(
    runs: Runs, watch: CloudWatch, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsx, "MAX_POINTS", 1000)
    results = ran(runs)
    assert verdicts(results) == dict.fromkeys(ALL, Verdict.INCOMPLETE)
    assert "expected a shorter --fsx-window" in results[THROUGHPUT].message


@pytest.mark.parametrize("window", ["3", "h", "14m", "16d", "361h", "-3h", "3 h", "1.5h", "٣h", "9999999m"])
def test_a_window_that_makes_no_sense_is_one_clear_line(runs: Runs, service: Service, window: str) -> None:
    raw = runs.run("--cluster", NAME, f"--fsx-window={window}", CHECKS)
    assert raw.ret == 4
    raw.stderr.fnmatch_lines([f"ERROR: --fsx-window is '{window}'; expected from 15m to 15d, as 90m, 12h or 2d"])


def test_a_replay_gives_the_same_verdicts_without_aws(
    runs: Runs, service: Service, watch: CloudWatch, system: str, tmp_path: Path
) -> None:
    watch.put(system, "DataReadBytes", "Sum", [FULL] * 180)
    before = ran(runs, "--record", str(tmp_path / "recorded"))
    assert verdicts(before) == only(THROUGHPUT, Verdict.FAIL)
    service.calls.clear()
    runs.run("--cluster", f"replay:{tmp_path / 'recorded'}", "--results", str(runs.results_file), CHECKS)
    assert {result.check: result.message for result in runs.results} == {
        check: result.message for check, result in before.items()
    }
    assert service.calls == []


def test_redacted_evidence_gives_the_same_verdicts_without_the_names(
    runs: Runs, watch: CloudWatch, system: str, tmp_path: Path
) -> None:
    watch.put(system, "DataReadBytes", "Sum", [FULL] * 180)
    recorded = tmp_path / "recorded"
    results = ran(runs, "--redact", "--record", str(recorded))
    assert verdicts(results) == only(THROUGHPUT, Verdict.FAIL)
    raw = "".join(file.read_text() for file in [*recorded.rglob("*.json"), runs.results_file])
    assert '"collectors"' in raw
    assert [name for name in (system, "oyuutbev", "10.1.71.197") if name in raw] == []


def test_workers_of_xdist_evaluate_what_the_controller_asked(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [FULL] * 180)
    assert verdicts(ran(runs, "-n2")) == only(THROUGHPUT, Verdict.FAIL)


def test_motos_own_cloudwatch_is_understood(runs: Runs, service: Service, watch: CloudWatch, system: str) -> None:
    end = datetime.now(timezone.utc).replace(second=0, microsecond=0) + timedelta(minutes=2)
    own = [{"Name": "FileSystemId", "Value": system}]
    cloudwatch = client(service, "cloudwatch")
    for metric, value in (("DataReadBytes", 0.9 * FULL), ("DataWriteBytes", 0.01 * FULL)):
        points = [
            {"MetricName": metric, "Dimensions": own, "Timestamp": end - timedelta(minutes=ago), "Value": value}
            for ago in range(25)
        ]
        cloudwatch.put_metric_data(Namespace="AWS/FSx", MetricData=points)
    del service.served["ListMetrics"], service.served["GetMetricData"]
    results = ran(runs, "--fsx-window", "20m")
    assert verdicts(results) == {
        THROUGHPUT: Verdict.CONCERN,
        UTILIZATION: Verdict.INCOMPLETE,
        CAPACITY: Verdict.INCOMPLETE,
    }
    assert "throughput at 91 %" in results[THROUGHPUT].message


def test_the_checks_ask_nodes_for_their_mounts_and_aws_for_file_systems_and_metrics() -> None:
    checks = [check for check in all_checks().values() if check.subject == "file_system"]
    for check in checks:
        assert "mounts" in check.collectors <= {"mounts", "platform", "imds", "pci"}  # three may show a node's type
        assert check.control_collectors == {"fsx", "fsx_metrics"}
