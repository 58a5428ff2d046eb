"""A real Slurm over fake nodes: properties that other tests rely on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_cpu, healthy_p5
from tests.testbed.slurm import CONTROLLER, SlurmBed, slurm
from tests.testbed.slurm_version import VERSIONS

pytestmark = needs_slurm


@pytest.fixture(scope="module", params=VERSIONS)
def bed(request: pytest.FixtureRequest) -> Iterator[SlurmBed]:
    with slurm({"gpu001": healthy_p5("gpu001"), "gpu002": healthy_cpu()}, version=request.param) as running:
        yield running


def test_it_is_the_slurm_that_was_asked_for(bed: SlurmBed) -> None:
    version = bed.version
    assert bed.output_of("srun", "--version").startswith(f"slurm-wlm {version.name}.")
    assert f"slurmctld version {version.name}." in bed.whole_log(CONTROLLER)
    assert f"slurmd version {version.name}." in bed.whole_log("gpu001")


def test_a_job_runs_on_every_node_with_its_gpus(bed: SlurmBed) -> None:
    output = bed.output_of("srun", "-N2", "--gres=gpu:8", "--label", "sh", "-c", "echo $(hostname) $SLURM_STEP_GPUS")
    assert sorted(output.splitlines()) == ["0: gpu001 0,1,2,3,4,5,6,7", "1: gpu002 0,1,2,3,4,5,6,7"]


def test_a_drained_node_says_why_and_since_24_11_one_that_is_resumed_does_still(bed: SlurmBed) -> None:
    bed.output_of("scontrol", "update", "NodeName=gpu002", "State=DRAIN", "Reason=a fan is loud")
    assert bed.wait_for("gpu002", "IDLE+DRAIN") == "IDLE+DRAIN"
    assert bed.reason("gpu002").startswith("a fan is loud [root@")
    bed.output_of("scontrol", "update", "NodeName=gpu002", "State=RESUME")
    assert bed.wait_for("gpu002", "IDLE") == "IDLE"
    assert bed.reason("gpu002").startswith("a fan is loud [root@") is bed.version.keeps_reason
