"""What PyTorch's watchdog, Gloo and JAX say of who waited for whom.

Ranks count the collectives of the group of all ranks. One that has enqueued as many as the others have completed has
not called the one in which they wait, or is still within that call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from clusterproof.plugins.case import Lead
from clusterproof.plugins.catalog.causes import limits
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.training_run import rank_names

_WAITED = re.compile(r"ran for (\d{1,12}) milliseconds|Timed out waiting (\d{1,12})ms")  # NCCL's watchdog, Gloo
_DESYNC = re.compile(r"\[(\d{1,7})\] (finished collective #\d{1,12}, but didn't join collective #\d{1,12})")
_OF_ALL = r"\[PG (?:ID )?0 (?:PG GUID 0 ?)?(?:\(default_pg\) )?Rank (\d{1,7})\]"
_LAST = r"ast enqueued (?:\w{1,20} )?work: (-?\d{1,18}),"
_STATUS = re.compile(rf"{_OF_ALL} [^:]{{1,100}}: (\d{{1,18}})(?:,| PG status:) l{_LAST}")
_ON_SIGNAL = re.compile(rf"{_OF_ALL} Received a dump signal .{{1,160}} L{_LAST}")
_WAITS = ("Watchdog caught collective operation timeout", " detected by watchdog", "Timeout at NCCL work")
_BARRIER = re.compile(
    r"while waiting for send/recv from rank (\d{1,7})\. Please check rank"
    r"|\bRanks? (\d{1,7}(?:, \d{1,7}){0,200}) failed to pass monitoredBarrier"
)
_NO_HEARTBEAT = re.compile(r"Task /job:jax_worker/replica:\d{1,7}/task:(\d{1,7}) heartbeat timeout")
NONE_ENQUEUED = -1
FIRST = 1


def waited_s(line: str) -> float:
    """How long a rank reports that it waited; 0 if no timeout is so long."""
    match = _WAITED.search(line)
    seconds = int(match[1] or match[2]) / 1000 if match else 0.0
    return seconds if seconds <= limits().longest_wait_s else 0.0


@record
class Watchdog:
    """Collects it line by line, by rank."""

    lagging: dict[int, str] = field(default_factory=dict)  # as others name them, and how
    waits_in: dict[int, int] = field(default_factory=dict)  # the number of the collective that did not end
    enqueued: dict[int, int] = field(default_factory=dict)  # the number of the last one
    waiting: set[int] = field(default_factory=set)  # ranks that wait themselves, in whichever group

    def take(self, line: str, rank: int | None) -> None:
        """Read a line of a rank."""
        if desync := _DESYNC.search(line):
            self.lagging[int(desync[1])] = desync[2]
        if "onitoredBarrier" in line and (barrier := _BARRIER.search(line)):
            for missing in (barrier[1] or barrier[2]).split(", "):
                self.lagging[int(missing)] = "did not come to a barrier, as another rank tells it"
        if "heartbeat timeout" in line and (silent := _NO_HEARTBEAT.search(line)):
            self.lagging[int(silent[1])] = "gave no heartbeat, as JAX's coordination service tells it"
        if rank is not None and any(words in line for words in _WAITS):
            self.waiting.add(rank)
        if "[PG " not in line:
            return
        if status := _STATUS.search(line):
            self.waits_in[int(status[1])] = int(status[2])
            self.enqueued[int(status[1])] = int(status[3])
        elif signal := _ON_SIGNAL.search(line):
            self.enqueued[int(signal[1])] = int(signal[2])


def leads(watchdogs: Iterable[Watchdog], nodes: Mapping[int, str]) -> Iterator[Lead]:
    """The ranks that wait for none, and had not enqueued the collective in which more wait for them."""
    whole = Watchdog()
    for watchdog in watchdogs:
        whole.waits_in.update(watchdog.waits_in)
        whole.enqueued.update(watchdog.enqueued)
        whole.waiting.update(watchdog.waiting)
        yield from (Lead(rank, message, nodes.get(rank, "")) for rank, message in watchdog.lagging.items())
    idle = {rank: last for rank, last in whole.enqueued.items() if rank not in whole.waiting}
    ranks_after, ranks_in = _by_number(idle), _by_number(whole.waits_in)
    for number, waiting in sorted(ranks_in.items()):
        late = ranks_after.get(NONE_ENQUEUED if number == FIRST else number - 1, [])
        if len(late) < len(waiting):
            words = f"had not enqueued collective {number} of all ranks, in which {rank_names(waiting)} waited"
            yield from (Lead(rank, words, nodes.get(rank, "")) for rank in late)


def _by_number(numbers: Mapping[int, int]) -> dict[int, list[int]]:
    """The ranks of each number."""
    ranks: dict[int, list[int]] = {}
    for rank, number in sorted(numbers.items()):
        ranks.setdefault(number, []).append(rank)
    return ranks
