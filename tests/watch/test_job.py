"""`--job`: a watch of one Slurm job, which ends with it and leaves its report; and the script for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.plugins.watch import job as module
from clusterproof.plugins.watch.job import JobMonitor, evaluate_recorded
from clusterproof.reports.results import read_results
from tests.builders.wheel import ROOT
from tests.testbed.needs import needs_slurm
from tests.testbed.slurm import SlurmBed
from tests.testbed.slurm_version import VERSIONS
from tests.watch.slurm_job import NAMES, job, steps, until, watching
from tests.watch.watched_bed import log

SCRIPT = ROOT / "integrations" / "slurm" / "watched.sbatch"
XID_79 = "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
TRAINING = "until [ -e /tmp/trained ]; do sleep 0.2; done"
STEPS = "".join(json.dumps({"rank": 0, "step": step, "dur": 1.0, "stages": {"data": 0.4}}) + "\n" for step in range(60))


@needs_slurm
@pytest.mark.parametrize("bed", VERSIONS[:1], indirect=True)
def test_the_script_watches_its_job_and_leaves_what_it_was_like(bed: SlurmBed) -> None:
    first = bed.node("gpu001").root / "tmp"
    (first / "steps").write_text(STEPS)
    executable = Path(sys.executable).with_name("clusterproof")
    bed.run("sh", "-c", f"cp {SCRIPT} /tmp/watched.sbatch")
    command = ["sbatch", "--parsable", "--chdir=/tmp", f"--export=ALL,CLUSTERPROOF={executable}"]
    number = bed.output_of(*command, "/tmp/watched.sbatch", "sh", "-c", TRAINING).strip()
    output = first / f"watch-{number}.log"
    until(output.exists, lambda: bed.log("gpu001"))
    until(lambda: sum("clusterproof-watch" in entry for entry in steps(bed)) == len(NAMES), output.read_text)
    log(bed.node("gpu002"), XID_79)
    until(lambda: "FAIL        gpu002 GPU" in output.read_text() and "Xid 79" in output.read_text(), output.read_text)
    for name in NAMES:
        (bed.node(name).root / "tmp" / "trained").touch()
    until(lambda: not bed.output_of("squeue", "-h"), output.read_text)
    text = output.read_text()
    assert "samples: 2 nodes, 1 with a fail" in text
    assert "[watch.silent]" not in text
    report = first / f"watch-{number}" / "report"
    assert (report / "report.html").stat().st_size > 10_000
    verdicts = {(entry.node, entry.check): entry.verdict.value for entry in read_results(report / "results.jsonl")}
    assert verdicts["gpu002", "gpu.no_xid"] == "fail"
    assert verdicts["gpu001", "gpu.no_xid"] == "pass"
    assert "concern" in {verdict for (_, check), verdict in verdicts.items() if check == "run.data_wait"}


@needs_slurm
@pytest.mark.parametrize("bed", VERSIONS[:1], indirect=True)
def test_it_ends_with_the_job_and_calls_no_node_silent(bed: SlurmBed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with job(bed) as number:
        process = watching(bed, out, "--job", number, "--record", "/tmp/kept", "--every", "10")
        until(lambda: out.read_text().count("the kernel log is not followed") == len(NAMES), out.read_text)
    assert process.wait() == 10  # an ordinary user may not read the kernel log
    assert f"job {number} has ended" in out.read_text()
    assert "[watch.silent]" not in out.read_text()
    assert (bed.controller.root / "tmp/kept/report/report.html").exists()


@needs_slurm
def test_a_job_that_is_suspended_or_sent_a_signal_is_not_over_and_is_watched_on(bed: SlurmBed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with job(bed) as number:
        process = watching(bed, out, "--job", number, "--record", "/tmp/halted")
        until(lambda: out.read_text().count("the kernel log is not followed") == len(NAMES), out.read_text)
        bed.output_of("scontrol", "suspend", number)
        until(lambda: f"job {number} is suspended" in out.read_text(), out.read_text)
        until(lambda: out.read_text().count("INCOMPLETE  gpu00") == 2 * len(NAMES), out.read_text)
        bed.output_of("scontrol", "resume", number)
        until(lambda: f"job {number} goes on" in out.read_text(), out.read_text)
        until(lambda: out.read_text().count("over        gpu00") == len(NAMES), out.read_text)
        bed.output_of("scancel", "--signal=STOP", number)
        until(lambda: f"job {number} is stopped" in out.read_text(), out.read_text)
        assert "has ended" not in out.read_text()
        assert process.poll() is None
    assert process.wait() == 10
    assert out.read_text().count(f"job {number} has ended") == 1


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed: apt-get install shellcheck")
def test_shellcheck_has_nothing_against_the_script() -> None:
    done = subprocess.run(["shellcheck", str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.long
def test_the_report_runs_no_code_of_the_folder_in_which_the_watch_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pytest", "yaml", "rich"):
        (tmp_path / f"{name}.py").write_text(
            "open('ran', 'w').close()\nraise SystemExit('a module of somebody else')\n"
        )
    shutil.copytree(DEMO, tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    evaluate_recorded(Path("kept"), (), None)
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / "kept" / "report" / "results.jsonl").exists()


def test_neither_a_slurm_that_does_not_answer_nor_a_job_that_is_halted_ends_a_watch_and_each_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ASK_S", 0.01)
    monkeypatch.setattr(module, "MIN_S", 0.01)
    answers = iter(["running", None, None, "running", "suspended", None, "suspended", "signaling", "stopped", ""])
    own: list[str] = []

    def state() -> str:
        answer = next(answers)
        if answer is None:
            raise Incomplete("slurmctld does not answer")
        return answer

    with JobMonitor("12", state, lambda: own.append("over"), own.append) as end:
        until(lambda: "over" in own, lambda: own)
    end._thread.join()
    assert own == [
        "whether the job runs is not known: slurmctld does not answer; watching goes on",
        "whether the job runs is known again",
        "job 12 is suspended: its nodes send nothing until it goes on; watching goes on",
        "whether the job runs is not known: slurmctld does not answer; watching goes on",
        "whether the job runs is known again",
        "job 12 goes on",
        "job 12 is stopped: its nodes send nothing until it goes on; watching goes on",
        "job 12 has ended, or has left its nodes to be started again",
        "over",
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "x", "--cluster", "local"], "--steps is for a job; expected --job ID with it"),
        (["--job", "12"], "--cluster 'slurm:job:12': slurm: could not be read (scontrol "),
        (["--job", "abc"], "--job is 'abc'; expected the number of a Slurm job, or NAMESPACE/NAME of a Job"),
        (
            ["--job", "12", "--cluster", "local"],
            "--job 12 is a Slurm job, and Slurm is asked from here; expected no --cluster",
        ),
        (
            ["--job", "ml/x", "--cluster", "local"],
            "--job 'ml/x' is a Kubernetes job, and --cluster 'local'; expected k8s:",
        ),
        (["--every", "1"], "nothing to watch; expected clusterproof watch X, or --job ID"),
    ],
)
def test_what_is_no_job_is_one_line(
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")  # whichever Slurm this machine belongs to
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["watch", *words]) == 4
    error = capsys.readouterr().err
    assert error.startswith(f"clusterproof watch: {said}")
    assert error.count("\n") == 1
