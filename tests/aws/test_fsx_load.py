"""How loaded FSx file systems are, as users see it: the verdicts, and a chart for each percentage on the page."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.aws.clusters import NAME
from tests.aws.fsx_runs import CHECKS, FULL, PASSED, THROUGHPUT, UTILIZATION, only, ran, verdicts
from tests.aws.service import Service
from tests.aws.storage import (
    OPENZFS_LIMITS,
    CloudWatch,
    dns_name,
    nodes_that_mount,
    openzfs,
    quiet_openzfs,
)
from tests.builders.runs import Runs


def test_a_quiet_lustre_file_system_passes(runs: Runs, system: str) -> None:
    results = ran(runs)
    assert verdicts(results) == PASSED
    assert {result.subject for result in results.values()} == {"file_system"}
    assert {result.node for result in results.values()} == {NAME}


def test_a_quiet_openzfs_file_system_passes(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = openzfs(service)
    quiet_openzfs(watch, name)
    nodes_that_mount(service, monkeypatch, ("nfs4", f"{dns_name(name)}:/fsx", "/home"))
    assert verdicts(ran(runs)) == PASSED


@pytest.mark.parametrize(
    ("state", "verdict", "message"),
    [
        ("AVAILABLE", Verdict.PASS, ""),
        ("UPDATING", Verdict.PASS, ""),
        ("FAILED", Verdict.FAIL, "FSx calls it FAILED; expected AVAILABLE"),
        ("MISCONFIGURED", Verdict.CONCERN, "FSx calls it MISCONFIGURED; expected AVAILABLE"),
    ],
)
def test_a_file_system_that_fsx_gives_up_is_said(
    runs: Runs, service: Service, system: str, state: str, verdict: Verdict, message: str
) -> None:
    before = service.changes["DescribeFileSystems"]

    def change(page: dict[str, Any]) -> None:
        before(page)
        page["FileSystems"][0]["Lifecycle"] = state

    service.rewrites("DescribeFileSystems", change)
    results = ran(runs)
    assert verdicts(results) == only(THROUGHPUT, verdict)
    assert message in results[THROUGHPUT].message


@pytest.mark.parametrize(
    ("load", "verdict", "left"), [(0.97, Verdict.FAIL, "7 MB/s"), (0.85, Verdict.CONCERN, "36 MB/s")]
)
def test_a_sustained_throughput_says_how_much_since_when_and_what_is_left(
    runs: Runs, watch: CloudWatch, system: str, load: float, verdict: Verdict, left: str
) -> None:
    watch.put(system, "DataReadBytes", "Sum", [0.0] * 60 + [load * FULL] * 20 + [0.0] * 100)
    watch.put(system, "DataWriteBytes", "Sum", [0.0] * 180)
    results = ran(runs)
    assert verdicts(results) == only(THROUGHPUT, verdict)
    message = results[THROUGHPUT].message
    assert message.startswith(f"/fsx ({system}): throughput at {load:.0%}".replace("%", " %"))
    assert "of the baseline of 240 MB/s, 20 of 20 minutes from 20" in message
    assert f" UTC, {left} left: the capacity is saturated; expected less than " in message
    assert results[THROUGHPUT].devices == (f"/fsx ({system})",)


def test_reads_and_writes_are_added(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [0.5 * FULL] * 180)
    watch.put(system, "DataWriteBytes", "Sum", [0.5 * FULL] * 180)
    assert verdicts(ran(runs)) == only(THROUGHPUT, Verdict.FAIL)


def test_a_throughput_above_the_baseline_is_that_of_bursts(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [3 * FULL] * 180)
    message = ran(runs)[THROUGHPUT].message
    assert "throughput at 304 % of the baseline of 240 MB/s, above it by bursts and cache" in message
    assert " 0 MB/s left" in message


def test_a_single_peak_is_no_sustained_load(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", ([0.0] * 15 + [5 * FULL] * 9) * 7 + [0.0] * 12)
    assert verdicts(ran(runs)) == PASSED


def test_missing_minutes_are_no_zeros(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [0.1 * FULL] * 100 + [None] * 20 + [0.1 * FULL] * 60)
    results = ran(runs)
    assert verdicts(results) == only(THROUGHPUT, Verdict.INCOMPLETE)
    assert "throughput reported for 160 of 180 minutes" in results[THROUGHPUT].message


def test_the_last_minutes_may_still_be_missing(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [0.1 * FULL] * 175 + [None] * 5)
    assert verdicts(ran(runs)) == PASSED


def test_a_load_that_is_seen_outranks_minutes_that_are_not(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [FULL] * 20 + [None] * 160)
    assert verdicts(ran(runs)) == only(THROUGHPUT, Verdict.FAIL)


@pytest.mark.parametrize(
    ("metric", "place", "message"),
    [
        ("NetworkThroughputUtilization", {"server": "OSS0001"}, "network throughput of OSS0001 at 97 %"),
        ("FileServerDiskThroughputUtilization", {"server": "OSS0001"}, "disk throughput of OSS0001 at 97 %"),
        ("DiskIopsUtilization", {"target": "OST0002"}, "disk IOPS of OST0002 at 97 %"),
        ("DiskIopsUtilization", {"target": "MDT0000"}, "metadata IOPS of MDT0000 at 97 %"),
        ("CPUUtilization", {"server": "MDS0000"}, "CPU of MDS0000 at 97 %"),
    ],
)
def test_one_saturated_server_or_target_of_lustre_is_enough(
    runs: Runs, watch: CloudWatch, system: str, metric: str, place: dict[str, str], message: str
) -> None:
    watch.put(system, metric, "Average", [0.0] * 150 + [97.0] * 30, **place)
    results = ran(runs)
    assert verdicts(results) == only(UTILIZATION, Verdict.FAIL)
    assert message in results[UTILIZATION].message
    assert ", 30 of 30 minutes from 20" in results[UTILIZATION].message
    assert " UTC, 3 % left: " in results[UTILIZATION].message


@pytest.mark.parametrize("metric", OPENZFS_LIMITS)
def test_each_limit_of_openzfs_is_looked_at(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    name = openzfs(service)
    quiet_openzfs(watch, name)
    watch.put(name, metric, "Average", [85.0] * 180)
    nodes_that_mount(service, monkeypatch, ("nfs4", f"{dns_name(name)}:/fsx", "/home"))
    assert verdicts(ran(runs)) == only(UTILIZATION, Verdict.CONCERN)


def test_a_saturated_disk_at_low_throughput_is_the_patterns_fault(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DiskIopsUtilization", "Average", [99.0] * 180, target="OST0001")
    message = ran(runs)[UTILIZATION].message
    assert "the pattern is inefficient, not the capacity too small, for the throughput is at 25 %" in message


def test_a_saturated_disk_at_high_throughput_is_want_of_capacity(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DiskIopsUtilization", "Average", [99.0] * 180, target="OST0001")
    watch.put(system, "DataReadBytes", "Sum", [0.7 * FULL] * 180)
    message = ran(runs)[UTILIZATION].message
    assert "the capacity is saturated, for the throughput is at 74 %" in message


def test_the_worst_of_many_targets_is_named_and_the_others_counted(runs: Runs, watch: CloudWatch, system: str) -> None:
    for number in range(4):
        watch.put(system, "DiskIopsUtilization", "Average", [95.0 + number] * 180, target=f"OST000{number}")
    assert "disk IOPS of OST0003 (and 3 more) at 98 %" in ran(runs)[UTILIZATION].message


def test_a_limit_that_cloudwatch_does_not_have_is_incomplete(runs: Runs, watch: CloudWatch, system: str) -> None:
    for server in ("OSS0000", "OSS0001"):
        del watch.data["NetworkThroughputUtilization", "Average", (("FileSystemId", system), ("FileServer", server))]
    results = ran(runs)
    assert verdicts(results) == only(UTILIZATION, Verdict.INCOMPLETE)
    assert "CloudWatch has no NetworkThroughputUtilization for it" in results[UTILIZATION].message


def test_a_target_with_too_few_datapoints_is_incomplete(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DiskIopsUtilization", "Average", [5.0] * 20, target="OST0001")
    results = ran(runs)
    assert verdicts(results) == only(UTILIZATION, Verdict.INCOMPLETE)
    assert "too few minutes of data for disk IOPS of OST0001" in results[UTILIZATION].message


def test_a_metric_that_cloudwatch_fails_to_return_is_incomplete(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.codes["DataWriteBytes"] = "InternalError"
    results = ran(runs)
    assert verdicts(results) == only(THROUGHPUT, Verdict.INCOMPLETE)
    assert "DataWriteBytes" in results[THROUGHPUT].message


def page(runs: Runs) -> str:
    """The page's section on file systems."""
    runs.run("--cluster", NAME, CHECKS, "--report", "out")
    text = (runs.folder / "out" / "report.html").read_text(encoding="utf-8")
    return text.partition('<section id="storage"')[2].partition("</section>")[0]


def test_each_percentage_is_a_chart_with_its_peak(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [0.1 * FULL] * 60 + [1.2 * FULL] * 20 + [0.1 * FULL] * 100)
    watch.put(system, "DataWriteBytes", "Sum", [0.0] * 180)
    html = page(runs)
    assert f"<h3>/fsx ({system})</h3>" in html
    assert re.findall(r"<figcaption>(.*?)</figcaption>", html) == [
        "throughput, of what it is made for: at most 120 %",
        "network throughput: at most 20 %",
        "disk throughput: at most 25 %",
        "disk IOPS: at most 5 %",
        "CPU: at most 7 %",
    ]
    assert [figure.count('class="line ') for figure in html.split("</figure>")] == [1, 2, 2, 5, 1, 0]
    assert "OST0003" in html


def test_a_chart_of_many_targets_says_how_many_it_draws_and_its_times_are_utc(
    runs: Runs, watch: CloudWatch, system: str
) -> None:
    for number in range(12):
        watch.put(system, "CPUUtilization", "Average", [7.0 + number] * 180, server=f"MDS{number:04}")
    html = page(runs)
    figure = html.rpartition("<figcaption>CPU, the 8 highest of 12: at most 18 %")[2].partition("</figure>")[0]
    assert figure.count('class="line ') == 8
    assert html.count(" UTC</span>") == 2 * html.count("</figure>")


def test_missing_minutes_are_gaps_and_no_zeros(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "CPUUtilization", "Average", [7.0] * 60 + [None] * 20 + [9.0] * 100, server="MDS0000")
    line = page(runs).rpartition("CPU: at most 9 %")[2].partition('class="line ')[2].partition("/>")[0]
    assert line.count("M") == 2
    assert "MDS0000" in page(runs)


def test_where_cloudwatch_returned_nothing_there_is_no_chart(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.data.clear()
    assert page(runs) == ""
    runs.run("--cluster", NAME, "--results", str(runs.results_file), CHECKS)
    assert {result.verdict for result in runs.results} == {Verdict.INCOMPLETE}
