"""A case as people read it: days and years of events, Markdown that names its parts, and wording without a cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.case import Collected, Job, Lead
from clusterproof.plugins.case.advice import opened_case
from clusterproof.plugins.case.command import case as case_command
from clusterproof.plugins.case.report import markdown, paragraph, text
from tests.case.files import BROKEN_GPU, SACCT, STEPS, XID_79, case_of, written

RECORD = {"sacct.txt": SACCT.format(state="FAILED")}
OF_RANK_0 = "2026-03-01 08:00:00,000 KeyError: 'image'\n"
OF_RANK_1 = "{day} 23:59:58,000 KeyError: 'label'\n"


@pytest.mark.parametrize(
    ("files", "times"),
    [
        ({"rank_0.log": OF_RANK_0}, ["08:00:00"]),
        (
            {"rank_0.log": OF_RANK_0, "rank_1.log": OF_RANK_1.format(day="2026-02-28")},
            ["02-28 23:59:58", "03-01 08:00:00"],
        ),
        (
            {"rank_0.log": OF_RANK_0, "rank_1.log": OF_RANK_1.format(day="2025-03-01")},
            ["2025-03-01 23:59:58", "2026-03-01 08:00:00"],
        ),
    ],
)
def test_events_of_several_days_or_years_have_theirs(tmp_path: Path, files: dict[str, str], times: list[str]) -> None:
    page = text(case_of(tmp_path, {**RECORD, **files}))
    events = page.partition("Order of events")[2].partition("Clocks of nodes")[0].splitlines()
    assert [line[2:].partition(" rank ")[0].strip() for line in events if " rank " in line] == times


def test_markdown_says_what_marks_mean_that_no_command_ran_and_what_was_not_read(tmp_path: Path) -> None:
    page = markdown(case_of(tmp_path, BROKEN_GPU))
    assert r"Order of events: \> first, \~ the end of others" in page
    assert "\n\nTo copy; nothing of it was done:\n\n    clusterproof check" in page
    assert "\n\nNot there, or not read:\n\n- no kernel log of" in page


HEALTH = "2026-03-01T07:59:51,000000+00:00 mlx5_core 0000:5e:00.0: device's health compromised - reached miss count\n"
OOM = (
    "[2612362.240000] Memory cgroup out of memory: Kill process 208253 (python) score 1829 or sacrifice child\n"
    "[2612362.240100] Killed process 208253 (python) total-vm:60000000kB, anon-rss:8000000kB, file-rss:0kB\n"
)
RECORD_OF_SLURM = {"sacct.txt": SACCT.format(state="FAILED")}


def test_a_node_whose_adapter_failed_is_named_and_tested_where_the_job_says_nothing(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"rank_0.log": STEPS, "gpu003-dmesg.txt": HEALTH, **RECORD_OF_SLURM})
    assert "the job says nothing of its end; gpu003 says mlx5 health lost" in case.verdict.why
    assert case.advice.nodes["gpu003"] == "test"
    assert any("gpu003" in command for command in case.advice.commands)


def test_a_kill_for_want_of_memory_is_named_and_blames_no_node(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"rank_0.log": STEPS, "gpu003-dmesg.txt": OOM, **RECORD_OF_SLURM})
    assert "gpu003 says killed python (pid 208253) at a limit of memory" in case.verdict.why
    assert case.advice.nodes["gpu003"] == "keep"


@pytest.mark.parametrize(
    "line",
    [
        "ncclInternalError: Internal check failed.",
        "Task 0 heartbeat timeout. This indicates that the remote task",
    ],
)
def test_of_one_process_it_is_not_said_that_others_ended(line: str, tmp_path: Path) -> None:
    why = case_of(tmp_path, {"train.log": f"{line}\n"}).verdict.why
    assert why == "all that was read is of one process, which says it where others end and for other reasons"


def test_of_a_launcher_nobody_knows_whose_words_they_are(tmp_path: Path) -> None:
    why = case_of(tmp_path, {"slurm-77.out": "srun: Job step aborted\n"}).verdict.why
    assert why == "all that was read is the end of others; nothing says who ended first"


def test_how_srun_loses_words_is_said_only_of_jobs_of_slurm(tmp_path: Path) -> None:
    cut = {"train.log": "Traceback (most recent call last):\n"}
    assert "srun" not in case_of(tmp_path / "other", cut).verdict.why
    of_slurm = case_of(tmp_path / "slurm", {**cut, **RECORD_OF_SLURM}).verdict.why
    assert of_slurm.endswith("srun --error=task-%t.err keeps what a rank says last")


def test_the_ranks_of_determined_are_read(tmp_path: Path) -> None:
    line = "[2026-03-01T08:00:00.705869Z] fa88a9df [rank=2] || RuntimeError: CUDA out of memory.\n"
    assert case_of(tmp_path, {"trial.log": line}).collected.events[0].rank == 2


def test_nodes_on_which_srun_could_not_start_a_step_are_tested(tmp_path: Path) -> None:
    output = "srun: error: Task launch for StepId=77.0 failed on node gpu002: Socket timed out on send/recv operation\n"
    case = case_of(tmp_path, {"slurm-77.out": output, **RECORD_OF_SLURM})
    assert (case.verdict.cause, case.verdict.suspects) == ("unknown", ("gpu002",))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("KeyError: 'caption'", "code"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/x'", "code"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", "code"),
        ("bash: line 3: torchrun: command not found", "code"),
        ("OSError: [Errno 28] No space left on device: '/ckpt/s.pt'", "storage"),
        ("OSError: [Errno 5] Input/output error: '/mnt/nfs/part-3'", "storage"),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: /ckpt/s.pt", "storage"),
    ],
)
def test_which_file_or_exception_it_was_is_said(line: str, cause: str, tmp_path: Path) -> None:
    verdict = case_of(tmp_path, {"rank_0.log": f"{line}\n"}).verdict
    assert verdict.cause == cause
    assert verdict.why.endswith(line)


def test_shared_memory_of_an_earlier_run_is_no_fault_of_the_code(tmp_path: Path) -> None:
    line = "ValueError: Reused local directory: ['/x/train'] vs ['/x/train']. Provide a different one."
    case = case_of(tmp_path, {"train.log": f"{line}\n"})
    assert (case.verdict.cause, case.advice.restart) == ("resources", "after")
    assert "clean_stale_shared_memory" in case.verdict.why


def test_ranks_that_the_ticket_does_not_name_are_counted() -> None:
    leads = tuple(Lead(rank, f"did not come to step {rank}", "") for rank in range(9))
    assert "And 3 more remarks like this: --json has them." in paragraph(
        opened_case(Collected("x", Job(), leads=leads))
    )


def test_a_node_is_blamed_in_no_other_job_and_each_that_is_to_be_tested_has_its_line(tmp_path: Path) -> None:
    raised = {"rank_3.log": STEPS + "2026-03-01 08:00:00,000 KeyError: 'a'\n", "sacct.txt": BROKEN_GPU["sacct.txt"]}
    broke = XID_79.format(time="08:20:00")
    for name, files in (
        ("77", BROKEN_GPU),
        ("78", {**raised, "gpu003-dmesg.txt": broke}),
        ("79", {**raised, "gpu001-dmesg.txt": broke}),
    ):
        written(tmp_path / name, {**files, "sacct.txt": files["sacct.txt"].replace("77", name)})
    _, output = case_command([str(tmp_path), "--since", "2026-02-20"])
    assert "blamed in 77; to test for 78" in output
    assert "gpu001             to test for 79" in output
