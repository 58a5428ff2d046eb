"""A job that dies on a real Slurm, and the conclusion of `clusterproof case`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.record import record
from tests.builders.wheel import ROOT
from tests.testbed.slurm import CONTROLLER, SlurmBed

NODES = ("gpu001", "gpu002", "gpu003")
ENDED_S = 600.0
LOOK_S = 0.5
UNDER_WAY = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED")
STEP = "srun -l --kill-on-bad-exit=1 {script}"
CODE = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main(sys.argv[1:]))"


@record
class Submitted:
    """A job submitted to Slurm; `out` is its output's path on the first of its nodes."""

    bed: SlurmBed
    number: str
    nodes: tuple[str, ...]
    out: str

    def scontrol(self, *arguments: str) -> None:
        """Run scontrol. Raises RuntimeError if Slurm refuses."""
        self.bed.output_of("scontrol", *arguments)

    def wait(self, holds: Callable[[str], bool]) -> None:
        """Wait until Slurm's record of the job satisfies a condition. Raises TimeoutError."""
        until = time.monotonic() + ENDED_S
        while not holds(text := self.bed.output_of("scontrol", "show", "job", self.number)):
            if time.monotonic() > until:
                raise TimeoutError(text)
            time.sleep(LOOK_S)

    def wait_for_output(self, text: str) -> None:
        """Wait until the job has printed this. Raises TimeoutError."""
        until = time.monotonic() + ENDED_S
        while text not in self.printed():
            if time.monotonic() > until:
                raise TimeoutError(f"{text!r} in {self.printed()!r}")
            time.sleep(LOOK_S)

    def printed(self) -> str:
        """The job's output so far."""
        file = self.bed.node(self.nodes[0]).root / self.out.lstrip("/")
        return file.read_text(errors="replace") if file.exists() else ""


Act = Callable[[Submitted], contextlib.AbstractContextManager[None]]


def left_alone(_: Submitted) -> contextlib.AbstractContextManager[None]:
    """The job dies by itself."""
    return contextlib.nullcontext()


@record
class DyingJob:
    """What each of its three ranks runs, and what is done to it meanwhile.

    `cause` is the truth, as far as anything shows it; `guilty` and `suspects` are indexes of its nodes: of the one that
    its own evidence blames, and of those to be tested. `asks`: their kernel logs are asked for.
    """

    name: str
    cause: str
    script: str
    act: Act = left_alone
    options: tuple[str, ...] = ()
    guilty: int | None = None
    suspects: tuple[int, ...] = ()
    rank: int | None = None
    batch: str = STEP
    user: int = 0
    asks: bool = False


def died(bed: SlurmBed, job: DyingJob, shared: Path, nodes: Sequence[str] = NODES) -> dict[str, Any]:
    """Run a job on these nodes to its end; returns the conclusion of `clusterproof case` on the controller."""
    submitted = _submit(bed, job, shared, tuple(nodes))
    try:
        with job.act(submitted):
            submitted.wait(_has_ended)
            _share(submitted)
            return _case(submitted, job.asks)
    finally:
        bed.run("scancel", submitted.number)
        for name in nodes:
            _return(bed, name)


def _submit(bed: SlurmBed, job: DyingJob, shared: Path, nodes: tuple[str, ...]) -> Submitted:
    script = shared / f"{job.name.replace(' ', '_')}-{nodes[0]}.sh"
    script.write_text(f"#!/bin/sh\n{job.script}\n")
    script.chmod(0o755)
    out = str(shared / "out-%j.txt")
    where = ("-N3", "--ntasks=3", "-p", "gpu", "-w", ",".join(nodes))
    common = ("sbatch", "--parsable", "--no-requeue", *where, "-o", out, f"--export=ALL,FIRST={nodes[0]}")
    command = (*common, *(option.format(*nodes) for option in job.options))
    output = bed.output_of(*command, "--wrap", job.batch.format(script=script), user=job.user)
    number = output.strip().split(";")[0]
    task = "_3" if any(option.startswith("--array") for option in job.options) else ""
    return Submitted(bed, number + task, nodes, out.replace("%j", number))


def _has_ended(text: str) -> bool:
    return not any(f"JobState={state}" in text for state in UNDER_WAY)


def _share(job: Submitted) -> None:
    """Show the controller what the first node wrote, as a shared file system would."""
    written, seen = (job.bed.node(name).root / job.out.lstrip("/") for name in (job.nodes[0], CONTROLLER))
    if written.exists():
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.write_bytes(written.read_bytes())
        os.chown(seen, written.stat().st_uid, -1)


def _case(job: Submitted, asks: bool) -> dict[str, Any]:
    more = "--cluster slurm:" if asks else ""
    command = f"cd {ROOT} && exec {sys.executable} -c '{CODE}' case {job.number} --json {more}"
    report: dict[str, Any] = json.loads(job.bed.output_of("sh", "-c", command))
    return report


def _return(bed: SlurmBed, name: str) -> None:
    """Let a node take jobs again."""
    if any(word in bed.state(name) for word in ("DRAIN", "DOWN")):
        bed.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    bed.wait_for(name, "IDLE")
