"""One Slurm per version for all tests of watches over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed.node import healthy_p5
from tests.testbed.slurm import SlurmBed, slurm
from tests.testbed.slurm_version import IN_TURN
from tests.watch.slurm_job import NAMES


@pytest.fixture(scope="package", params=IN_TURN)
def bed(request: pytest.FixtureRequest) -> Iterator[SlurmBed]:
    with slurm({name: healthy_p5(name) for name in NAMES}, version=request.param) as running:
        yield running
