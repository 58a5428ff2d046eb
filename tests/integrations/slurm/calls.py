"""Calls of scripts in this process, and the state that they remember in one folder."""

from __future__ import annotations

from pathlib import Path

from clusterproof.integrations.slurm.call import Call
from clusterproof.integrations.slurm.records import Log
from clusterproof.integrations.slurm.settings import HealthCheck, Settings
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import NO_JOB

NOWHERE = "/proc/nowhere"  # no folder can be made there


def state_in(folder: Path) -> State:
    """A state with all of its records in that folder, as there is none in /run."""
    return State(str(folder), NOWHERE)


def call_of(occasion: str, state: State, node: str = "gpu001", limits: HealthCheck | None = None) -> Call:
    """A call that drains, and logs to its standard error."""
    settings = Settings("drain", health_check=limits or HealthCheck())
    return Call(occasion, node, NO_JOB, settings, state, Log("test", ""))
