"""A watch over srun: a step in one's own job on each node, which ends with who watches and holds no place."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.suite.watching.command import why_not_watched
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5
from tests.testbed.slurm import CONTROLLER, SlurmBed, slurm
from tests.watch.watched_bed import log, samplers

pytestmark = needs_slurm

PATIENCE_S = 120.0
UBUNTU = 1000
NAMES = ("gpu001", "gpu002")
MAIN = "import sys; from clusterproof.plugins.suite.cli import main; sys.exit(main())"
XID_79 = "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    with slurm({name: healthy_p5(name) for name in NAMES}) as running:
        yield running


def until(is_so: Callable[[], object], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


@contextlib.contextmanager
def job(bed: SlurmBed, user: int = UBUNTU) -> Iterator[str]:
    """A job that has all of both nodes; its number."""
    process = bed.controller.start(
        ["srun", "-N2", "-n8", "--gres=gpu:8", "sleep", "600"], user=user, stdout=subprocess.PIPE
    )
    for name in NAMES:
        bed.wait_for(name, "ALLOCATED")
    number = bed.output_of("squeue", "-h", "-o", "%A").split()[0]
    try:
        yield number
    finally:
        bed.run("scancel", number)
        for name in NAMES:
            bed.wait_for(name, "IDLE")
        process.wait(PATIENCE_S)


def steps(bed: SlurmBed) -> list[str]:
    """The steps that run, by name."""
    return sorted(bed.output_of("squeue", "-h", "--steps", "-o", "%i %j %N").splitlines())


def watching(bed: SlurmBed, out: Path, *words: str, user: int = UBUNTU) -> subprocess.Popen[bytes]:
    with out.open("wb") as file:
        return bed.controller.start(
            [sys.executable, "-u", "-c", MAIN, "watch", "--every", "1", *words],
            user=user,
            env={"HOME": "/tmp"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does: what entered the node lets no signal through to what it has started there."""
    (entered,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(entered), signal.SIGINT)


def test_what_happens_on_nodes_of_a_job_is_said_and_the_end_leaves_no_step(bed: SlurmBed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with job(bed, user=0) as number:
        before = steps(bed)
        process = watching(bed, out, "--cluster", f"slurm:job:{number}", user=0)
        until(lambda: sum("clusterproof-watch" in one for one in steps(bed)) == len(NAMES), out.read_text)
        log(bed.node("gpu002"), XID_79)
        until(lambda: "FAIL        gpu002 GPU" in out.read_text(), out.read_text)
        interrupt(process)
        assert process.wait(PATIENCE_S) == 1
        until(lambda: steps(bed) == before, lambda: (steps(bed), out.read_text()))
        until(lambda: not any(samplers(bed.node(name)) for name in NAMES), out.read_text)
        assert "samples: 2 nodes, 1 with a fail" in out.read_text()


def test_a_watch_that_is_killed_leaves_no_step_either(bed: SlurmBed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with job(bed) as number:
        before = steps(bed)
        process = watching(bed, out, "--cluster", f"slurm:job:{number}")
        until(lambda: out.read_text().count("the kernel log is not followed") == len(NAMES), out.read_text)
        bed.node(CONTROLLER).kill(process)
        until(lambda: steps(bed) == before, lambda: (steps(bed), out.read_text()))
        assert not any(samplers(bed.node(name)) for name in NAMES)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"submit_host": "local"},
            "without a job it would hold a place on each node while it lasts; expected slurm:job:ID",
        ),
        (
            {"submit_host": "hyperpod:x", "job": "7"},
            "on a host that is reached by hyperpod: a session of Systems Manager is",
        ),
        ({"submit_host": "local", "job": "7"}, ""),
        ({"submit_host": "ssh:login", "job": "7"}, ""),
    ],
)
def test_srun_needs_a_job_and_a_host_that_is_not_reached_by_systems_manager(
    settings: dict[str, str], said: str
) -> None:
    why_not = why_not_watched(Cluster("slurm:x", "srun", (Target("gpu001"),), settings))
    assert why_not.startswith(said)
    assert bool(why_not) is bool(said)
