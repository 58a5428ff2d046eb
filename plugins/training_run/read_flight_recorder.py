"""Dumps of PyTorch's Flight Recorder, one for each rank: pickles, of which nothing but plain data is let in."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.records import RunError
from clusterproof.plugins.training_run.unpacked import Unpacked

MAX_BYTES = 256 << 20  # of one dump, unpacked: a ring of some 100,000 operations
MAX_RANKS = 1_000_000  # of a process group
PICKLE = b"\x80"
ENDED = "completed"
_RANK = re.compile(r"([0-9]{1,7})(?:\.[A-Za-z]\w*)*$")  # `nccl_trace_rank_12`, `_dump_12.pickle`
EXPECTED = "expected what TORCH_NCCL_DUMP_ON_TIMEOUT writes"


@record
class Status:
    """How far a rank has come in a process group: the last collective that it has enqueued, and that has ended."""

    enqueued: int
    ended: int


@record
class Pending:
    """The first collective of a process group that a rank has enqueued and that has not ended."""

    number: int
    name: str  # `all_to_all`


@record
class Dump:
    """What one rank tells: its process groups by name, and how far it has come in each."""

    rank: int
    members: Mapping[str, tuple[int, ...]]  # of each group: its ranks
    words: Mapping[str, str]  # of each group: what it is for, `TENSOR_MODEL_PARALLEL_GROUP`
    pending: Mapping[str, Pending]
    enqueued: Mapping[str, int]  # of those of which the ring has an operation
    local: Mapping[str, str]  # of each group: the number by which this rank alone knows it
    status: Mapping[str, Status]  # by that number
    pending_p2p: int = 0  # sends and receives that have not ended


class _NoClasses(pickle.Unpickler):
    """Refuses every class and function: plain data needs none, and code is made of them."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raises UnpicklingError."""
        raise pickle.UnpicklingError(f"it names {module}.{name}"[:200])


def is_dump(head: bytes) -> bool:
    """Whether a file that begins so may be a dump."""
    return head.startswith(PICKLE)


def read_dump(path: Path) -> Iterator[Dump]:
    """The dump. Raises RunError."""
    rank = _RANK.search(path.name)
    if not rank:
        raise RunError(f"{path}: the file's name does not end in its rank; expected one like nccl_trace_rank_12")
    data = _plain(path)
    try:
        yield _dump(int(rank[1]), data)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as wrong:
        raise RunError(f"{path}: {type(wrong).__name__}: {str(wrong)[:100]}; {EXPECTED}") from None


def _plain(path: Path) -> Any:
    data = bytearray()
    for piece in Unpacked(path):
        data += piece
        if len(data) > MAX_BYTES:
            raise RunError(f"{path}: more than {MAX_BYTES:,} bytes; {EXPECTED}")
    try:
        return _NoClasses(io.BytesIO(data)).load()
    except Exception as wrong:  # a pickle that is damaged raises whatever it likes
        raise RunError(f"{path}: {type(wrong).__name__}: {str(wrong)[:200]}; {EXPECTED}, whole and plain") from None


def _dump(rank: int, data: Mapping[str, Any]) -> Dump:
    members, words = {}, {}
    for name, group in data["pg_config"].items():
        members[str(name)] = _ranks(group["ranks"])
        words[str(name)] = str(group.get("desc") or name)[:100]
    pending: dict[str, Pending] = {}
    pending_p2p = 0
    enqueued: dict[str, int] = {}
    local: dict[str, str] = {}
    for entry in data["entries"]:
        if entry["is_p2p"]:
            pending_p2p += entry["state"] != ENDED
            continue
        group, number = str(entry["process_group"][0]), int(entry["collective_seq_id"])
        local[group] = str(entry["pg_id"])
        enqueued[group] = max(number, enqueued.get(group, number))
        if entry["state"] != ENDED and (group not in pending or number < pending[group].number):
            pending[group] = Pending(number, str(entry["profiling_name"]).removeprefix("nccl:")[:100])
    status = {
        str(number): Status(int(one["last_enqueued_collective"]), int(one["last_completed_collective"]))
        for number, one in (data.get("pg_status") or {}).items()
    }
    return Dump(rank, members, words, pending, enqueued, _by_order(members, status) | local, status, pending_p2p)


def _by_order(members: Mapping[str, object], status: Mapping[str, object]) -> dict[str, str]:
    """The local numbers of groups: a rank counts its groups in the order in which all ranks number them."""
    is_numbered = len(members) == len(status) and all(word.isdecimal() for word in (*members, *status))
    return dict(zip(sorted(members, key=int), sorted(status, key=int), strict=True)) if is_numbered else {}


def _ranks(data: Any) -> tuple[int, ...]:
    """The ranks of a group: a list, or its text."""
    found = json.loads(data) if isinstance(data, str) else data
    if len(found) > MAX_RANKS:
        raise ValueError(f"a group of {len(found)} ranks")
    return tuple(int(rank) for rank in found)
