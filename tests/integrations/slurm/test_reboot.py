"""An administrator has Slurm reboot a node that the health check has drained, as a remedy advises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults import BY_NAME
from tests.integrations.slurm.scripts import DRAIN, Scripted, eventually, lines, scripted
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5
from tests.testbed.slurm_version import IN_TURN

pytestmark = needs_slurm

SICK = "gpu001"


@pytest.fixture(scope="module", params=IN_TURN)
def bed(request: pytest.FixtureRequest) -> Iterator[Scripted]:
    with scripted({SICK: healthy_p5(SICK)}, lines("health-check"), DRAIN, version=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def job(bed: Scripted) -> str:
    """A job that waits for the reboot of its drained node, which recovers meanwhile."""
    job = bed.submit(SICK, script="sleep 601")
    assert eventually(lambda: bed.processes(SICK, "sleep 601"))
    bed.nvml(SICK, BY_NAME["a GPU that is lost"].put(healthy_p5(SICK)))
    bed.once_more(SICK)
    assert bed.bed.reason(SICK).startswith("clusterproof: gpu.gpu_answers: ")
    bed.bed.output_of("scontrol", "reboot", SICK)
    bed.nvml(SICK, healthy_p5(SICK))
    return job


def test_a_reboot_that_waits_is_not_cancelled_by_a_resume(bed: Scripted, job: str) -> None:
    assert "REBOOT_REQUESTED" in bed.bed.state(SICK)
    assert "stays drained until it is rebooted" in bed.once_more(SICK)
    assert "DRAIN+REBOOT_REQUESTED" in bed.bed.state(SICK)


def test_after_the_reboot_the_drain_is_still_ours_and_the_node_is_resumed(bed: Scripted, job: str) -> None:
    bed.bed.run("scancel", job)
    assert eventually(lambda: bed.bed.state(SICK) if "REBOOT_ISSUED" in bed.bed.state(SICK) else "")
    bed.node(SICK).run(["pkill", "-KILL", "-x", "slurmd"])
    bed.node(SICK).start(["/bin/sh", "-c", f"exec slurmd -D -b -N {SICK}"])  # -b: reports a reboot
    bed.bed.wait_for(SICK, "IDLE+DRAIN")
    assert bed.bed.reason(SICK).partition(" [")[0].endswith(" : reboot issued")
    bed.once_more(SICK)
    assert bed.bed.wait_for(SICK, "IDLE") == "IDLE"
