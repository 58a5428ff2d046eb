"""Jobs that die on a real Slurm, each of a cause that is known as it is made."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.record import record
from tests.builders.wheel import ROOT
from tests.testbed.slurm import CONTROLLER, SlurmBed

NODES = ("gpu001", "gpu002", "gpu003")
ENDED_S = 600.0
SETTINGS = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=CANCEL",
    "PartitionName=low Nodes=gpu[001-003] PriorityTier=1 MaxTime=INFINITE State=UP PreemptMode=CANCEL",
    "PartitionName=high Nodes=gpu[001-003] PriorityTier=9 MaxTime=INFINITE State=UP PreemptMode=OFF",
)
XID = "NVRM: Xid (PCI:0000:c5:00): 79, pid=1, name=python, GPU has fallen off the bus."
OF_ALL = "{this}; code=$?; sleep 1; exit $code"  # srun cuts off what a step that it kills has not yet sent
OF_RANK_1 = f'if [ "$SLURM_PROCID" = 1 ]; then {OF_ALL}; fi; sleep 20'
Act = Callable[[SlurmBed, str], None]


def _nothing(_: SlurmBed, __: str) -> None:
    """The job dies by itself."""


def _cancel(bed: SlurmBed, number: str) -> None:
    _has_begun(bed, number)
    bed.output_of("scancel", number)


def _preempt(bed: SlurmBed, number: str) -> None:
    _has_begun(bed, number)
    bed.output_of("sbatch", "-p", "high", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")


def _kill_slurmd(bed: SlurmBed, number: str) -> None:
    """The daemon of the second node, and its steps, vanish as with the node's power."""
    _has_begun(bed, number)
    bed.node("gpu002").run(["sh", "-c", "pkill -9 -x slurmstepd; pkill -9 -x slurmd; true"])


def _has_begun(bed: SlurmBed, number: str) -> None:
    _wait(bed, number, lambda text: "JobState=RUNNING" in text)
    time.sleep(1)


@record
class DyingJob:
    """What each of its three ranks runs, and what is done to it meanwhile; `cause` is the truth of it."""

    name: str
    cause: str
    script: str
    act: Act = _nothing
    options: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    rank: int | None = None


KEY_ERROR = """python3 -c "{}['image']" """
CUT_OFF = "echo 'Traceback (most recent call last):' >&2; exit 1"
NO_MODULE = """python3 -c "import no_such_module_at_all" """
MEMORY = """ulimit -v 400000; python3 -c "bytearray(10**10)" """
FILES = """ulimit -n 20; python3 -c "[open('/dev/null') for _ in range(99)].nothing" """

JOBS = (
    DyingJob("exception", "code", OF_RANK_1.format(this=KEY_ERROR), rank=1),
    DyingJob("exception cut off", "unknown", OF_RANK_1.format(this=CUT_OFF), rank=1),
    DyingJob("no such module", "code", OF_ALL.format(this=NO_MODULE)),
    DyingJob("no such program", "code", OF_ALL.format(this="/no/such/trainer --lr 1")),
    DyingJob("exit code alone", "unknown", OF_RANK_1.format(this="exit 3")),
    DyingJob("killed", "unknown", OF_RANK_1.format(this="kill -9 $$"), rank=1),
    DyingJob("crashed", "unknown", OF_RANK_1.format(this="kill -SEGV $$"), rank=1),
    DyingJob("disk full", "storage", OF_RANK_1.format(this="dd if=/dev/zero of=/dev/full bs=1k count=1")),
    DyingJob("memory", "resources", OF_RANK_1.format(this=MEMORY), rank=1),
    DyingJob("open files", "resources", OF_RANK_1.format(this=FILES), rank=1),
    DyingJob("forged line of the driver", "unknown", OF_RANK_1.format(this=f"echo '{XID}'; exit 1")),
    DyingJob("name of another state", "unknown", OF_RANK_1.format(this="exit 2"), options=("-J", "x JobState=TIMEOUT")),
    DyingJob("cancelled", "stopped", "sleep 300", _cancel),
    DyingJob("preempted", "stopped", "sleep 300", _preempt, ("-p", "low")),
    DyingJob("time limit", "stopped", "sleep 300", options=("-t", "1")),
    DyingJob("node failed", "unknown", "sleep 900", _kill_slurmd, suspects=("gpu002",)),
)


TRAINING = Path(__file__).with_name("gloo_training.py")
EIGHT = ("--ntasks=8",)


def _training(fault: str, rank: int) -> str:
    """What each of eight ranks runs: a training in which one of them does so."""
    return OF_ALL.format(this=f"/usr/bin/python3 {TRAINING} '{fault}' {rank}")


TRAININGS = (
    DyingJob("training, exception", "code", _training("exception", 5), options=EIGHT, rank=5),
    DyingJob("training, other collective", "code", _training("other collective", 4), options=EIGHT),
    DyingJob("training, killed", "unknown", f"exec /usr/bin/python3 {TRAINING} killed 6", options=EIGHT, rank=6),
    DyingJob("training, disk full", "storage", _training("disk full", 2), options=EIGHT, rank=2),
    DyingJob("training, not a number", "unknown", _training("nan", 3), options=EIGHT, rank=3),
    DyingJob("training, hung", "unknown", _training("hung", 7), options=EIGHT),
)


def kept_of_rank_1(bed: SlurmBed, shared: Path) -> str:
    """What rank 1 of a step that is ended at once leaves where each rank's errors have a file of their own."""
    script = shared / "kept.sh"
    script.write_text(f'#!/bin/sh\nif [ "$SLURM_PROCID" = 1 ]; then exec {KEY_ERROR}; fi; sleep 300\n')
    script.chmod(0o755)
    file = "/root/task-%t.err"
    words = ("srun", "-N3", "--ntasks=3", "-p", "gpu", "-l", "--kill-on-bad-exit=1", f"--error={file}", str(script))
    bed.run(*words)
    return (bed.node("gpu002").root / file.replace("%t", "1").lstrip("/")).read_text()


def died(bed: SlurmBed, job: DyingJob, shared: Path) -> dict[str, Any]:
    """Run a job to its end, and what `clusterproof case` says of it on the controller."""
    script = shared / f"{job.name.replace(' ', '_')}.sh"
    script.write_text(f"#!/bin/sh\n{job.script}\n")
    script.chmod(0o755)
    wrap = f"srun -l --kill-on-bad-exit=1 {script}"
    out = shared / "out-%j.txt"
    words = (
        "sbatch",
        "--parsable",
        "--no-requeue",
        "-N3",
        "--ntasks=3",
        "-p",
        "gpu",
        "-o",
        str(out),
        *job.options,
        "--wrap",
        wrap,
    )
    number = bed.output_of(*words).strip().split(";")[0]
    job.act(bed, number)
    _wait(bed, number, lambda text: not any(f"JobState={one}" in text for one in ("PENDING", "RUNNING", "COMPLETING")))
    _share(bed, str(out).replace("%j", number))
    code = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main(sys.argv[1:]))"
    said = bed.output_of("sh", "-c", f"cd {ROOT} && exec {sys.executable} -c '{code}' case {number} --json")
    if job.act is _kill_slurmd:
        bed.start_slurmd("gpu002")
        bed.wait_for("gpu002", "IDLE")
    data: dict[str, Any] = json.loads(said)
    return data


def _share(bed: SlurmBed, path: str) -> None:
    """The controller sees what the first node wrote, as on a file system that both have."""
    written, seen = (bed.node(name).root / path.lstrip("/") for name in ("gpu001", CONTROLLER))
    if written.exists():
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.write_bytes(written.read_bytes())


def _wait(bed: SlurmBed, number: str, holds: Callable[[str], bool]) -> None:
    """Wait until what Slurm says of a job is so. Raises TimeoutError."""
    until = time.monotonic() + ENDED_S
    while not holds(text := bed.output_of("scontrol", "show", "job", number)):
        if time.monotonic() > until:
            raise TimeoutError(text)
        time.sleep(0.2)
