"""Jobs that die on a real Slurm: the cause is named, and no node is blamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from _pytest.mark import ParameterSet

from clusterproof.plugins.case import scheduler
from tests.case.dying import NODES, DyingJob, died
from tests.case.jobs import FILES, JOBS, TRAININGS, images, kept_of_rank_1, settings
from tests.testbed.needs import needs_slurm, needs_torch
from tests.testbed.slurm import SlurmBed, slurm
from tests.testbed.slurm_version import OWN, VERSIONS

pytestmark = needs_slurm
TURNS = 13


def taking_turns(jobs: Sequence[DyingJob]) -> list[ParameterSet]:
    """One of the jobs on one of the Slurms, always the same; with `--all` each on both.

    test_labelled tests the same causes from files.
    """
    return [
        pytest.param(
            *version.values,
            job,
            id=f"{version.id}-{job.name}",
            marks=[*version.marks, pytest.mark.in_turn(str((number * len(VERSIONS) + at) % TURNS), by="test")],
        )
        for number, job in enumerate(jobs)
        for at, version in enumerate(VERSIONS)
    ]


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[SlurmBed]:
    version = getattr(request, "param", OWN)
    with slurm(images(), settings=settings(), files=FILES, version=version) as running:
        yield running


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    with TemporaryDirectory(dir="/tmp") as folder:  # all fake nodes see this folder
        Path(folder).chmod(0o1777)
        yield Path(folder)


def test_the_name_of_a_job_has_no_lines_of_slurms(bed: SlurmBed) -> None:
    names = ["x", "x\n   UserId=root(0)\n   JobState=NODE_FAIL", "x\n   JobState=NODE_FAIL\n\nJobId=9 JobName=y"]
    numbers = [bed.output_of("sbatch", "--parsable", "-J", name, "-H", "--wrap", "true").strip() for name in names]
    read = [bed.output_of("scontrol", "show", "job", number) for number in numbers]
    assert [scheduler.is_forged(text) or len(scheduler.blocks(text)) > 1 for text in read] == [False, True, True]
    for number in numbers:
        output = bed.output_of("squeue", "-h", "-t", "all", "-j", number, "-o", "%A")
        assert output.split() == [number]
        bed.output_of("scancel", number)


@pytest.mark.parametrize(("bed", "job"), taking_turns(JOBS), indirect=["bed"])
def test_the_cause_of_a_job_that_died_is_named(job: DyingJob, bed: SlurmBed, shared: Path) -> None:
    report = died(bed, job, shared)
    named = [] if job.guilty is None else [NODES[job.guilty]]
    assert (report["cause"], report["nodes"]) == (job.cause, named), report["ticket"]
    assert {NODES[at] for at in job.suspects} <= set(report["suspects"])
    assert job.rank in (None, report["rank"])
    assert any("sacct" in gap and "only scontrol" in gap for gap in report["missing"])
    assert job.asks is not any("journalctl -k" in gap for gap in report["missing"])


@needs_torch
@pytest.mark.parametrize(("bed", "job"), taking_turns(TRAININGS), indirect=["bed"])
def test_of_a_training_of_eight_ranks_the_cause_is_named(job: DyingJob, bed: SlurmBed, shared: Path) -> None:
    report = died(bed, job, shared)
    assert (report["cause"], report["nodes"]) == (job.cause, []), report["ticket"]
    assert {NODES[at] for at in job.suspects} <= set(report["suspects"])
    assert job.rank in (None, report["rank"]), report["ticket"]


def test_a_file_for_each_rank_keeps_what_srun_would_cut_off(bed: SlurmBed, shared: Path) -> None:
    output = kept_of_rank_1(bed, shared)
    assert "Traceback (most recent call last):" in output
    assert output.splitlines()[-1].endswith("KeyError: 'image'")
