"""Runs jobs on a real Slurm in drain mode while faults come and go and administrators drain and upgrade.

The state's disk fills up, and clocks are changed. The last line is one JSON object: `jobs` completed, `faults`
injected, `upgrades` between versions, `reasons` for which administrators drained, and three counts that must be 0.
`sick_missed`: a full health check passed a sick node, which still takes jobs. `healthy_left_drained`: one passed a
healthy node that clusterproof had drained, and it is still drained. `admin_touched`: an administrator's drain was
ended, or its reason changed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from threading import Event

from bench.soaked_node import NOBODY, STATE_DISK, SoakedNode, Tally
from clusterproof.integrations.slurm.versions import COMPLETE, HOME, PREVIOUS, VERSIONS
from scripts.arguments import Arguments, count
from tests.integrations.slurm.scripts import NAMES, Scripted, lines, scripted
from tests.testbed.clock import LIBRARY, put_library
from tests.testbed.image import Content, File, Link, NodeImage
from tests.testbed.node import healthy_p5, with_tmpfs
from tests.testbed.slurm_version import OWN, TRIXIE, SlurmVersion

TIMEOUT_S = 3600.0  # for the jobs; running ones are then allowed to end
AT_ONCE = 8  # queued jobs per node
MAX_IN_AN_ARRAY = 8
LOOK_S = 1.0
COMPLETED = "/run/completed"
# Only clusterproof's waits: Slurm's own last until a time of the machine's clock.
PYTHON = f"""#!/bin/bash
export LD_PRELOAD={LIBRARY}
exec -a {{version}}/bin/python {sys.executable} "$@"
"""
SETTINGS = """mode = "drain"
deadline_s = 8
reuse_s = 5
[health_check]
max_drained_nodes = 1000
max_drained_percent = 100
"""


@dataclass(frozen=True)
class Soak:
    """What to do."""

    jobs: int = 2000
    nodes: int = 4
    seed: int = 1
    version: SlurmVersion = OWN


def soak(wanted: Soak, timeout_s: float = TIMEOUT_S) -> Tally:
    """Run the soak; gives up after `timeout_s` seconds.

    Health checks run as slurmd runs them, but after each event rather than at an interval.
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
    images = {
        name: _with_versions(healthy_p5(name)) for name in (f"gpu{number:03}" for number in range(1, wanted.nodes + 1))
    }
    more = (
        *(f"{keyword}={HOME}/bin/clusterproof-{name}" for keyword, name in NAMES.items()),
        "SchedulerParameters=nohold_on_prolog_fail,sched_interval=1,bf_interval=1,batch_sched_delay=0",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={COMPLETED}",
    )
    with scripted(images, {}, SETTINGS, *more, cpus=64, home=VERSIONS / "1-a", version=wanted.version) as slurm:
        for name in images:
            put_library(slurm.node(name))
        yield slurm


def _with_versions(image: NodeImage) -> NodeImage:
    """The image with two installed versions of this checkout and a separate disk for the state."""
    files: dict[str, Content] = {str(PREVIOUS): Link(str(VERSIONS / "2-b"))}
    for version in (VERSIONS / "1-a", VERSIONS / "2-b"):
        for name, text in lines(*NAMES.values()).items():
            files[f"{version}/bin/clusterproof-{name}"] = File(text, 0o755)
        files[f"{version}/bin/python"] = File(PYTHON.format(version=version), 0o755)
        files[f"{version}/lib"] = Link(f"{sys.prefix}/lib")
        files[f"{version}/pyvenv.cfg"] = (Path(sys.prefix) / "pyvenv.cfg").read_text(encoding="utf-8")
        files[f"{version}/{COMPLETE}"] = ""
    files["/etc/slurm/health-check"] = Link(f"{HOME}/bin/clusterproof-health-check")
    return replace(with_tmpfs(image, STATE_DISK, "2m"), files={**image.files, **files})


def _run_jobs(slurm: Scripted, wanted: int, random: Random, until: float) -> int:
    """Keep jobs in the queue until the wanted number is done; returns how many are."""
    submitted = 0
    done_before = 0
    while (done := _completed(slurm)) < wanted and time.monotonic() < until:
        waiting = slurm.bed.output_of("squeue", "-h", "-r", "-o", "%A|%r").splitlines()
        for job in (row.split("|")[0] for row in waiting if row.endswith("|BeginTime")):
            slurm.bed.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # requeued jobs would wait two minutes
        count = min(random.randint(1, MAX_IN_AN_ARRAY), wanted - submitted)
        if count and len(waiting) < AT_ONCE * len(slurm.bed.names):
            slurm.submit(*slurm.bed.names, user=random.choice((0, NOBODY)), array=f"1-{count}")
            submitted += count
        else:
            time.sleep(LOOK_S)
        if done - done_before >= wanted / 20:
            print(f"{done} of {wanted} jobs", flush=True)
            done_before = done
    return done


def _completed(slurm: Scripted) -> int:
    """The completed jobs of an array, from Slurm's accounting file."""
    file = slurm.bed.controller.root / COMPLETED.lstrip("/")
    listed = file.read_text().splitlines() if file.exists() else []
    return sum(" JobState=COMPLETED " in line and " Name=wrap " in line for line in listed)


def main() -> int:
    """Return 0 if the three counts are 0, all jobs are done, and each node was sick."""
    parser = Arguments("scripts/soak", __doc__)
    parser.add_argument("--jobs", type=count, default=Soak.jobs)
    parser.add_argument("--nodes", type=count, default=Soak.nodes)
    parser.add_argument("--seed", type=int, default=Soak.seed)
    parser.add_argument("--slurm", choices=[OWN.name, TRIXIE.name], default=OWN.name)
    option = parser.parse_args()
    version = OWN if option.slurm == OWN.name else TRIXIE
    began = time.monotonic()
    tally = soak(Soak(option.jobs, option.nodes, option.seed, version))
    print(f"Slurm {version.name}, {option.nodes} nodes, {time.monotonic() - began:.0f} s")
    print(json.dumps(tally.figures()))
    return 0 if tally.is_clean and tally.jobs >= option.jobs and tally.faults >= option.nodes else 1


if __name__ == "__main__":
    sys.exit(main())
