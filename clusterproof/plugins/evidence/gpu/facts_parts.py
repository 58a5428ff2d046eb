"""Parts of what NVML reports of a GPU: the processes that hold it, and the error counters of its NVLinks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Protocol
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import UNSUPPORTED, Field, Reported, integer, optional, table, text, word

USERS_OWN = ("/user.slice/", "/../user.slice/")
MPS_CONTROL = "nvidia-cuda-mps-control"
MPS = (MPS_CONTROL, "nvidia-cuda-mps-server", "nvidia-cuda-mps")  # serve jobs, belong to none; the kernel cuts names
BIT_ERROR_RATES = ("effective_ber", "symbol_ber")
MAX_WORD = 20  # characters of a name that a node gives to a counter or a link


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


@record
class NvlinkErrors:
    """An error counter or bit error rate of one NVLink; `count` is None if it could not be read."""

    kind: str
    link: str
    count: float | None

    @property
    def is_rate(self) -> bool:
        """Whether it is a bit error rate."""
        return self.kind in BIT_ERROR_RATES


def nvlink_errors(kinds: Mapping[str, object]) -> Iterator[NvlinkErrors]:
    """The counters that a node reports: non-zero or unreadable. Raises Incomplete if it has none of any kind."""
    supported = {kind: links for kind, links in kinds.items() if not is_unsupported(links)}
    if not supported:
        raise Incomplete("no NVLink error counter was reported", cause="not reported by the node")
    for kind, links in supported.items():
        yield from _of_kind(kind, links)


def is_unsupported(answer: object) -> bool:
    """Whether an answer means that the driver does not support the query."""
    return isinstance(answer, dict) and isinstance(word := answer.get("error"), str) and word in UNSUPPORTED


def _of_kind(kind: str, links: object) -> Iterable[NvlinkErrors]:
    """Those of one kind of counter, by link; one without a count if that kind is unreadable."""
    try:
        counts = table(links)
    except TypeError:
        return [NvlinkErrors(kind[:MAX_WORD], "", None)]
    return [NvlinkErrors(kind[:MAX_WORD], link[:MAX_WORD], _count(kind, count)) for link, count in counts.items()]


def _count(kind: str, data: object) -> float | None:
    if kind in BIT_ERROR_RATES:
        return data if type(data) is float and 0 <= data <= 1 else None
    return data if type(data) is int else None
