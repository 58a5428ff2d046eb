"""Dates without a year: neither a job's words nor the first line of a log say it, and a job may run across two."""

from __future__ import annotations

from pathlib import Path

from clusterproof.plugins.case.report import rows
from tests.case.files import BROKEN_GPU, RECORD, XID_79, case_of


def test_a_jobs_words_do_not_say_of_which_year_a_log_is(tmp_path: Path) -> None:
    log = f"Mar  1 08:00:01 gpu003 kernel: {XID_79.partition(' ')[2]}"
    old = "dataset snapshot 2019-01-01 00:00:00\n"
    files = {**BROKEN_GPU, "gpu003-dmesg.txt": log, "a.out": old, "job.log": old}
    assert case_of(tmp_path, files).verdict.nodes == ("gpu003",)


GLOG = "[E{day} {time}.000000 12 x.cpp:1] [rank{rank}]: {words}\n"
OLD = "2025-10-01T07:30:00,000000+00:00 eth0: link becomes ready\n"


def test_a_log_that_begins_in_another_year_does_not_say_in_which_the_job_ran(tmp_path: Path) -> None:
    ended = GLOG.format(day="0301", time="08:00:02", rank=3, words="CUDA error: unspecified launch failure")
    files = {**RECORD, "gpu003-dmesg.txt": OLD + XID_79.format(time="08:00:01"), "rank_3.log": ended}
    assert case_of(tmp_path, files).verdict.nodes == ("gpu003",)
    assert case_of(tmp_path / "without", {**files, "sacct.txt": ""}).verdict.nodes == ("gpu003",)


def test_what_comes_first_at_the_end_of_a_year_is_first(tmp_path: Path) -> None:
    record = RECORD["sacct.txt"].replace("2026-03-01T07", "2025-12-31T23").replace("2026-03-01T08", "2026-01-01T00")
    files = {
        "sacct.txt": record,
        "rank_0.log": GLOG.format(
            day="0101", time="00:00:10", rank=0, words="OSError: [Errno 28] No space left on device"
        ),
        "rank_1.log": GLOG.format(day="1231", time="23:59:40", rank=1, words="KeyError: 'image'"),
        "gpu002-dmesg.txt": f"Dec 31 23:30:00 gpu002 kernel: {XID_79.partition(' ')[2]}",
    }
    case = case_of(tmp_path, files)
    assert (case.verdict.cause, case.verdict.rank) == ("code", 1)
    assert [row.where for row in rows(case)] == ["gpu002", "rank 1", "rank 0"]
