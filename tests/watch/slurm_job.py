"""Jobs on a Slurm of two nodes, and watches of them started on its controller."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.testbed.slurm import SlurmBed
from tests.watch import conditions
from tests.watch.conditions import TIMEOUT_S

NAMES = ("gpu001", "gpu002")
UBUNTU = 1000
MAIN = """import sys
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.watch import job
job.ASK_S = 1.0
sys.exit(main())"""
until = partial(conditions.until, every_s=0.2)  # each look may run a command of Slurm


@contextlib.contextmanager
def job(bed: SlurmBed, user: int = UBUNTU) -> Iterator[str]:
    """A job that has all of both nodes; its number."""
    process = bed.controller.start(["srun", "-N2", "-n8", "--gres=gpu:8", "sleep", "600"], user=user)
    for name in NAMES:
        bed.wait_for(name, "ALLOCATED")
    number = bed.output_of("squeue", "-h", "-o", "%A").split()[0]
    try:
        yield number
    finally:
        bed.run("scancel", number)
        for name in NAMES:
            bed.wait_for(name, "IDLE")
        process.wait(TIMEOUT_S)


def steps(bed: SlurmBed) -> list[str]:
    """The running steps."""
    return sorted(bed.output_of("squeue", "-h", "--steps", "-o", "%i %j %N").splitlines())


def watching(bed: SlurmBed, out: Path, *arguments: str, user: int = UBUNTU) -> subprocess.Popen[bytes]:
    """A watch that samples, and queries its job, every second; and its output."""
    with out.open("wb") as file:
        return bed.controller.start(
            [sys.executable, "-u", "-c", MAIN, "watch", "--every", "1", *arguments],
            user=user,
            env={"HOME": "/tmp"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Interrupt it as Ctrl-C does: the program that entered the node forwards no signals."""
    (entered,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(entered), signal.SIGINT)
