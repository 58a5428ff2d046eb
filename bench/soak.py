"""`make soak`: jobs on the nodes of a real Slurm in drain mode, while faults come and go and administrators drain.

`scripts/soak --jobs 2000 --nodes 4 --seed 1 --slurm 24.11`: any of these may be left out. The last line is one JSON
object: `jobs` that ran to their end, `faults` that were put, and three counts that are to be 0. `sick_missed`: a whole
health check has passed over a sick node, and it takes jobs. `healthy_left_drained`: one has passed over a healthy node
that we had drained before, and it is drained still. `admin_touched`: a drain of an administrator's was ended, or its
reason is another.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from threading import Event

from bench.soaked_node import NOBODY, SoakedNode, Tally
from tests.integrations.slurm.scripts import Scripted, lines, scripted
from tests.testbed.node import healthy_p5
from tests.testbed.slurm_version import OWN, TRIXIE, SlurmVersion

TIMEOUT_S = 480.0  # for the jobs; what is under way then comes to its end
AT_ONCE = 8  # jobs in the queue for each node
MAX_IN_AN_ARRAY = 8
LOOK_S = 1.0
COMPLETED = "/run/completed"
SETTINGS = """mode = "drain"
deadline_s = 8
reuse_s = 5
[health_check]
max_drained_nodes = 1000
max_drained_percent = 100
"""


@dataclass(frozen=True)
class Soak:
    """What is to be done."""

    jobs: int = 2000
    nodes: int = 4
    seed: int = 1
    version: SlurmVersion = OWN


def soak(wanted: Soak, timeout_s: float = TIMEOUT_S) -> Tally:
    """Do it; what ends it is beyond `timeout_s` seconds.

    The health checks run as slurmd runs them, but when something has happened rather than at an interval.
    """
    random = Random(wanted.seed)
    with _slurm(wanted) as slurm, ThreadPoolExecutor(wanted.nodes) as pool:
        nodes = [SoakedNode(slurm, name, Random(random.random()), Event()) for name in slurm.bed.names]
        lives = [pool.submit(node.live) for node in nodes]
        try:
            jobs = _run_jobs(slurm, wanted.jobs, random, time.monotonic() + timeout_s)
        finally:
            for node in nodes:
                node.is_over.set()
        for life in lives:
            life.result()
        sick = random.sample(nodes, len(nodes) // 2)
        list(pool.map(SoakedNode.stay_sick, sick))
        list(pool.map(SoakedNode.stay_well, [node for node in nodes if node not in sick]))
    tally = Tally(jobs=jobs)
    for node in nodes:
        tally += node.tally
    return tally


@contextmanager
def _slurm(wanted: Soak) -> Iterator[Scripted]:
    images = {name: healthy_p5(name) for name in (f"gpu{number:03}" for number in range(1, wanted.nodes + 1))}
    scripts = lines("prolog", "epilog", "health-check")
    more = (
        "SchedulerParameters=nohold_on_prolog_fail,sched_interval=1,bf_interval=1,batch_sched_delay=0",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={COMPLETED}",
    )
    with scripted(images, scripts, SETTINGS, *more, cpus=64, version=wanted.version) as slurm:
        yield slurm


def _run_jobs(slurm: Scripted, wanted: int, random: Random, until: float) -> int:
    """Keep so many jobs in the queue until as many are done as are wanted; how many are."""
    submitted = 0
    data = 0
    while (done := _completed(slurm)) < wanted and time.monotonic() < until:
        waiting = slurm.bed.output_of("squeue", "-h", "-r", "-o", "%A|%r").splitlines()
        for job in (row.split("|")[0] for row in waiting if row.endswith("|BeginTime")):
            slurm.bed.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # requeued: else in two minutes
        count = min(random.randint(1, MAX_IN_AN_ARRAY), wanted - submitted)
        if count and len(waiting) < AT_ONCE * len(slurm.bed.names):
            slurm.submit(*slurm.bed.names, user=random.choice((0, NOBODY)), array=f"1-{count}")
            submitted += count
        else:
            time.sleep(LOOK_S)
        if done - data >= wanted / 20:
            print(f"{done} of {wanted} jobs", flush=True)
            data = done
    return done


def _completed(slurm: Scripted) -> int:
    """The jobs of an array that have run to their end, as Slurm's own accounting file has them."""
    file = slurm.bed.controller.root / COMPLETED.lstrip("/")
    listed = file.read_text().splitlines() if file.exists() else []
    return sum(" JobState=COMPLETED " in line and " Name=wrap " in line for line in listed)


def main() -> int:
    """0 where all counts that are to be 0 are, and all jobs are done."""
    parser = argparse.ArgumentParser(prog="scripts/soak")
    parser.add_argument("--jobs", type=int, default=Soak.jobs)
    parser.add_argument("--nodes", type=int, default=Soak.nodes)
    parser.add_argument("--seed", type=int, default=Soak.seed)
    parser.add_argument("--slurm", choices=[OWN.name, TRIXIE.name], default=OWN.name)
    asked = parser.parse_args()
    version = OWN if asked.slurm == OWN.name else TRIXIE
    began = time.monotonic()
    tally = soak(Soak(asked.jobs, asked.nodes, asked.seed, version))
    print(f"Slurm {version.name}, {asked.nodes} nodes, {time.monotonic() - began:.0f} s")
    print(json.dumps(tally.figures()))
    return 0 if tally.is_clean and tally.jobs >= asked.jobs else 1


if __name__ == "__main__":
    sys.exit(main())
