"""The job and the node of a script's call, from Slurm's environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from clusterproof.plugins.core.record import record

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from clusterproof.integrations.slurm.state import State


@record
class Job:
    """A job, its user id, and its GPU numbers on this node: None if Slurm does not allocate GPUs."""

    id: str = ""
    uid: str = ""
    gpus: frozenset[int] | None = None

    @property
    def label(self) -> str:
        """`job 42`, or empty without a job."""
        return f"job {self.id}" if self.id else ""

    @property
    def record(self) -> str:
        """The name of its record, kept until its epilog, or longer if that gives no verdict."""
        return f"jobs/{self.id}"


def job_of(environment: Mapping[str, str]) -> Job:
    """The job of SLURM_JOB_ID, SLURM_JOB_UID and SLURM_JOB_GPUS."""
    number, uid = (environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_JOB_UID"))
    gpus = gpus_of(environment.get("SLURM_JOB_GPUS"))
    return Job(number if number.isdecimal() else "", uid if uid.isdecimal() else "", gpus)


def unevaluated(state: State) -> list[Job]:
    """The jobs whose epilog ended without a verdict."""
    records = {name.rpartition("/")[2]: state.read(name) for name in state.names("jobs")}
    return [
        Job(number, str(record.get("uid", ""))) for number, record in records.items() if record.get("is_unevaluated")
    ]


def node_of(environment: Mapping[str, str]) -> str:
    """The node's name in Slurm, which may differ from the host name; by default its short host name."""
    return environment.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0] or "localhost"


def gpus_of(listed: str | None) -> frozenset[int] | None:
    """Parse `0,2-3`; None if unset, or invalid."""
    if not listed:
        return None
    numbers: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or len(first + last) > 8:
            return None
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)
