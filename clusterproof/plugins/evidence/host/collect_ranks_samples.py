"""The processes of a job's ranks while a node is watched: the state of each one's main thread."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.host.collect_owner import owner
from clusterproof.plugins.evidence.host.collect_processes import stat_of, wait_of

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from collections.abc import Iterable

LOOK_S = 9.5  # at all processes
MAX_RANKS = 128
MAX_NUMBER, MAX_JOB = 9, 80  # characters
# Variables for a rank's number, the number of ranks, and the job: torchrun and similar, then Open MPI.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", ("MASTER_ADDR", "MASTER_PORT")),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("PMIX_NAMESPACE",)),
)
STATE, USER_TICKS, KERNEL_TICKS, THREADS, START, ENVIRON = 2, 13, 14, 19, 21, 49  # fields of /proc/PID/stat
HIDDEN = "0"  # where its environment lies, to whom may not know
BLOCKED = "D"


class Sampler:
    """Finds ranks; a process's environment is read once, until it executes another program."""

    def __init__(self, node: Node) -> None:
        self._looked = -LOOK_S
        self._known: dict[tuple[str, ...], tuple[int, int, str] | None] = {}  # None: it is no rank
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        node.names("/proc")

    def fixed(self) -> object:
        """Nothing."""
        return None

    def sample(self, node: Node) -> dict[str, object]:
        """For each rank: number, total, job, state, what it waits in, and CPU seconds."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return {}
        self._looked = now
        known, self._known = self._known, {}
        ranks: dict[tuple[int, int, str], list[str]] = {}
        for pid in node.pids():
            fields = stat_of(node, pid)
            if not fields:
                continue
            process = (pid, fields[START], *fields[ENVIRON : ENVIRON + 1])
            if process not in known and fields[STATE] == BLOCKED:
                continue  # its environment may be locked
            rank = known[process] if process in known else _rank(node, fields)
            if rank or process[-1] != HIDDEN:
                self._known[process] = rank
            if rank and (rank not in ranks or _threads(fields) > _threads(ranks[rank])):  # loaders of data have few
                ranks[rank] = fields
        shown = _in_turn(sorted(ranks))[:MAX_RANKS]
        return {"values": [[*rank, *self._waits(node, ranks[rank])] for rank in sorted(shown)]} if shown else {}

    def _waits(self, node: Node, fields: list[str]) -> tuple[str, str, float]:
        pid = fields[0]
        main = stat_of(node, f"{pid}/task/{pid}") or fields
        ticks = int(main[USER_TICKS]) + int(main[KERNEL_TICKS])
        return main[STATE], wait_of(node, pid), ticks / self._ticks_per_s


def _threads(fields: list[str]) -> int:
    return int(fields[THREADS])


def _in_turn(ranks: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Each user's first, then each one's second, so that nobody's processes displace another's."""
    seen: dict[str, int] = {}
    places = []
    for rank in ranks:
        user = rank[2].partition("@")[0]
        seen[user] = seen.get(user, 0) + 1
        places.append((seen[user], rank))
    return [rank for _, rank in sorted(places)]


def _rank(node: Node, fields: list[str]) -> tuple[int, int, str] | None:
    """The rank of a process, from its environment."""
    text = node.text(f"/proc/{fields[0]}/environ", absent="")
    variables = dict(_pairs(text.split("\0"))) if isinstance(text, str) else {}
    for rank, size, names in LAUNCHERS:
        numbers = [variables.get(rank, ""), variables.get(size, "")]
        if all(number.isascii() and number.isdecimal() and len(number) <= MAX_NUMBER for number in numbers):
            job = ":".join(variables.get(name, "") for name in names)
            return int(numbers[0]), int(numbers[1]), f"{_owner(node, fields[0])}@{job}"[:MAX_JOB]
    return None


def _owner(node: Node, pid: str) -> str:
    """The user of a process: anybody may copy the environment of another's job."""
    try:
        return str(owner(node, pid))
    except OSError:
        return ""  # it has ended meanwhile


def _pairs(texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    return (word.split("=", 1) for word in texts if "=" in word)  # type: ignore[misc]
