"""Slurm's EpilogSlurmctld opens a case for each job that did not end well, and for no other."""

from __future__ import annotations

import json
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders.wheel import ROOT
from tests.case.dying import ENDED_S
from tests.testbed.image import File
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_cpu
from tests.testbed.slurm import SlurmBed, slurm

pytestmark = needs_slurm
SCRIPT = Path(ROOT) / "clusterproof/integrations/slurm/clusterproof-case"
HOOK = "/usr/local/sbin/clusterproof-case"
CASES = "var/lib/clusterproof/cases"
CODE = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main(sys.argv[1:]))"
PROGRAM = f"#!/bin/sh\ncd {ROOT} && exec {sys.executable} -c '{CODE}' \"$@\"\n"
EPILOG, HOLD = "/usr/local/sbin/epilog", "var/lib/hold"
FILES = {
    HOOK: File(SCRIPT.read_text(), 0o755),
    "/usr/local/sbin/clusterproof": File(PROGRAM, 0o755),
    EPILOG: File(f"#!/bin/sh\nwhile [ -e /{HOLD} ]; do sleep 0.2; done\n", 0o755),
}


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    images = {name: healthy_cpu() for name in ("gpu001", "gpu002", "gpu003")}
    with slurm(images, settings=[f"EpilogSlurmctld={HOOK}", f"Epilog={EPILOG}"], files=FILES) as running:
        yield running


@pytest.fixture
def cases(bed: SlurmBed) -> Path:
    folder = bed.controller.root / CASES
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def submitted(bed: SlurmBed, script: str, *more: str) -> str:
    return bed.output_of("sbatch", "--parsable", "-o", "/dev/null", *more, "--wrap", script).strip()


def wait(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + ENDED_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_a_job_that_died_has_its_case_and_one_that_completed_has_none(bed: SlurmBed, cases: Path) -> None:
    well = submitted(bed, "true", "-J", "x JobState=FAILED")
    died = submitted(bed, "exit 3", "-J", "x JobState=COMPLETED")
    array = submitted(bed, "exit 4", "--array=2")
    names = [f"{died}.json", f"{died}.txt", f"{array}_2.json", f"{array}_2.txt"]
    wait(lambda: all((cases / name).exists() for name in names))
    wait(lambda: "JobState=COMPLETED" in bed.output_of("scontrol", "show", "job", well))
    report = json.loads((cases / f"{died}.json").read_text())
    assert (report["job"]["number"], report["job"]["exit_code"]) == (died, "3:0")
    assert (cases / f"{died}.txt").read_text().startswith(f"Job {died} on 1 node")
    assert stat.S_IMODE((cases / f"{died}.json").stat().st_mode) == 0o600
    assert sorted(path.name for path in cases.glob("[0-9]*")) == sorted(names)


def test_a_job_that_does_not_complete_keeps_no_other_from_its_case(bed: SlurmBed, cases: Path) -> None:
    hold = bed.bed.nodes["gpu001"].root / HOLD
    hold.parent.mkdir(parents=True, exist_ok=True)
    hold.touch()
    try:
        held = submitted(bed, "exit 3", "-w", "gpu001")
        wait(lambda: "COMPLETING" in bed.output_of("squeue", "-h", "-t", "all", "-j", held, "-o", "%T"))
        died = submitted(bed, "exit 4", "-w", "gpu002")
        wait((cases / f"{died}.txt").exists)
        assert not (cases / f"{held}.txt").exists()
    finally:
        hold.unlink()
    wait((cases / f"{held}.txt").exists)


def test_a_heterogeneous_job_has_one_case_if_it_died_and_none_if_it_completed(bed: SlurmBed, cases: Path) -> None:
    components = ("-w", "gpu001", ":", "-w", "gpu002")
    known = {path.name for path in cases.glob("[0-9]*")}
    well = submitted(bed, "true", *components)
    wait(lambda: bed.output_of("squeue", "-h", "-t", "all", "-j", well, "-o", "%T").split() == ["COMPLETED"] * 2)
    died = submitted(bed, "exit 3", *components)
    wait((cases / f"{died}.txt").exists)
    last = submitted(bed, "exit 4")
    wait((cases / f"{last}.txt").exists)  # one case is opened after the other
    opened = {path.name for path in cases.glob("[0-9]*")} - known
    assert opened == {f"{number}.{form}" for number in (died, last) for form in ("json", "txt")}
    assert (cases / f"{died}.txt").read_text().startswith(f"Job {died} on 2 nodes")


def test_without_its_folder_it_opens_none_and_holds_no_job_up(bed: SlurmBed, cases: Path) -> None:
    cases.rename(cases.with_name("away"))
    try:
        number = submitted(bed, "exit 3")
        wait(lambda: "JobState=FAILED" in bed.output_of("scontrol", "show", "job", number))
        assert not cases.exists()
    finally:
        cases.with_name("away").rename(cases)
