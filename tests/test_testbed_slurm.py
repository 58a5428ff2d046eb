"""A real Slurm over fake nodes: what the other tests take for granted of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_cpu, healthy_p5
from tests.testbed.slurm import SlurmBed, slurm

pytestmark = needs_slurm


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    with slurm({"gpu001": healthy_p5("gpu001"), "gpu002": healthy_cpu()}) as running:
        yield running


def test_a_job_runs_on_every_node_with_its_gpus(bed: SlurmBed) -> None:
    told = bed.told("srun", "-N2", "--gres=gpu:8", "--label", "sh", "-c", "echo $(hostname) $SLURM_STEP_GPUS")
    assert sorted(told.splitlines()) == ["0: gpu001 0,1,2,3,4,5,6,7", "1: gpu002 0,1,2,3,4,5,6,7"]


def test_a_drained_node_says_why(bed: SlurmBed) -> None:
    bed.told("scontrol", "update", "NodeName=gpu002", "State=DRAIN", "Reason=a fan is loud")
    assert bed.wait_for("gpu002", "IDLE+DRAIN") == "IDLE+DRAIN"
    assert bed.reason("gpu002").startswith("a fan is loud [root@")
    bed.told("scontrol", "update", "NodeName=gpu002", "State=RESUME")
    assert bed.wait_for("gpu002", "IDLE") == "IDLE"
    assert bed.reason("gpu002") == ""
