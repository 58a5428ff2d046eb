"""The limit on drained nodes with a real slurmctld, whose nodes all find a fault at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import control, our_drains
from clusterproof.integrations.slurm.control import SlurmError
from clusterproof.integrations.slurm.settings import HealthCheck
from tests.integrations.slurm.at_once import drain_at_once
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_cpu
from tests.testbed.slurm import SlurmBed, slurm
from tests.testbed.slurm_version import IN_TURN

pytestmark = needs_slurm

NODES = 50  # test_limits.py has 200
NAMES = tuple(f"many{number:03}" for number in range(1, NODES + 1))
TEN = HealthCheck(max_drained_percent=20, max_drained_nodes=10)

# Cloud nodes can be idle, drained and resumed without a slurmd.
MANY = (
    "PrivateData=cloud",
    f"NodeName=many[001-{NODES}] CPUs=4 NodeAddr=127.0.0.1 State=CLOUD",
    f"PartitionName=many Nodes=many[001-{NODES}] State=UP",
)


@pytest.fixture(scope="module", params=IN_TURN)
def bed(request: pytest.FixtureRequest) -> Iterator[SlurmBed]:
    with slurm({"gpu001": healthy_cpu()}, settings=MANY, version=request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def on_the_controller(bed: SlurmBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Slurm's commands on the controller, with a timeout that suits two processors."""

    def answer(*command: str) -> str:
        done = bed.controller.run(command, env=control.TIMES, timeout=600)
        if done.returncode:
            raise SlurmError(done.stderr.decode())
        return done.stdout.decode()

    monkeypatch.setattr(control, "output_of", answer)


def drained(bed: SlurmBed) -> list[str]:
    return bed.output_of("sinfo", "-h", "-N", "-p", "many", "-t", "drain", "-o", "%N").split()


def test_no_more_than_the_limit_of_fifty_in_one_moment_stay_drained(
    bed: SlurmBed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(our_drains, "MAX_RANDOM_WAIT_S", 0.0)
    settled = drain_at_once(NAMES, tmp_path, TEN)
    assert len(drained(bed)) == 10
    assert settled.count(True) == 10
    for name in drained(bed):
        control.resume(name)


def test_where_as_many_were_drained_and_resumed_others_may_be(bed: SlurmBed, tmp_path: Path) -> None:
    for name in NAMES[:10]:
        control.drain(name, "clusterproof: gpu.no_xid: Xid 79")
        control.resume(name)
        assert bool(bed.reason(name)) is bed.version.keeps_reason
    assert drain_at_once(NAMES[-1:], tmp_path, TEN) == [True]
    assert drained(bed) == [NAMES[-1]]
