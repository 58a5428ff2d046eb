"""On which node each rank ran, from lines of different reliability; and its process."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from clusterproof.plugins.case import label

# How reliable a placement is: the size of a communicator of NCCL, or one of these. A communicator of some ranks, as of
# tensor parallelism, has a rank 3 on every node; a launcher's task 3 is no rank if each task is a torchrun.
SAID = math.inf  # the line names the rank
OF_TASK = 1e9
Process = tuple[str, str]  # node and pid
_NCCL = re.compile(
    r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,252}):(\d{1,10}):\d{1,10} \[\d{1,3}\] (?:[\w./-]{1,100}:\d{1,6} )?NCCL "
)
_NCCL_RANK = re.compile(r" comm 0x[0-9a-f]{1,16} rank (\d{1,7}) nranks (\d{1,7}) ")


@dataclass(slots=True)
class RankNodes:
    """The node and process of each rank. Of equally large communicators that disagree, none is believed."""

    nodes: dict[int, str] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    reliability: dict[int, float] = field(default_factory=dict)
    are_torchruns: bool = False  # whether a launcher's tasks are known to have several ranks each
    forgotten: dict[int, str] = field(default_factory=dict)  # nodes by task, which were taken for those of ranks
    _communicators: dict[Process, tuple[int, int]] = field(default_factory=dict)  # the largest: size, and rank in it
    _said: dict[Process, int] = field(default_factory=dict)  # ranks that lines name
    _of_tasks: dict[tuple[int, int], tuple[Process, int]] = field(default_factory=dict)  # by task and size: the first

    def place(self, rank: int, node: str, reliability: float = SAID, pid: int | None = None) -> None:
        """Take a rank's node from a line. The last of several counts, as after a restart."""
        if not node:
            if pid is not None:
                self.pids[rank] = pid
            return
        known, is_elsewhere = self.reliability.get(rank, 0.0), self.nodes.get(rank) != node
        if is_elsewhere and {reliability, known} == {OF_TASK, SAID}:
            self.forget_tasks()
        if reliability < known or (reliability == OF_TASK and self.are_torchruns):
            return
        if is_elsewhere and known:
            self.pids.pop(rank, None)
        if is_elsewhere and reliability == known < OF_TASK:
            self.nodes.pop(rank, None)
            return
        self.nodes[rank], self.reliability[rank] = node, reliability
        if pid is not None:
            self.pids[rank] = pid

    def of_nccl(self, line: str, node: str, rank: int | None, task: int | None) -> tuple[int | None, str] | None:
        """The rank and node of a line of NCCL's; None for another's. Its rank, task and node as far as known."""
        match = _NCCL.search(line) if " NCCL " in line else None
        if not match:
            return None
        process = node or label(match[1]), match[2]
        rank = self._said.get(process) if rank is None else self._said.setdefault(process, rank)
        if joined := _NCCL_RANK.search(line):
            self._join(process, int(joined[2]), int(joined[1]), task if rank is None else None)
        return self._place_process(process, rank, task), label(match[1])

    def _join(self, process: Process, size: int, number: int, task: int | None) -> None:
        """Take a process that is rank `number` of a communicator of this size.

        Of equally large ones its first counts, in which a task that is started again has the same number.
        """
        if size <= self._communicators.get(process, (0, 0))[0]:
            return
        self._communicators[process] = size, number
        if task is not None:
            other, of_other = self._of_tasks.setdefault((task, size), (process, number))
            if other != process and of_other != number:
                self.forget_tasks()

    def _place_process(self, process: Process, rank: int | None, task: int | None) -> int | None:
        """Place a rank on its process's node, and return it: the line's own, the task, or that of its communicator."""
        node, pid = process
        size, number = self._communicators.get(process, (0, 0))
        if rank is not None:
            self.place(rank, node, SAID, int(pid) if size else None)
        elif task is not None and not self.are_torchruns:
            self.place(rank := task, node, OF_TASK, int(pid) if size else None)
        elif size:
            self.place(rank := number, node, size, int(pid))
        return rank

    def forget_tasks(self) -> None:
        """Forget what only tasks say, and place their processes by their communicators."""
        if self.are_torchruns:
            return
        self.are_torchruns = True
        for rank in [rank for rank, known in self.reliability.items() if known == OF_TASK]:
            self.forgotten[rank] = self.nodes.pop(rank)
            del self.reliability[rank]
            self.pids.pop(rank, None)
        for process, _ in list(self._of_tasks.values()):
            self._place_process(process, None, None)
