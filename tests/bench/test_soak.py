"""The soak that `make soak` runs, small: no sick node is missed, no healthy one kept, no administrator overruled."""

from __future__ import annotations

import json

import pytest

from bench.soak import Soak, soak
from tests.testbed.needs import needs_slurm
from tests.testbed.slurm_version import IN_TURN, SlurmVersion

pytestmark = [needs_slurm]

JOBS = 20


@pytest.mark.parametrize("version", IN_TURN)
def test_a_small_soak_finds_nothing_that_should_not_have_been(version: SlurmVersion) -> None:
    tally = soak(Soak(JOBS, nodes=2, version=version), timeout_s=600.0)
    assert list(json.loads(json.dumps(tally.figures()))) == [
        "jobs",
        "faults",
        "upgrades",
        "reasons",
        "sick_missed",
        "healthy_left_drained",
        "admin_touched",
    ]
    assert tally.jobs >= JOBS
    assert tally.faults >= 3  # one of each node's own, and one that is there at the end
    assert tally.is_clean, tally
