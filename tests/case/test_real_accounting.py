"""`clusterproof case --since` on a real Slurm with accounting: jobs that slurmctld has long forgotten."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.builders.wheel import ROOT
from tests.case.dying import ENDED_S, died
from tests.case.jobs import FILES, JOBS, images, settings
from tests.testbed.needs import needs_accounting
from tests.testbed.slurm import SlurmBed, slurm

pytestmark = needs_accounting
RUN = ("exception", "memory", "killed", "cancelled")  # of JOBS


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    with TemporaryDirectory(dir="/tmp") as folder:  # all fake nodes see this folder
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def bed(shared: Path) -> Iterator[SlurmBed]:
    lines = (*settings(), "MinJobAge=2")
    with slurm(images(), settings=lines, files=FILES, is_accounted=True) as running:
        for job in JOBS:
            if job.name in RUN:
                died(running, job, shared)
        running.output_of("srun", "-N3", "--gpus-per-node=2", "sleep", "2")
        until = time.monotonic() + ENDED_S
        while "COMPLETED" not in running.output_of("sacct", "-a", "-X", "-n", "-o", "State"):
            assert time.monotonic() < until
            time.sleep(0.2)
        yield running


def report_of(bed: SlurmBed, *arguments: str) -> dict[str, Any]:
    code = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main(sys.argv[1:]))"
    quoted = " ".join(f"'{word}'" for word in arguments)
    command = f"cd {ROOT} && exec {sys.executable} -c '{code}' case {quoted} --json"
    report: dict[str, Any] = json.loads(bed.output_of("sh", "-c", command))
    return report


def test_jobs_of_the_accounting_are_summed_by_their_causes(bed: SlurmBed) -> None:
    summary = report_of(bed, "--since", "1h")
    causes = {row["cause"]: row["jobs"] for row in summary["causes"] if row["jobs"]}
    assert (summary["ended"], summary["died"]) == (len(RUN) + 1, len(RUN)), summary["missing"]
    assert causes["stopped"] == 1
    assert summary["gpu_hours"] > 0
    assert not any("MinJobAge" in gap for gap in summary["missing"])


def test_one_job_is_read_of_the_accounting_alone(bed: SlurmBed) -> None:
    number = report_of(bed, "--since", "1h")["cases"][0]["job"]["number"]
    assert report_of(bed, number)["job"]["state"] == "FAILED"
