"""Which jobs ended in a period, how, and on how many GPUs, from sacct or scontrol alone, whose output has job names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.case import CaseError, period
from clusterproof.plugins.case.ended_jobs import ended_jobs
from clusterproof.plugins.case.period import of_slurm
from tests.case.all_jobs import NOW, Named, Slurm, row
from tests.case.files import case_of

COUNTED = "   TRES=cpu=2,gres/gpu=9999999\n"


def test_a_job_of_several_components_is_one() -> None:
    rows = (row("77+0", gpus=8), row("77+1", gpus=8, nodes="gpu[003-004]"))
    (entry,), _ = ended_jobs(0.0, NOW, Slurm(rows))
    assert (entry.job.number, entry.gpus, entry.job.nodes) == ("77", 16, ("gpu001", "gpu002", "gpu003", "gpu004"))


def test_gpus_of_a_type_are_counted_once() -> None:
    typed = row("77").replace("gres/gpu=16", "gres/gpu=16,gres/gpu:h100=16")
    (entry,), _ = ended_jobs(0.0, NOW, Slurm((typed,)))
    assert entry.gpus == 16


@pytest.mark.parametrize(("name", "gpus"), [("x TRES=gres/gpu=9999999", 16), (COUNTED, None)])
def test_a_name_with_gpus_in_it_adds_none(name: str, gpus: int | None) -> None:
    (entry,), _ = ended_jobs(0.0, NOW, Named((row("71"),), name))
    assert entry.gpus == gpus


def test_of_a_job_that_squeue_did_not_yet_have_nothing_is_said() -> None:
    slurm = Slurm((row("71"), row("72", "RUNNING")), is_accounted=False)
    ended, missing = ended_jobs(0.0, NOW, lambda command: (0, "71\n") if command[0] == "squeue" else slurm(command))
    assert [entry.job.number for entry in ended] == ["71"]
    assert not any("72" in gap for gap in missing)


def test_jobs_that_nobody_counts_are_not_believed() -> None:
    slurm = Slurm((row("71"),), is_accounted=False)
    with pytest.raises(CaseError, match="squeue: Unable to contact"):
        ended_jobs(0.0, NOW, lambda command: (1, "Unable to contact\n") if command[0] == "squeue" else slurm(command))


@pytest.mark.parametrize("began", ["Unknown", "2026-03-01T09:00:00"])
def test_what_never_had_a_node_or_still_completes_has_not_died(began: str) -> None:
    queued = f"72|CANCELLED by 1000|0:0|{began}|2026-03-01T09:00:00|None assigned|"
    ended, missing = ended_jobs(0.0, NOW, Slurm((row("71", "COMPLETING", code="0:0"), queued, row("73"))))
    assert [entry.job.number for entry in ended] == ["73"]
    assert missing == ["1 job that ended before it had a node"]


STEPS_OF_JOB = (
    "JobID|State|ExitCode|Start|End|NodeList\n"
    "77|{job}|1:0|2026-03-01T07:00:00|2026-03-01T08:10:30|gpu[001-004]\n"
    "77.batch|FAILED|1:0|2026-03-01T07:00:00|2026-03-01T08:10:30|gpu001\n"
    "{step}|OUT_OF_MEMORY|0:125|2026-03-01T07:00:00|2026-03-01T{end}|gpu[001-004]\n"
)


@pytest.mark.parametrize(
    ("job", "step", "end", "cause"),
    [
        ("FAILED", "77.0", "08:10:20", "resources"),
        ("FAILED", "77.0", "07:10:20", "unknown"),  # an earlier one of several
        ("FAILED", "77.extern", "08:10:30", "unknown"),
        ("FAILED", "78.0", "08:10:20", "unknown"),
        ("TIMEOUT", "77.0", "08:10:30", "stopped"),
        ("CANCELLED by 1000", "77.0", "08:10:30", "stopped"),
    ],
)
def test_a_step_killed_at_its_memory_limit_says_why_the_job_failed(
    job: str, step: str, end: str, cause: str, tmp_path: Path
) -> None:
    record = STEPS_OF_JOB.format(job=job, step=step, end=end)
    assert case_of(tmp_path, {"sacct.txt": record}).verdict.cause == cause


def test_the_steps_and_nodes_of_a_job_count_in_a_period_as_they_do_alone() -> None:
    class Drained(Slurm):
        def __call__(self, command: Sequence[str]) -> tuple[int, str]:
            rows = "gpu001|drained|2026-03-01T09:00:00|Prolog error\ngpu002|idle|Unknown|none\n"
            return (0, rows) if command[0] == "sinfo" else super().__call__(command)

    slurm = Drained((row("71"), row("72", "CANCELLED"), row("73")))
    slurm.steps = (row("71.0", "OUT_OF_MEMORY", hour=9), row("73.0", "FAILED", hour=9))
    causes = {job.number: job.cause for job in of_slurm(0.0, NOW, None, 0.0, slurm).died}
    assert causes == {"71": "resources", "72": "unknown", "73": "unknown"}


def test_slurm_is_asked_for_steps_of_the_jobs_that_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(period, "MAX_CASES", 1)
    slurm = Slurm((row("71"), row("72")))
    assert [job.number for job in of_slurm(0.0, NOW, None, 0.0, slurm).died] == ["72"]
    assert [command[2] for command in slurm.asked if "-j" in command and command[0] == "sacct"] == ["72"]
