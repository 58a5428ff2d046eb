"""What `clusterproof case` concludes about jobs that die of known causes on a real Slurm or Kubernetes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

from bench.outcomes import Outcome
from tests.case.dying import DyingJob, died
from tests.case.jobs import FILES, JOBS, TRAININGS, images, settings
from tests.case.stories import ALL
from tests.kubernetes import dying_jobs
from tests.testbed.kubernetes.bed import bed
from tests.testbed.needs import without_torch
from tests.testbed.slurm import SlurmBed, slurm
from tests.testbed.slurm_version import OWN, TRIXIE

SLURMS = {version.name: version for version in (OWN, TRIXIE)}
BESIDE = 8  # jobs at once, each on its own three nodes
TRAININGS_BESIDE = 2  # trainings at once; each has eight ranks that load PyTorch


def on_slurm(version: str, runs: int, trainings: int) -> list[Outcome]:
    """Run each job this many times, in parallel, then each training. Raises KeyError without such a Slurm."""
    names = [f"gpu{number:03}" for number in range(1, 3 * BESIDE + 1)]
    if why := without_torch():
        print(f"no trainings of eight ranks: {why}")
    running = slurm(images(names), settings=settings(names), files=FILES, version=SLURMS[version])
    with running as cluster, TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        free: SimpleQueue[tuple[str, ...]] = SimpleQueue()
        for at in range(0, len(names), 3):
            free.put(tuple(names[at : at + 3]))
        ran = list(_beside(cluster, JOBS * runs, BESIDE, free, Path(folder)))
        ran += _beside(cluster, () if why else TRAININGS * trainings, TRAININGS_BESIDE, free, Path(folder))
    return ran


def on_kubernetes(runs: int) -> list[Outcome]:
    """The same for Jobs of one pod, one after another because they share a node."""
    with bed() as kubernetes:
        os.environ["KUBECONFIG"] = str(kubernetes.plane.kubeconfig())
        ran = (
            _outcome(dying, partial(dying_jobs.died, kubernetes, dying), "kubernetes")
            for dying in dying_jobs.DYING * runs
        )
        return list(filter(None, ran))


def _beside(
    cluster: SlurmBed, jobs: Sequence[DyingJob], beside: int, free: SimpleQueue[tuple[str, ...]], shared: Path
) -> Iterator[Outcome]:
    def outcome_of(job: DyingJob) -> Outcome | None:
        nodes = free.get()
        guilty = nodes[job.guilty] if job.guilty is not None else ""
        try:
            return _outcome(job, partial(died, cluster, job, shared, nodes), cluster.version.name, guilty)
        finally:
            free.put(nodes)

    with ThreadPoolExecutor(beside) as pool:
        yield from filter(None, pool.map(outcome_of, jobs))


def _outcome(
    job: DyingJob | dying_jobs.DyingPod, case: Callable[[], dict[str, Any]], system: str, guilty: str = ""
) -> Outcome | None:
    """The conclusion about a job; None if it could not be run, with the reason on stderr."""
    try:
        report = case()
    except (RuntimeError, TimeoutError) as problem:
        sys.stderr.write(f"{system}, {job.name}: not run: {str(problem)[-500:]}\n")
        return None
    outcome = Outcome(job.name, job.name, job.cause, report["cause"], tuple(report["nodes"]), guilty, ALL)
    wrong = "" if outcome.is_right else f"; expected {job.cause} {guilty}: {report['ticket']}"
    sys.stderr.write(f"{system}, {job.name}: {outcome.said}{wrong}\n")
    return outcome
