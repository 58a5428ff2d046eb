"""The processes that hold a GPU, and their owners."""

from __future__ import annotations

from collections.abc import Container

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Protocol
from clusterproof.plugins.evidence.field import Field, Reported, integer, optional, table, text, word

USERS_OWN = ("/user.slice/", "/../user.slice/")
MPS_CONTROL = "nvidia-cuda-mps-control"
MPS = (MPS_CONTROL, "nvidia-cuda-mps-server", "nvidia-cuda-mps")  # serve jobs, belong to none; the kernel cuts names


class Daemons(Protocol):
    """Facts from which the users of the driver's daemons are known."""

    @property
    def daemon_users(self) -> Container[int]:
        """The users as whom they run. Raises Incomplete."""


@record
class GpuProcess(Reported):
    """A process that holds a GPU; `cgroup` shows its Slurm job. It chooses its own name."""

    pid = Field(integer)
    memory_mib = Field(optional(integer))
    name = Field(word)
    cgroup = Field(text)
    pod = Field(optional(text))  # the uid of the pod in whose control group it runs; None where that is no pod's
    uid = Field(integer)
    program = Field(text)  # the file name of its executable; empty where only root may know
    parent = Field(table)  # the uid and the program of its parent, where it has one here

    @property
    def is_of_a_job(self) -> bool:
        """Whether it runs inside a Slurm job's or a pod's control group; below user.slice users make their own."""
        own = self.cgroup.startswith(USERS_OWN)
        return not own and any(mark in self.cgroup for mark in ("/job_", "/kubepods"))

    def serves_jobs(self, nvml: Daemons) -> bool:
        """Whether it is CUDA's MPS run by root: its servers run as their clients' users. Raises Incomplete.

        One started by a user is an ordinary process of theirs.
        """
        if self.name not in MPS:
            return False
        users = nvml.daemon_users
        if self.uid in users:
            return (self.program or self.name) in MPS
        starter = self.parent  # empty, where it is outside of what /proc shows
        is_started = starter.get("program") == MPS_CONTROL and starter.get("uid") in users
        return is_started and self.program in MPS
