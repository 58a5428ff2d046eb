"""Decodes a sampler's output line by line: bounded and strict, as a node is not trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.evidence.kernel_log.collect_lines import UNKNOWN
from clusterproof.plugins.training_run.rank_processes import MAX_RANKS, RankLook, look_of
from clusterproof.plugins.training_run.sample_columns import GPU_COLUMNS, MAX_GPUS, SampledGpu

MAX_LINE = 256 * 1024  # bytes
MAX_TEXT = 1_000  # characters of a kernel log line
MAX_WORDS = 200
MAX_LINES = 4_000  # kernel log lines in one update
VALUES_BY_SOURCE: Mapping[str, int] = {"host": 7, "network": 6, "lustre": 2}  # how many values each has
REPORTED = ("interfaces", "lustre", "mounts", "processes", "rdma")  # collectors that are sent whole when they change
MAX_LATE = 8  # sources
_NOTHING = {name: (None,) * count for name, count in VALUES_BY_SOURCE.items()}  # of a source that reported nothing
_OF_VALUES = frozenset({int, float, type(None)})
MAX_SECONDS = 1e11


class NotUnderstood(ClusterproofError, ValueError):  # noqa: N818 - an outcome of one connection
    """Output that is not a sampler's; the message has what was seen."""


class LinesLost(NotUnderstood):
    """Lines of the sampler that did not arrive."""


@record
class Hello:
    """A sampler has started. `up` is in seconds since boot, `now` since 1970; `no_log` why it follows no kernel log."""

    boot_id: str
    now: float
    up: float
    no_log: str = ""


@record
class Tick:
    """The samples of one moment. `gpus` is set if the GPU source has started again."""

    now: float
    up: float
    gpu: tuple[tuple[float | None, ...], ...]
    host: tuple[float | None, ...]
    gpus: tuple[SampledGpu, ...] | None = None
    facts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # by GPU index, in the form of `nvml`
    late: Mapping[str, tuple[float, str]] = field(default_factory=dict)  # sources: for how long (s), and why
    reported: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by collector, as in a visit
    ranks: tuple[RankLook, ...] = ()


@record
class LogLine:
    """A relevant line of the kernel log, how many similar ones were left out before it, and an error's level."""

    sequence: int
    seconds: float  # since boot
    text: str
    left_out: int = 0
    level: int = UNKNOWN


@record
class LogUpdate:
    """New lines of the kernel log, and how many were overwritten before they could be read."""

    up: float
    lines: tuple[LogLine, ...]
    lost: int = 0


Update: TypeAlias = Hello | Tick | LogUpdate


class UpdateStream:
    """The output of one sampler in pieces; lines without the nonce are ignored, and repeated lines count once."""

    def __init__(self, nonce: str) -> None:
        self._mark = nonce.encode() + b" "
        self._missing = f"{nonce}:no-python:".encode()
        self._rest = b""
        self._number = -1  # of the last line received
        self.noise = ""  # its last line: the reason if a host refuses

    def updates(self, piece: bytes) -> Iterator[Update]:
        """The updates completed by a piece of output. Raises NotUnderstood, LinesLost."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(self._mark):
                update, number = _decoded(line[len(self._mark) :])
                if number is None or self._is_next(number):
                    yield update
            elif line.startswith(self._missing):
                raise NotUnderstood("no Python 3.8 or newer that starts and has bz2")
            elif line.strip() and not line.startswith(self._mark[:-1]):
                self.noise = printable(line[:MAX_WORDS].decode("utf-8", "replace").strip(), MAX_WORDS)
        if len(self._rest) > MAX_LINE:
            raise NotUnderstood(f"a line of more than {MAX_LINE:,} bytes")

    def _is_next(self, number: int) -> bool:
        """Whether a line is new. Raises LinesLost."""
        if number > self._number + 1:
            raise LinesLost(f"lines of its sampler were lost: {number - self._number - 1}; expected every one")
        is_next = number > self._number
        self._number = max(number, self._number)
        return is_next


def _decoded(line: bytes) -> tuple[Update, int | None]:
    """Decode a line and its number, if it has one."""
    try:
        message = json.loads(line.decode())
        if not isinstance(message, dict):
            raise TypeError("no object")
        number = message.get("n")
        if number is not None and type(number) is not int:
            raise TypeError("no whole number")
        return _update(message), number
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError) as wrong:
        seen = printable(line[:60].decode("utf-8", "replace"), 80)
        raise NotUnderstood(f"{type(wrong).__name__}: {str(wrong)[:100]} in {seen}") from None


def _update(message: Mapping[str, Any]) -> Update:
    if "sampler" in message:
        boot_id, no_log = _text(message.get("boot_id", ""), 64), _text(message.get("log", ""), MAX_WORDS)
        return Hello(boot_id, _seconds(message["now"]), _seconds(message["up"]), no_log)
    if "log" in message:
        lines = tuple(map(_log_line, _list(message["log"], MAX_LINES)))
        return LogUpdate(_seconds(message["up"]), lines, int(_seconds(message.get("lost", 0))))
    return _tick(message)


def _tick(message: Mapping[str, Any]) -> Tick:
    gpus = message.get("gpu_fixed")
    gpu = _list(message.get("gpu") or [], MAX_GPUS)
    host = [_NOTHING[name] if message.get(name) is None else message[name] for name in VALUES_BY_SOURCE]
    _require_numbers([*gpu, *host], [*[len(GPU_COLUMNS)] * len(gpu), *VALUES_BY_SOURCE.values()])
    every = message.get("facts", {})
    facts = every.get("nvml", {})
    return Tick(
        _seconds(message["now"]),
        _seconds(message["up"]),
        tuple(map(tuple, gpu)),
        tuple(chain.from_iterable(host)),
        None if gpus is None else tuple(map(_gpu, _list(gpus, MAX_GPUS))),
        {_index(index): _object(values) for index, values in facts.items()},
        {
            _text(name, 20): (_seconds(late[0]), _text(late[1], MAX_WORDS))
            for name, late in list(message.get("late", {}).items())[:MAX_LATE]
        },
        {name: _object(every[name]) for name in REPORTED if name in every},
        tuple(map(look_of, _list(message.get("ranks") or [], MAX_RANKS))),
    )


def _gpu(gpu: Any) -> SampledGpu:
    memory, limit = gpu.get("memory_mib"), gpu.get("power_limit_w")
    return SampledGpu(_text(gpu.get("uuid", ""), 80), _number(memory), _number(limit))


def _log_line(fields: Any) -> LogLine:
    sequence, seconds, text, left_out, level = [*fields, UNKNOWN] if len(fields) == 4 else fields
    if not all(isinstance(number, int) for number in (sequence, left_out, level)):
        raise TypeError("no whole number")
    return LogLine(sequence, _seconds(seconds), _text(text, MAX_TEXT), max(0, left_out), level)


def _require_numbers(rows: Sequence[Any], counts: Iterable[int]) -> None:
    """Raises TypeError, ValueError unless each row has so many values, and all of them are numbers or None."""
    for row, count in zip(rows, counts, strict=True):
        if len(row) != count:
            raise ValueError(f"{len(row)} values; expected {count}")
    values = list(chain.from_iterable(rows))
    # all of a tick at once, as nearly always all are numbers
    if not _OF_VALUES.issuperset(map(type, values)) or not sum(map(abs, filter(None, values))) < MAX_SECONDS:
        for value in values:
            _number(value)


def _number(value: Any) -> float | None:
    if value is None or (type(value) in (int, float) and math.isfinite(value) and abs(value) < MAX_SECONDS):
        return value  # type: ignore[no-any-return]
    raise ValueError(f"{value!r:.30} is not a number")


def _seconds(value: Any) -> float:
    number = _number(value)
    if number is None or number < 0:
        raise ValueError(f"{value!r:.30} is not a time")
    return float(number)


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.30} is not text")
    return printable(value[:most], most)


def _index(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and int(value) < MAX_GPUS):
        raise ValueError(f"{value!r:.30} is not a GPU")
    return int(value)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or len(value) > MAX_WORDS:
        raise TypeError(f"{str(value)!r:.30} is not an object of facts")
    return value


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"{str(value)!r:.30} is not a list of {most} at most")
    return value
