"""`clusterproof case --since 7d`: every job that died in a period, by cause and by node, beside published figures."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.case import CaseError
from clusterproof.plugins.case.command import case
from clusterproof.plugins.case.period import numbers_of, of_slurm, since
from clusterproof.plugins.case.period_report import as_record, text
from clusterproof.plugins.catalog.causes import CAUSES, published
from tests.case.all_jobs import NOW, Named, Slurm, row
from tests.case.files import BROKEN_GPU, CUDA_OF_3, STEPS, written

DIED = (
    row("70", "COMPLETED"),
    row("71", "FAILED"),
    row("72", "TIMEOUT", gpus=8),
    row("73", "CANCELLED by 1000", hour=8),
    row("74", "RUNNING"),
)


@pytest.mark.parametrize("is_accounted", [True, False])
def test_jobs_that_died_are_told_from_those_that_completed_or_run(is_accounted: bool) -> None:
    summary = of_slurm(NOW - 7 * 86_400, NOW, None, 0.0, Slurm(DIED, is_accounted))
    assert [(job.number, job.cause) for job in summary.died] == [
        ("73", "stopped"),
        ("71", "unknown"),
        ("72", "stopped"),
    ]
    assert (summary.ended, summary.gpu_hours, summary.died_gpu_hours) == (4, 32 + 32 + 16 + 16, 64)


def test_a_job_that_ended_in_this_second_has_ended() -> None:
    ended = of_slurm(NOW - 7 * 86_400, NOW, None, 0.0, Slurm((row("71"),))).died[0].case.collected.job.ran.ends or 0.0
    assert of_slurm(NOW - 7 * 86_400, ended - 0.5, None, 0.0, Slurm((row("71"),))).ended == 1
    assert of_slurm(NOW - 7 * 86_400, ended - 1.5, None, 0.0, Slurm((row("71"),))).ended == 0


def test_what_ended_before_that_time_is_left_out() -> None:
    assert of_slurm(NOW - 3600, NOW, None, 0.0, Slurm(DIED, is_accounted=False)).ended == 0


def test_without_accounting_it_is_said_how_far_back_slurm_remembers() -> None:
    summary = of_slurm(NOW - 7 * 86_400, NOW, None, 0.0, Slurm(DIED, is_accounted=False))
    assert any("MinJobAge" in gap and "accounting storage is disabled" in gap for gap in summary.missing)


def test_a_slurm_that_answers_nothing_is_no_week_without_deaths() -> None:
    with pytest.raises(CaseError, match=r"no job can be listed: sacct: .*; scontrol: Unable to contact"):
        of_slurm(NOW - 3600, NOW, None, 0.0, lambda _: (1, "Unable to contact slurm controller\n"))


FORGED = "   UserId=root(0)\n   JobState=NODE_FAIL ExitCode=0:1\n   EndTime=2026-03-01T09:00:00\n   NodeList=gpu007\n"
FORGED_OF_OTHERS = ("JobId=72 JobName=y\n", "JobId=99 JobName=y\n", "JobId=71 JobName=y\n", "")


@pytest.mark.parametrize("head", FORGED_OF_OTHERS)
def test_a_name_with_a_record_in_it_is_no_job_that_died(head: str) -> None:
    summary = of_slurm(NOW - 7 * 86_400, NOW, None, 0.0, Named((row("71"), row("72"), row("73")), head + FORGED))
    assert "gpu007" not in json.dumps(as_record(summary))
    assert [job.number for job in summary.died if job.number not in ("72", "71")] == ["73"]
    assert any(
        gap.startswith("job 71: what the owner of the job wrote has lines like Slurm's") for gap in summary.missing
    )


def test_each_of_many_jobs_costs_one_process() -> None:
    slurm = Slurm([row(str(number)) for number in range(100, 130)])
    summary = of_slurm(0.0, NOW, None, 0.0, slurm)
    assert len(summary.died) == 30
    assert [command[0] for command in slurm.asked] == ["sacct", "sacct", "sinfo", *["scontrol"] * 30]


def test_a_record_of_others_among_the_logs_ends_no_page(tmp_path: Path) -> None:
    tasks = "".join(f"71_{task}|FAILED|1:0|2026-03-01T07:00:00|2026-03-01T09:00:00|gpu001\n" for task in (1, 2))
    logs = {"71/sacct.txt": f"JobID|State|ExitCode|Start|End|NodeList\n{tasks}"}
    summary = of_slurm(0.0, NOW, written(tmp_path, logs), 0.0, Slurm((row("71"), row("72"))))
    assert [job.number for job in summary.died] == ["71", "72"]
    assert any("job 71 is an array" in gap for gap in summary.missing)


def test_a_job_that_slurm_forgot_a_moment_ago_still_died() -> None:
    summary = of_slurm(NOW - 7 * 86_400, NOW, None, 0.0, Named((row("71"), row("73", "TIMEOUT")), ""))
    assert [job.number for job in summary.died] == ["71", "73"]
    assert any("Slurm knows no job 73" in gap for gap in summary.missing)


def test_a_job_whose_gpus_slurm_does_not_count_has_hours_of_its_nodes_alone() -> None:
    rows = (row("77").replace(",gres/gpu=16", ""),)
    summary = of_slurm(0.0, NOW, None, 0.0, Slurm(rows))
    assert (summary.died[0].gpu_hours, summary.died_gpu_hours) == (None, 0)
    assert any(gap.startswith("the GPU hours of 1 job, whose") for gap in summary.missing)


def test_logs_are_read_for_the_job_whose_number_or_nodes_they_have(tmp_path: Path) -> None:
    logs = {
        "slurm-71.out": "KeyError: 'image'\n",
        "out/72/rank_0.log": "torch.OutOfMemoryError: CUDA out of memory.\n",
        "slurm-771.out": "Disk quota exceeded\n",
        "gpu009-dmesg.txt": BROKEN_GPU["gpu003-dmesg.txt"],
    }
    rows = (row("71"), row("72"), row("73"))
    summary = of_slurm(0.0, NOW, written(tmp_path, logs), 0.0, Slurm(rows))
    assert [job.cause for job in summary.died] == ["code", "resources", "unknown"]
    assert not any("gpu009" in gap for gap in summary.missing)


@pytest.mark.parametrize(
    ("path", "numbers"),
    [
        ("slurm-71.out", {"71"}),
        ("runs/slurm-71.err.1", {"71"}),
        ("job-71/rank_3.log", {"71"}),
        ("train.job_71.log", {"71"}),
        ("71/rank_3.log", {"71"}),
        ("71/3.log", {"71"}),  # rank 3's
        ("71/3/out.log", {"71"}),
        ("slurm-71/9999.log", {"71"}),
        ("71.out", {"71"}),
        ("71.out.txt", {"71"}),
        ("71", {"71"}),
        ("71_3.out", {"71_3"}),
        ("slurm-71_3.out", {"71_3"}),
        ("job_71/71_3.log", {"71", "71_3"}),
        ("2026-11-27/slurm-4711.out", {"4711"}),
        ("2026/11/27/4711/rank_3.log", {"4711"}),
        ("2026/4711/rank_3.log", {"4711"}),
        ("20261127/4711/3.log", {"4711"}),
        ("20261127/rank_3.log", {"20261127"}),  # Slurm may have used that number
        ("2026/3.log", {"2026"}),
        ("20261127/3.log", {"20261127"}),
        ("12345/1764250000.log", {"12345"}),  # a time
        ("12345/98765.log", {"12345"}),  # a process id, as of NCCL
        ("1002/slurm-71.out", {"71"}),  # under a user's number
        ("rank_3.log", set()),
        ("task-3.out", set()),
        ("node3/rank_3.log", set()),
        ("gpu003-dmesg.txt", set()),
        ("2026-11-27/train.log", set()),
        ("2026/11/27/train.log", set()),
        ("2026/11/train.log", set()),
        ("2026-11-27.log", set()),
        ("slurm-2026-11-27.out", set()),
        ("job_2026_11_27/rank_3.log", set()),
        ("2026.11.27.log", set()),
        ("train-71.out", set()),
        ("myjob-71.out", set()),
        ("slurm-71x.out", set()),
        ("slurm-٧١.out", set()),
        ("r-71/x.log", set()),
    ],
)
def test_a_file_is_of_the_job_that_it_or_its_folder_is_named_after(path: str, numbers: set[str]) -> None:
    assert numbers_of(path) == numbers


def test_a_job_with_a_small_number_has_no_rank_of_another(tmp_path: Path) -> None:
    logs = {f"120/rank_{rank}.log": "KeyError: 'image'\n" if rank == 3 else STEPS for rank in range(4)}
    logs["2026-11-27/slurm-4711.out"] = "torch.OutOfMemoryError: CUDA out of memory.\n"
    rows = (row("3"), row("27"), row("120"), row("4711"))
    summary = of_slurm(0.0, NOW, written(tmp_path, logs), 0.0, Slurm(rows))
    assert {job.number: job.cause for job in summary.died} == {
        "3": "unknown",
        "27": "unknown",
        "120": "code",
        "4711": "resources",
    }


def test_a_folder_of_logs_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[object] = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda *arguments, **more: walked.append(arguments) or walk(*arguments, **more))
    logs = written(tmp_path, {"slurm-71.out": "KeyError: 'image'\n", ".hidden": ""})
    summary = of_slurm(0.0, NOW, logs, 0.0, Slurm((row("71"), row("72"))))
    assert [job.cause for job in summary.died] == ["code", "unknown"]
    assert len(walked) == 1
    assert [gap for gap in summary.missing if "begin with a dot" in gap] == [
        "names that begin with a dot are not read: .hidden"
    ]


def test_the_output_that_each_record_names_is_read(tmp_path: Path) -> None:
    out = tmp_path / "any.txt"
    out.write_text("KeyError: 'image'\n")
    summary = of_slurm(0.0, NOW, None, 0.0, Slurm((row("71"),), False, {"71": out}))
    assert summary.died[0].cause == "code"


def week(folder: Path) -> Path:
    """A folder of three cases: two blame one node, one the code."""
    again = {**BROKEN_GPU, "sacct.txt": BROKEN_GPU["sacct.txt"].replace("77", "78")}
    code = {"rank_3.log": STEPS + CUDA_OF_3.replace("CUDA error: unspecified launch failure", "x\nKeyError: 'a'")}
    for name, files in (("77", BROKEN_GPU), ("78", again), ("79", code)):
        written(folder / name, files)
    return folder


def test_a_folder_of_cases_is_summed(tmp_path: Path) -> None:
    status, output = case([str(week(tmp_path)), "--since", "2026-02-20", "--json"])
    summary = json.loads(output)
    assert (status, summary["died"]) == (0, 3)
    assert {entry["cause"]: entry["jobs"] for entry in summary["causes"] if entry["jobs"]} == {"hardware": 2, "code": 1}
    assert [(entry["node"], entry["blamed"], entry["jobs"]) for entry in summary["nodes"]] == [
        ("gpu003", 2, ["77", "78"])
    ]


def test_of_a_folder_what_is_older_is_left_out_and_what_has_no_time_is_said(tmp_path: Path) -> None:
    begin = since("2026-03-01T09:00Z", NOW)
    assert begin == 1_772_355_600.0
    status, output = case([str(week(tmp_path)), "--since", "2026-03-05"])
    assert status == 0
    assert "of 1 job that ended, 1 died" in output
    assert "79: no record says when it ended" in output.replace("\n  ", " ")


def test_the_page_fits_a_terminal_and_has_the_shares_of_others(tmp_path: Path) -> None:
    _, output = case([str(week(tmp_path)), "--since", "2026-02-20"])
    assert [line for line in output.splitlines() if len(line) > 80] == []
    lines = {line.split()[0]: line.split() for line in output.splitlines() if line.split()[:1] and line[0] != " "}
    assert lines["hardware"][1:3] == ["2", "67%"]
    assert "67%" in lines["hardware"][3:]  # of Llama 3's 419 interruptions
    assert "blamed in 77, 78" in output
    assert "Acme" in output


def test_names_of_folders_reach_a_page_harmless(tmp_path: Path) -> None:
    written(tmp_path / "a\x1b[31m\n# x", {"rank_3.log": "KeyError: 'a'\n"})
    for form in ([], ["--markdown"], ["--json"]):
        _, output = case([str(tmp_path), "--since", "2026-02-20", *form])
        assert "\x1b" not in output
        assert "\n# x" not in output


def test_all_of_a_page_is_code_to_markdown(tmp_path: Path) -> None:
    _, output = case([str(week(tmp_path)), "--since", "2026-02-20", "--markdown"])
    assert [line for line in output.split("\n") if line and not line.startswith("    ")] == []


def test_a_time_without_a_zone_is_of_the_zone_that_is_asked_for() -> None:
    east = 2 * 3600.0
    assert since("2026-03-01T09:00", NOW, east) == since("2026-03-01T07:00Z", NOW, east)
    assert since("2026-03-01", NOW, east) == since("2026-02-28T22:00+00:00", NOW)
    assert since("7d", NOW, east) == NOW - 7 * 86_400


def test_published_shares_are_of_our_causes_and_of_no_more_than_all() -> None:
    for source in published().values():
        assert set(source.shares) <= set(CAUSES)
        assert 0.5 < sum(source.shares.values()) <= 1.0
    assert round(published()["llama3"].shares["unknown"], 3) == round(7 / 419, 3)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--since", "7x"], "--since is '7x'; expected"),
        (["--since", "boot"], "--since is 'boot'; expected"),
        (["4711", "--since", "7d"], "a job ID and --since"),
        ([], "expected a Slurm job ID"),
        (["--since", "9999-01-01"], "--since is '9999-01-01'; expected a time between 1970 and now"),
        (["--since", "999999999d"], "--since is '999999999d'; expected a time between 1970 and now"),
        (["--since", "7d", "--logs", "/no/such/folder"], "is not a folder"),
        (["--since", "7d", "--redact"], "--redact is for one job"),
        (["/no/such/folder", "--since", "7d"], "is not a folder"),
    ],
)
def test_mistakes_are_one_line(words: list[str], expected: str) -> None:
    status, output = case(words)
    assert status == 4
    assert expected in output
    assert output.count("\n") == 1


def test_programs_get_each_case_whole() -> None:
    summary = of_slurm(0.0, NOW, None, 0.0, Slurm(DIED))
    record = as_record(summary)
    assert [entry["job"]["number"] for entry in record["cases"]] == ["73", "71", "72"]
    assert record["died_gpu_hours"] == 64
    assert text(summary)


def test_a_node_that_went_down_after_a_job_is_no_suspect_of_it() -> None:
    def answering(command: Sequence[str]) -> tuple[int, str]:
        if command[0] == "sinfo":
            return 0, "gpu001|down*|2026-03-01T20:00:00|Not responding\n"
        return Slurm((row("71"),))(command)

    (job,) = of_slurm(0.0, NOW, None, 0.0, answering).died
    assert job.case.verdict.suspects == ()
