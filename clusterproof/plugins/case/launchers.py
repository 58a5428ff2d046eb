"""What launchers report about the end of ranks. They poll, so this is no order of causes."""

from __future__ import annotations

import re

from clusterproof.plugins.case import Span, label
from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.core.record import record

_ROOT_CAUSE = "Root Cause (first observed failure)"
BY_TASK = "ended first, as "  # the number is that of a launcher's task
_SRUN = re.compile(r"srun: error: [\w.-]{1,253}: task (\d{1,7}): Exited with exit code (\d{1,3})")
_MPIRUN = re.compile(  # of [[…,0],…], its daemons, nothing is known
    r"(?:Process name: \[(?:\[\d{1,10},1\]|[\w.-]{1,253}@1),| noticed that process rank )(\d{1,7})\b"
)
_MPI_ABORT = re.compile(  # a duplicate of communicator 0 is of all ranks too, as that of mpi4py and of Horovod
    r"MPI_ABORT was invoked on rank (\d{1,7}) in communicator (?:MPI_COMM_WORLD|MPI COMMUNICATOR \d{1,9} DUP FROM 0\b)"
)
_HYDRA = re.compile(r"=   RANK (\d{1,7}) PID \d{1,10} RUNNING AT ")
_HYDRA_SIGNAL = re.compile(r"=   KILLED BY SIGNAL: (\d{1,3}) \(")
_BY_OTHERS = ("9", "15")  # SIGKILL, which it sends to all others, and SIGTERM


class FirstEnd:
    """Collects line by line whose end a launcher reports first: in `ranks`, which and how; usually one."""

    def __init__(self) -> None:
        self.ranks: dict[int, str] = {}
        self.is_root = False
        self.of_hydra: int | None = None  # the rank of which its report is

    def take(self, line: str, failed: int | None) -> None:
        """Read a line; `failed` is the rank whose failure in torchrun's report it completes."""
        self.is_root = self.is_root or _ROOT_CAUSE in line
        if failed is not None and self.is_root:
            self.is_root = False
            self.ranks[failed] = "failed first, as its launcher saw it"
        elif self.ranks:
            return
        elif srun := _SRUN.search(line):
            self.ranks[int(srun[1])] = f"{BY_TASK}srun tells it, with exit code {srun[2]}"
        elif mpirun := _MPIRUN.search(line) or _MPI_ABORT.search(line):
            by_itself = ", by MPI_Abort" if mpirun.re is _MPI_ABORT else ""
            self.ranks[int(mpirun[1])] = f"{BY_TASK}mpirun tells it{by_itself}"
        elif hydra := _HYDRA.search(line):
            self.of_hydra = int(hydra[1])
        elif self.of_hydra is not None and (signal := _HYDRA_SIGNAL.search(line)) and signal[1] not in _BY_OTHERS:
            self.ranks[self.of_hydra] = f"{BY_TASK}Hydra tells it, by signal {signal[1]}"


def without_tasks(ended: dict[int, str]) -> dict[int, str]:
    """Only ranks, where a launcher's tasks are none."""
    return {rank: how for rank, how in ended.items() if not how.startswith(BY_TASK)}


_FIELD = re.compile(r"(time|host|rank|exitcode)\s{0,9}: {1,3}(\S{1,253})(?: \(pid: (\d{1,10})\))?")
_LOCAL_RANK = re.compile(r" \(local_rank: (\d{1,7})\)")
NOT_A_NAME = "localhost"  # a machine's name alone
_BEGINS = "time"


@record
class FailedProcess:
    """One process that failed, as its node's torchrun agent saw it; the agent polls, so the time is when it noticed."""

    rank: int
    node: str
    when: Span
    pid: int | None = None
    local_rank: int = 0


class TorchrunReport:
    """Collects the blocks of torchrun's report, one for each node, line by line."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.fields: dict[str, str] = {}
        self.local_rank = 0

    def take(self, line: str) -> FailedProcess | None:
        """The failure that this line, with its code, completes."""
        match = _FIELD.search(line) if " : " in line else None
        if not match:
            return None
        name, value, pid = match.groups()
        self.fields = {name: value} if name == _BEGINS else {**self.fields, name: value}
        if name == "rank":
            self.local_rank = int(local[1]) if (local := _LOCAL_RANK.match(line, match.end())) else 0
        rank = self.fields.get("rank", "")
        if name != "exitcode" or not (rank.isdecimal() and rank.isascii() and len(rank) <= 7):
            return None
        node = label(self.fields.get("host", ""))
        when = self.clock.of(self.fields.get("time", ""))
        pid_or_none = int(pid) if pid else None
        return FailedProcess(int(rank), "" if node == NOT_A_NAME else node, when, pid_or_none, self.local_rank)
