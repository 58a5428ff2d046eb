"""Acts on a running job from outside, which are undone once its case has been read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.case.dying import Act, Submitted

MESSAGE_S = 20.0  # MessageTimeout and 5 s: Slurm does not call a job lost that started so shortly before a boot
GO = "/run/go"  # a file on the second node; its rank continues once it exists


def _has_begun(job: Submitted) -> None:
    job.wait(lambda text: "JobState=RUNNING" in text)
    time.sleep(2)


@contextlib.contextmanager
def cancelled(job: Submitted) -> Iterator[None]:
    """An administrator cancels the job."""
    _has_begun(job)
    job.bed.output_of("scancel", job.number)
    yield


def cancelled_by(user: int) -> Act:
    """Its owner cancels the job."""

    @contextlib.contextmanager
    def act(job: Submitted) -> Iterator[None]:
        _has_begun(job)
        job.bed.output_of("scancel", job.number, user=user)
        yield

    return act


@contextlib.contextmanager
def signalled(job: Submitted) -> Iterator[None]:
    """Each process of its step gets SIGKILL from outside."""
    _has_begun(job)
    job.bed.output_of("scancel", "-s", "KILL", f"{job.number}.0")
    yield


@contextlib.contextmanager
def preempted(job: Submitted) -> Iterator[None]:
    """A job in a partition of higher priority preempts it."""
    _has_begun(job)
    where = ("-p", "high", "-N3", "-w", ",".join(job.nodes), "--exclusive", "-o", "/dev/null")
    job.bed.output_of("sbatch", *where, "--wrap", "sleep 1")
    yield


@contextlib.contextmanager
def requeued(job: Submitted) -> Iterator[None]:
    """It is requeued and runs a second time."""
    _has_begun(job)
    job.scontrol("requeue", job.number)
    job.wait(lambda text: "Restarts=1" in text)
    yield


@contextlib.contextmanager
def slurmd_killed(job: Submitted) -> Iterator[None]:
    """The second node's slurmd and steps vanish, as in a power failure."""
    _has_begun(job)
    _on_second(job, "pkill -9 -x slurmstepd; pkill -9 -x slurmd; true")
    yield
    job.bed.start_slurmd(job.nodes[1])


@contextlib.contextmanager
def frozen(job: Submitted) -> Iterator[None]:
    """Everything on the second node freezes, and nothing of it exits."""
    _has_begun(job)
    _on_second(job, "pkill -STOP -x slurmd; pkill -STOP -x slurmstepd; pkill -STOP -x sleep; true")
    yield
    _on_second(job, "pkill -9 -x slurmstepd; pkill -9 -x sleep; pkill -9 -x slurmd; true")
    job.bed.start_slurmd(job.nodes[1])


@contextlib.contextmanager
def cut_off(job: Submitted) -> Iterator[None]:
    """The second node's interface goes down in the middle of a training."""
    job.wait_for_output(" step 3 ")
    _on_second(job, "ip link set eth0 down")
    yield
    _on_second(job, "ip link set eth0 up")


@contextlib.contextmanager
def rebooted(job: Submitted) -> Iterator[None]:
    """The first node, where the job's script runs, returns and reports that it has rebooted."""
    _has_begun(job)
    time.sleep(MESSAGE_S)
    first = job.bed.node(job.nodes[0])
    first.run(["sh", "-c", "pkill -9 -x slurmstepd; pkill -9 -x slurmd; pkill -9 -x srun; pkill -9 -x sleep; true"])
    first.start(["slurmd", "-D", "-b", "-N", job.nodes[0]])
    yield


@contextlib.contextmanager
def set_down(job: Submitted) -> Iterator[None]:
    """An administrator sets the second node down."""
    _has_begun(job)
    job.scontrol("update", f"NodeName={job.nodes[1]}", "State=DOWN", "Reason=to be moved to another rack")
    yield


@contextlib.contextmanager
def drained(job: Submitted) -> Iterator[None]:
    """An administrator drains the second node; its job continues until it dies by itself."""
    _has_begun(job)
    job.scontrol("update", f"NodeName={job.nodes[1]}", "State=DRAIN", "Reason=to be moved to another rack")
    with _going_on(job):
        yield


@contextlib.contextmanager
def prolog_failed(job: Submitted) -> Iterator[None]:
    """The prolog fails on the first node, where a job's script starts."""
    flag = job.bed.node(job.nodes[0]).root / "run/prolog-fails"
    flag.touch()
    job.scontrol("release", job.number)
    yield
    flag.unlink()


def logged(*lines: str, node: int = 1, ago_s: float = 0.0) -> Act:
    """A node's kernel (by default the job's second) logs these lines; then rank 1 continues."""

    @contextlib.contextmanager
    def act(job: Submitted) -> Iterator[None]:
        _has_begun(job)
        log = job.bed.node(job.nodes[node]).root / "dev/kmsg"
        before = log.read_text()
        number = before.count(",-;")
        at_us = int((float(Path("/proc/uptime").read_text().split()[0]) - ago_s) * 1e6)
        log.write_text(before + "".join(f"3,{number + at},{at_us + at},-;{line}\n" for at, line in enumerate(lines)))
        with _going_on(job):
            yield
        log.write_text(before)

    return act


@contextlib.contextmanager
def _going_on(job: Submitted) -> Iterator[None]:
    flag = job.bed.node(job.nodes[1]).root / GO.lstrip("/")
    flag.touch()
    yield
    flag.unlink()


def _on_second(job: Submitted, script: str) -> None:
    done = job.bed.node(job.nodes[1]).run(["sh", "-c", script])
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
