"""Dumps of PyTorch's Flight Recorder, one for each rank: pickles, of which only plain data is loaded."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run import Dump, GroupProgress, PendingCollective, PendingExchange, RunError
from clusterproof.plugins.training_run.files import Format, RunFile, Unpacked
from clusterproof.plugins.training_run.formats.flight_recorder_calls import RawCall, called
from clusterproof.plugins.training_run.formats.kineto import is_trace

MAX_BYTES = 256 << 20  # of one dump, decompressed: a ring of about 100,000 operations
MAX_RANKS = 1_000_000  # of a process group
MAX_MEMBERS = 10_000_000  # of all groups of a rank: a pickle may refer to one list any number of times
MAX_NUMBER = 2**63
PICKLE = b"\x80"
_KEYS = (b'"pg_config"', b'"pg_status"', b'"collective_seq_id"')
_PICKLED = (b"entries", b"pg_config", b"pg_status", b"profiling_name")  # other pickles contain none of these
BEGUN, ENDED = "started", "completed"
GLOO = "gloo:"
_BACKEND = re.compile(r"([a-z]\w{0,30}:)?(.*)", re.DOTALL)  # `nccl:`, `nccl2:`, `xccl:`
NO_SENDS = (None, 0, "0")
_RANK = re.compile(r"(?<![0-9])[0-9]{1,7}$")  # `nccl_trace_rank_12`, `_dump_12.pickle`
_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")
_PAIR = re.compile(r"(send|recv) [0-9]{1,7}(?:->|<-)([0-9]{1,7})$")  # with the group's own rank numbers
EXPECTED = "expected what TORCH_NCCL_DUMP_ON_TIMEOUT writes"
# A pickle is a program of one-byte instructions. Some create objects of any class, or allocate any amount of memory: so
# every instruction is checked before the first one runs.
MAX_INSTRUCTIONS = 20_000_000  # a ring of 100,000 operations with stacks has about 10 million
MAX_PICKLED_NUMBER = 2**64  # longer ones can be made to collide as keys of a mapping
# The instructions that `pickle.dumps` and PyTorch's own writer use for plain data.
_WORDS = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE
EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE EMPTY_DICT DICT SETITEM SETITEMS
BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET
"""
PLAIN = frozenset(_WORDS.split())
_STORES = ("BINPUT", "LONG_BINPUT")


def is_dump(head: bytes) -> bool:
    """Whether a file that begins like this may be a dump: a pickle, or JSON; traces name process groups too."""
    if head.startswith(PICKLE):
        return any(key in head for key in _PICKLED)
    is_json = head.lstrip().startswith(b"{") and any(key in head for key in _KEYS)
    return is_json and not is_trace(head)


def rank_of(path: RunFile) -> int | None:
    """The rank at the end of a dump's name; None if there is none."""
    name = path.name
    while suffix := _SUFFIX.search(name):
        name = name[: suffix.start()]
    rank = _RANK.search(name)
    return int(rank[0]) if rank else None


def read_dump(path: RunFile) -> Iterator[Dump]:
    """The dump. Raises RunError."""
    rank = rank_of(path)
    if rank is None:
        raise RunError(f"{path}: the file's name does not end in its rank; expected one like nccl_trace_rank_12")
    dump = _plain(path)
    try:
        yield _dump(rank, dump)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as wrong:
        raise RunError(f"{path}: {type(wrong).__name__}: {str(wrong)[:100]}; {EXPECTED}") from None


def _plain(path: RunFile) -> Any:
    data = bytearray()
    for piece in Unpacked(path):
        data += piece
        if len(data) > MAX_BYTES:
            raise RunError(f"{path}: more than {MAX_BYTES:,} bytes; {EXPECTED}")
    try:
        return plain(bytes(data)) if data.startswith(PICKLE) else json.loads(data)
    except Exception as wrong:  # a damaged pickle may raise anything
        raise RunError(f"{path}: {type(wrong).__name__}: {str(wrong)[:200]}; {EXPECTED}, whole and plain") from None


def _dump(rank: int, dump: Any) -> Dump:
    if isinstance(dump, list):  # PyTorch 2.2: only the operations
        dump = {"entries": dump}
    if not dump["entries"] and "pg_config" not in dump:
        raise ValueError("neither operations nor process groups")
    members, purposes, count = {}, {}, 0
    entries = [_entry(entry) for entry in dump["entries"]]
    for name, group in _groups(dump.get("pg_config") or {}, entries):
        members[_text(name)] = _ranks(group["ranks"])
        purposes[_text(name)] = _text(group.get("desc") or name)
        count += len(members[_text(name)])
        if count > MAX_MEMBERS:
            raise ValueError(f"groups of more than {MAX_MEMBERS} ranks together")
    calls = [entry for entry in entries if not entry.is_p2p]
    raw = [RawCall(entry.group, entry.number, entry.name, entry.raw) for entry in calls]
    is_timed = any(entry.raw.get("time_discovered_started_ns") for entry in calls)
    pending: dict[str, PendingCollective] = {}
    enqueued: dict[str, int] = {}
    local: dict[str, str] = {}
    status = {
        _text(number): GroupProgress(
            _whole(state["last_enqueued_collective"]), _whole(state["last_completed_collective"])
        )
        for number, state in (dump.get("pg_status") or {}).items()
    }
    for entry in calls:
        local[entry.group] = entry.local
        purposes.setdefault(entry.group, entry.group)
        enqueued[entry.group] = max(entry.number, enqueued.get(entry.group, entry.number))
    local = _by_order(members, status) | local
    ended = _ended(calls)
    for entry in calls:
        if entry.number > ended.get(entry.group, -1) and (
            entry.group not in pending or entry.number < pending[entry.group].number
        ):
            has_begun = entry.raw["state"] == BEGUN if is_timed else None
            pending[entry.group] = PendingCollective(entry.number, entry.name, has_begun)
    exchanges = _exchanges(rank, entries, members)
    with_sends = frozenset(
        entry.group for entry in entries if entry.is_p2p or entry.raw.get("p2p_seq_id") not in NO_SENDS
    )
    return Dump(rank, members, purposes, pending, enqueued, local, status, exchanges, called(raw, ended), with_sends)


def _groups(groups: Mapping[Any, Any], entries: Iterable[_Entry]) -> Iterator[tuple[Any, Any]]:
    """The process groups, by the names in operations: gloo's has none if its ranks are listed."""
    unlisted = {entry.group: entry.purpose for entry in entries if entry.group not in groups}
    for name, group in groups.items():
        if name == "" and len(unlisted) == 1:
            (called, purpose), *_ = unlisted.items()
            yield called, {"desc": purpose, **{key: value for key, value in group.items() if value}}
        else:
            yield name, group


@record
class _Entry:
    """One operation in the ring buffer."""

    group: str
    local: str
    number: int
    name: str
    is_p2p: bool
    has_ended: bool
    purpose: str  # the purpose of its group, if known
    raw: Mapping[str, Any]


def _entry(entry: Mapping[str, Any]) -> _Entry:
    """An operation from any version: before 2.0 groups had no names, and one number counted all."""
    backend, name = _BACKEND.match(_text(entry["profiling_name"])).groups()  # type: ignore[union-attr] # or of none
    is_p2p = bool(entry.get("is_p2p", _PAIR.match(name)))
    number = entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id"))
    group, *rest = entry["process_group"] if "process_group" in entry else (entry["pg_id"],)
    has_ended = entry["state"] == ENDED
    if backend == GLOO:  # its operations never change state
        has_ended = bool(entry.get("retired"))
    purpose = _text(rest[0]) if rest else ""
    return _Entry(_text(group), _text(entry["pg_id"]), _whole(number), name, is_p2p, has_ended, purpose, entry)


def _ended(calls: Iterable[_Entry]) -> dict[str, int]:
    """The last completed operation of each group: all before it are too, including those in a coalesced call."""
    ended: dict[str, int] = {}
    for entry in calls:
        if entry.has_ended:
            ended[entry.group] = max(entry.number, ended.get(entry.group, -1))
    return ended


def _exchanges(
    rank: int, entries: Iterable[_Entry], members: Mapping[str, tuple[int, ...]]
) -> tuple[PendingExchange, ...]:
    """The ranks it waits for in sends and receives. In a batch, only the coalescing call records its end."""
    exchanges = [entry for entry in entries if entry.is_p2p]
    batches = _ended(entry for entry in exchanges if not _PAIR.match(entry.name))
    waiting: dict[tuple[str, int], PendingExchange] = {}
    for entry in exchanges:
        pair = _PAIR.match(entry.name)
        peer = int(pair[2]) if pair else -1
        ranks = members.get(entry.group, ())
        if not pair or not 0 <= peer < len(ranks) or ranks[peer] == rank:
            continue
        key = entry.group, ranks[peer]
        if entry.has_ended or entry.number <= batches.get(entry.group, -1):
            waiting.pop(key, None)  # those with one rank end in order
        else:
            word = "send to" if pair[1] == "send" else "receive from"
            waiting.setdefault(key, PendingExchange(*key, entry.number, f"{word} rank {ranks[peer]}"))
    return tuple(waiting.values())


def _by_order(members: Mapping[str, object], status: Mapping[str, object]) -> dict[str, str]:
    """The local numbers of groups: a rank counts its groups in the global order."""
    is_numbered = len(members) == len(status) and all(word.isdecimal() for word in (*members, *status))
    return dict(zip(sorted(members, key=int), sorted(status, key=int), strict=True)) if is_numbered else {}


def _ranks(value: Any) -> tuple[int, ...]:
    """The ranks of a group: a list, or a text."""
    ranks = json.loads(value or "[]") if isinstance(value, str) else value
    if len(ranks) > MAX_RANKS:
        raise ValueError(f"a group of {len(ranks)} ranks")
    return tuple(_whole(rank) for rank in ranks)


def _whole(value: object) -> int:
    """A number, or its text. Raises TypeError, ValueError."""
    number = int(value[:20]) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"a {type(value).__name__} where a whole number was expected")
    if abs(number) >= MAX_NUMBER:
        raise ValueError("a number of more than 64 bits")
    return number


def _text(value: object) -> str:
    """A name, which may be a number. Raises TypeError, ValueError."""
    return value[:100] if isinstance(value, str) else str(_whole(value))


class _NoClasses(pickle.Unpickler):
    """An unpickler that refuses every class and function."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raises UnpicklingError."""
        raise pickle.UnpicklingError(f"it names {module}.{name}"[:200])


def plain(data: bytes) -> Any:
    """The contents of a pickle. Raises UnpicklingError, or anything if it is damaged."""
    _refuse_more(data)
    return _NoClasses(io.BytesIO(data)).load()


def _refuse_more(data: bytes) -> None:
    """Raises UnpicklingError if it is not plain data, ValueError if it is truncated."""
    for number, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        name = instruction.name
        if name not in PLAIN:
            raise pickle.UnpicklingError(f"it has {name}, which plain data does not need")
        if number >= MAX_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"more than {MAX_INSTRUCTIONS:,} instructions")
        if isinstance(argument, int):
            if name in _STORES and argument > number:
                raise pickle.UnpicklingError(f"it numbers an object {argument:,}, and has made {number:,} at most")
            if abs(argument) >= MAX_PICKLED_NUMBER:
                raise pickle.UnpicklingError("it has a number of more than 64 bits")


FORMATS = (Format("a dump of PyTorch's Flight Recorder", is_dump, read_dump),)
