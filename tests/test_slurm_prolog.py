"""Slurm's prolog and epilog, end to end: a real Slurm drains real nodes, and says why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults import BY_NAME
from tests.slurm_scripts import Scripted, lines, scripted
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5

pytestmark = needs_slurm

FAULTS = {
    "gpu001": ("a GPU that is lost", "gpu.gpu_answers: GPU 3: the driver says GPU_IS_LOST"),
    "gpu002": ("uncorrected errors in DRAM", "gpu.no_uncorrected_ecc: GPU 1: uncorrected ECC errors: 14 in DRAM"),
    "gpu003": ("an NVLink that is down", "gpu.nvlink_active: GPU 7: NVLink 5 inactive"),
    "gpu004": ("an Xid of the hardware", "gpu.no_xid: Xid 79 (GPU has fallen off the bus) at 0000:53:00.0 (GPU 0"),
    "gpu005": ("an EFA device that is missing", "network.efa_count: 31 EFA devices"),
}
HEALTHY = "gpu009"


@pytest.fixture(scope="module")
def bed() -> Iterator[Scripted]:
    images = {name: BY_NAME[fault].put(healthy_p5(name)) for name, (fault, _) in FAULTS.items()}
    images[HEALTHY] = healthy_p5(HEALTHY)
    toml = 'mode = "drain"\n'
    with scripted(
        images,
        lines("prolog", "epilog"),
        toml,
        "SchedulerParameters=nohold_on_prolog_fail,defer_batch,sched_interval=1,bf_interval=1",
    ) as running:
        yield running


@pytest.fixture(scope="module")
def jobs(bed: Scripted) -> dict[str, str]:
    """A job for each sick node that may run on the healthy one as well."""
    return {name: bed.submit(name, HEALTHY) for name in FAULTS}


def test_a_job_on_a_healthy_node_starts(bed: Scripted) -> None:
    assert bed.ran_on(bed.submit(HEALTHY)) == HEALTHY
    assert bed.bed.reason(HEALTHY) == ""


@pytest.mark.parametrize("name", FAULTS)
def test_a_node_with_a_fault_drains_with_our_reason_and_the_job_goes_elsewhere(
    bed: Scripted, jobs: dict[str, str], name: str
) -> None:
    assert bed.reason_beginning(name, f"clusterproof: {FAULTS[name][1]}")
    assert bed.ran_on(jobs[name]) == HEALTHY
    assert f"{name}|clusterproof: " in bed.listed()
