"""What the page of a run shows of FSx: a chart for each percentage that CloudWatch returned."""

from __future__ import annotations

import re

from clusterproof.plugins.core.verdict import Verdict
from tests.aws.clusters import NAME
from tests.aws.fsx_runs import CHECKS, FULL
from tests.aws.storage import CloudWatch
from tests.builders.runs import Runs


def page(runs: Runs) -> str:
    """The section on file systems."""
    runs.run("--cluster", NAME, CHECKS, "--report", "out")
    text = (runs.folder / "out" / "report.html").read_text(encoding="utf-8")
    return text.partition('<section id="storage"')[2].partition("</section>")[0]


def test_each_percentage_is_a_chart_with_its_peak(runs: Runs, watch: CloudWatch, system: str) -> None:
    watch.put(system, "DataReadBytes", "Sum", [0.1 * FULL] * 60 + [1.2 * FULL] * 20 + [0.1 * FULL] * 100)
    watch.put(system, "DataWriteBytes", "Sum", [0.0] * 180)
    data = page(runs)
    assert f"<h3>/fsx ({system})</h3>" in data
    assert re.findall(r"<figcaption>(.*?)</figcaption>", data) == [
        "throughput, of what it is made for: at most 120 %",
        "network throughput: at most 20 %",
        "disk throughput: at most 25 %",
        "disk IOPS: at most 5 %",
        "CPU: at most 7 %",
    ]
    assert [figure.count('class="line ') for figure in data.split("</figure>")] == [1, 2, 2, 5, 1, 0]
    assert "OST0003" in data


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
