"""A file system that hangs under a real Slurm: no job waits for it longer than until the next health check."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integrations.slurm.scripts import DRAIN_ANEW, Scripted, eventually, lines, scripted
from tests.testbed.needs import needs_hung_mount, needs_slurm
from tests.testbed.node import healthy_p5, with_hung_mount

pytestmark = [needs_slurm, needs_hung_mount]

NAME = "gpu001"


@pytest.fixture
def bed() -> Iterator[Scripted]:
    """A node with a file system that never answers."""
    images = {NAME: with_hung_mount(healthy_p5(NAME), "/data")}
    with scripted(images, lines("prolog", "epilog", "health-check"), DRAIN_ANEW, "HealthCheckInterval=0") as running:
        yield running


def health_check(bed: Scripted) -> str:
    bed.node(NAME).run(["/etc/slurm/health-check"], env={"SLURMD_NODENAME": NAME})
    return bed.logged(NAME)


def prolog(bed: Scripted) -> str:
    assert bed.ran_on(bed.submit(NAME)) == NAME
    return bed.logged(NAME)


def test_a_file_system_that_hangs_drains_at_the_health_check_and_not_in_a_prolog(bed: Scripted) -> None:
    says = "storage.mounts_alive: /data: fuse.sshfs from testbed"
    message = f"incomplete: {says} did not answer at once"
    assert eventually(lambda: log if message in (log := prolog(bed)) else "")  # a busy node may not get to it
    health_check(bed)
    assert bed.reason_beginning(NAME, f"clusterproof: {says} hangs; expected an answer")
    bed.node(NAME).run(["umount", "-l", "/data"])
    assert "resumes, as all pass" in eventually(lambda: text if "resumes" in (text := health_check(bed)) else "")
    assert bed.bed.wait_for(NAME, "IDLE") == "IDLE"
