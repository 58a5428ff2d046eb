"""Results of programs that measured a node, such as fio and fi_pingpong, and shortfalls against a reference."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from clusterproof.plugins.core.message import format_pair, listed
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any
from clusterproof.plugins.core.verdict import Incomplete, concern_if, fail_if, incomplete, part
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    each,
    integer,
    number,
    objects_as,
    optional,
    read,
    readings,
    table,
    text,
)

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.group import Median
    from clusterproof.plugins.evidence.node import Node

MAX_PRINTED = 300_000  # characters; the node sends at most 256 KiB
MAX_WORDS = 200
GROUP, NODE = "median of {} nodes", "best GPU of the node"
SLOWER = "slower than others"  # the cause of a finding of a speed check that rests on comparison alone
_OF_OTHERS = re.compile(  # what is expected of a speed that is compared with others; a site's policy may add to it
    r"(?:at most \S{1,12} % below|at least \S{1,12} % of their median|further (?:GPUs or )?nodes to compare with"
    r"(?:, or a limit \(load\.fs_gb_per_s\))?)(?: \(by policy: [^()]{1,200}\))?"
)


def printed(data: object) -> str:
    """The complete output of a program. Raises TypeError."""
    if not isinstance(data, str):
        raise TypeError
    return data[:MAX_PRINTED]


@record
class ProgramRun(Reported):
    """One run of a program; `exit` is None if it was killed."""

    command = Field(text)
    exit = Field(optional(integer))
    output = Field(printed)

    @property
    def as_saved(self) -> str:
        """The output as a person would save it: with the command before it and the exit status after it, if known."""
        reading, _ = readings(self, "exit")
        ended = f"exit: {reading['exit']}\n" if reading else ""
        return f"{self.called}\n{self.output}\n{ended}"

    @property
    def last_output(self) -> str:
        """The end of what it printed, on one line."""
        return " ".join(self.output.split())[-MAX_WORDS:]

    @property
    def called(self) -> str:
        """The command, for a finding."""
        return str(readings(self, "command")[0].get("command", "the program"))

    @property
    def ended(self) -> str:
        """How the program ended, for a finding: `fio … ended with 1: …`."""
        how = "was ended" if self.exit is None else f"ended with {self.exit}"
        return f"{self.called} {how}: {self.last_output or 'it printed nothing'}"


def document(ran: ProgramRun) -> Mapping[str, Any]:
    """The JSON object that our PyTorch program prints. Raises Incomplete."""
    lines = [line for line in ran.output.splitlines() if line.startswith("{")]
    try:
        data = json.loads(lines[-1], parse_constant=str)
    except (IndexError, ValueError, RecursionError):
        raise Incomplete(f"{ran.ended}; expected its measurements") from None
    if isinstance(data, dict) and isinstance(data.get("error"), str):
        raise Incomplete(f"{ran.called}: {data['error'][:200]}")
    with part:
        require_end(ran)
    return read(data, table, "what PyTorch measured")


def require_end(ran: ProgramRun) -> None:
    """Raise Incomplete if a measuring program did not end well."""
    if ran.exit != 0:
        incomplete(f"{ran.ended}; expected it to end with 0")


DIRECTIONS = ("write", "read")


@record
class FsBandwidth(Reported):
    """One run of fio in one folder."""

    folder = Field(text)

    @property
    def gb_per_s(self) -> Mapping[str, float]:
        """10^9 bytes a second of `write` and `read`; an unread value makes that part of a check incomplete."""
        return dict(each(DIRECTIONS, lambda direction: (direction, self._speed(direction))))

    def _speed(self, direction: str) -> float:
        run = read(self.data.get(direction), table, f"fs_bandwidth: {direction}")
        size, seconds = (read(run.get(key), number, f"fs_bandwidth: {direction} {key}") for key in ("bytes", "seconds"))
        if not (size > 0 and seconds > 0):
            raise Incomplete(f"fs_bandwidth: {direction} of {size:.0f} bytes in {seconds:g} s; expected more of both")
        return size / seconds / 1e9


MAX_OUTPUT = 120
REFUSED, TAKEN = "failed to connect: ", "Address already in use"  # in what fi_pingpong's client, and its server, print

_ROW = re.compile(
    r"^\S{1,12}\s{1,20}\S{1,12}\s{1,20}=\S{1,12}\s{1,20}\S{1,12}\s{1,20}[\d.]{1,12}s\s{1,20}(\d{1,9}\.\d{1,4})\s",
    re.MULTILINE,
)


@record
class PingpongRun(Reported):
    """One fi_pingpong in one domain; `exit` is the client's, None if it was killed or had no server."""

    domain = Field(text)
    exit = Field(optional(integer))
    output = Field(text)
    server = Field(text)

    @property
    def mb_per_s(self) -> float | None:
        """10^6 bytes a second, None if no message came back. Raises Incomplete if it ended well without a speed."""
        row = _ROW.search(self.output)
        if self.exit == 0 and not row:
            seen = f"{self.domain}: no row of bandwidth in what fi_pingpong printed: {self.output[-MAX_OUTPUT:]!r}"
            raise Incomplete(f"{seen}; expected one")
        return float(row[1]) if row and self.exit == 0 else None

    @property
    def is_apart(self) -> bool:
        """Whether its ends did not meet, as any user may take the port, or be the one client of the server."""
        return self.exit != 0 and (REFUSED in self.output or TAKEN in self.server)

    @property
    def why_not(self) -> str:
        """The error messages of both ends."""
        how = "no end in its time" if self.exit is None else f"exit status {self.exit}"
        printed_text = " ".join(f"{self.output} {self.server}".split())[:MAX_OUTPUT]
        return f"{how}: {printed_text}" if printed_text else how


@record
class Loopback(Reported):
    """The fi_pingpong exchanges of a node with itself."""

    exchanges = Field(objects_as(PingpongRun), "domains", where="efa_loopback: domains")  # domain by domain


def is_of_comparison(cause: str, message: str) -> bool:
    """Whether a check of speed says only how far it is behind what is beside it, or that nothing is.

    The latter says so by what it expects, as reports show a cause in place of the speed; so did the former, of which
    results of runs from before have no cause.
    """
    return cause == SLOWER or (not cause and bool(_OF_OTHERS.fullmatch(message.rpartition("; expected ")[2])))


@record
class Shortfall:
    """One value that is below its reference."""

    name: str  # "GPU 3, host to GPU"
    value: float
    reference: float
    words: str  # the reference: "best GPU of the node"

    @property
    def percent(self) -> float:
        """How much is missing, in % of the reference."""
        return 100 * (1 - self.value / self.reference)

    def observed(self, unit: str, limit_percent: float) -> str:
        """`GPU 3, host to GPU: 41.2 GB/s, 25 % below the best GPU of the node (55.1)`; never as if at the limit."""
        behind = f"{format_pair(self.percent, limit_percent)[0]} % below the {self.words} ({self.reference:.4g})"
        return f"{self.name}: {self.value:.4g} {unit}, {behind}"


def below_best(values: Mapping[str, float], name: str, among: Mapping[str, float] | None = None) -> Iterable[Shortfall]:
    """How far GPUs of one node are behind the best of them, or `among` others too; `name` says what was measured."""
    compared = among or values
    best = max(compared.values(), default=0.0)
    if len(compared) > 1 and best > 0:
        yield from (Shortfall(f"GPU {gpu}, {name}", value, best, NODE) for gpu, value in values.items() if value < best)


def below_median(name: str, value: float, median: Median | None) -> Iterable[Shortfall]:
    """How far a value is below the median of the group, if enough nodes have one."""
    if median and median.is_comparable and 0 <= value < median.value:
        yield Shortfall(name, value, median.value, GROUP.format(median.nodes))


def worst_first(shortfalls: Iterable[Shortfall], least_percent: float) -> list[Shortfall]:
    """The shortfalls of more than this percentage; for each value only the largest."""
    worst: dict[str, Shortfall] = {}
    for shortfall in sorted(shortfalls, key=lambda shortfall: -shortfall.percent):
        if shortfall.percent > least_percent:
            worst.setdefault(shortfall.name, shortfall)
    return list(worst.values())


def report_slower(node: Node, shortfalls: Iterable[Shortfall], unit: str) -> None:
    """Say what is so far behind what it is compared with that it fails, and what else is worth a look."""
    fail, worry = node.threshold("load.slower_fail_percent"), node.threshold("load.slower_concern_percent")
    behind = worst_first(shortfalls, worry)
    slow = listed(shortfall.observed(unit, fail) for shortfall in behind if shortfall.percent > fail)
    fail_if(slow, f"{slow}; expected at most {fail:g} % below", cause=SLOWER)
    slow = listed(shortfall.observed(unit, worry) for shortfall in behind if shortfall.percent <= fail)
    concern_if(slow, f"{slow}; expected at most {worry:g} % below", SLOWER)
