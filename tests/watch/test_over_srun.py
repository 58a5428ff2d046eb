"""A watch over srun: a step in one's own job on each node, which ends with who watches and holds no place."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.watch.command import why_not_watched
from tests.testbed.needs import needs_slurm
from tests.testbed.slurm import CONTROLLER, SlurmBed
from tests.watch.slurm_job import NAMES, TIMEOUT_S, interrupt, job, steps, until, watching
from tests.watch.watched_bed import log, samplers

pytestmark = needs_slurm

XID_48 = "NVRM: Xid (PCI:0000:53:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) in DRAM"


def scraped(bed: SlurmBed) -> str:
    """What Prometheus reads on the controller."""
    ask = "import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen('http://127.0.0.1:9188/metrics').read())"
    return bed.output_of(sys.executable, "-c", ask)


def watts(bed: SlurmBed) -> set[str]:
    """The GPUs whose power is reported, by the labels that distinguish them."""
    return set(re.findall(r'gpu_power_watts\{cluster="[^"]*",(gpu="\d",node="\w+")\} \d', scraped(bed)))


def test_what_happens_on_nodes_of_a_job_is_said_and_the_end_leaves_no_step(bed: SlurmBed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with job(bed, user=0) as number:
        before = steps(bed)
        process = watching(bed, out, "--cluster", f"slurm:job:{number}", "--listen", ":9188", user=0)
        until(lambda: sum("clusterproof-watch" in one for one in steps(bed)) == len(NAMES), out.read_text)
        log(bed.node("gpu002"), XID_48)
        until(lambda: "FAIL        gpu002 GPU" in out.read_text() and "Xid 48" in out.read_text(), out.read_text)
        until(lambda: {f'gpu="{gpu}",node="{name}"' for gpu in range(8) for name in NAMES} <= watts(bed), out.read_text)
        assert 'clusterproof_watch_findings{check="gpu.no_xid"' in scraped(bed)
        interrupt(process)
        assert process.wait(TIMEOUT_S) == 1
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
            "without a job, it would occupy each node for as long as it runs; expected slurm:job:ID",
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
