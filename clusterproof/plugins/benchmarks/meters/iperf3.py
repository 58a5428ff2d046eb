"""iperf3: TCP between two nodes, in both directions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusterproof.plugins.benchmarks import meters
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output, UnreadableError, printed
from clusterproof.plugins.evidence.pairs import Reading, is_believable

REMEDY = "install the package iperf3, or name its program (the same path on every node)"
SECONDS, SKIPPED_SECONDS = 4, 1  # the first second is TCP's slow start
LONGEST_SECONDS = 1e6  # plausible maximum in a report
STREAMS = 8  # one EC2 flow gets 5 or 10 Gb/s at most
CONNECT_MS = 5000
# The last if it meets the previous direction's server, which takes no more clients; one that fails later is no longer
# running at the retry.
REFUSALS = ("Connection refused", "server is busy", "Connection reset by peer")
DIRECTIONS = ("to the server", "from the server")


@dataclass(frozen=True, slots=True)
class Direction:
    """The data received in one direction."""

    received_bytes: int
    seconds: float
    block_bytes: int

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes a second."""
        return self.received_bytes / self.seconds / 1e9


def server(settings: MeterSettings, port: int) -> str:
    """The shell command of the waiting end: once for each direction. Raises ValueError."""
    run = meters.serving(f'"$program" -s -1 -J -p {port}')
    return _program(settings) + run + run


def client(settings: MeterSettings, address: str, port: int) -> str:
    """The shell command of the connecting end. Raises ValueError.

    Two runs instead of `--bidir`, where the ends' CPUs decide which direction gets how much.
    """
    size = f" -l {settings.size_bytes}" if settings.size_bytes else ""
    run = (
        f'"$program" -c {shlex.quote(address)} -p {port} -J -i 0 -t {SECONDS} -O {SKIPPED_SECONDS} -P {STREAMS}'
        f" --connect-timeout {CONNECT_MS}{size} {meters.quoted_options(settings.options)}"
    )
    # with -J it always exits with 0
    failed = 'case $printed in *\'"error":\'*) exit 1 ;; esac\n[ "$ended" -eq 0 ] || exit "$ended"\n'
    runs = (meters.retried_until_accepted(run, REFUSALS), meters.retried_until_accepted(f"{run} -R", REFUSALS))
    return _program(settings) + "".join(run + failed for run in runs)


def read(_settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """The result of the run: the slower direction, as counted by the receiving end."""
    ours, theirs = printed.client_and_server(outputs)
    try:
        if ours.exit is None:
            raise UnreadableError(printed.problem_of(ours))
        there, back = directions(ours.text)
    except UnreadableError as problem:
        is_refused = any(refusal in str(problem) for refusal in REFUSALS)
        has_not_met = is_refused and ours.exit is not None and not theirs.exit
        return printed.failed(printed.with_server(str(problem), theirs), (ours, theirs), has_not_met)
    slower = min(there, back, key=lambda direction: direction.gb_per_s)
    return Reading(
        busbw_gb_per_s=slower.gb_per_s,
        algbw_gb_per_s=slower.gb_per_s,
        size_bytes=slower.block_bytes,
        network=printed.proven_by_ends([(ours, there.received_bytes), (theirs, back.received_bytes)]),
        seconds=max(ours.seconds, theirs.seconds),
    )


def command(settings: MeterSettings, _launch: str, nodes: Sequence[str]) -> str:
    """What a person types on both nodes. Raises ValueError."""
    node, other = nodes
    size = f" -l {settings.size_bytes}" if settings.size_bytes else ""
    client_options = f"-c {node} -t {SECONDS} -O {SKIPPED_SECONDS} -P {STREAMS}{size}"
    serves = meters.typed("iperf3", replace(settings, options=""), {}, "-s")
    return (
        f"{serves} on {node}, then on {other}: {meters.typed('iperf3', settings, {}, client_options)}; the same with -R"
    )


def by_hand(node: str, other: str, _collective: str) -> str:
    """What a person types on both nodes."""
    return f"iperf3 -s on {other}, then on {node}: iperf3 -c {other} -P {STREAMS} -O 1; the same with -R"


METER = Meter("iperf3", read, server=server, client=client, command=command, by_hand=by_hand)


def directions(text: str) -> tuple[Direction, Direction]:
    """The results in a client's two reports: to the server, and from it. Raises UnreadableError."""
    reports = _documents(text, len(DIRECTIONS))
    for direction, report in zip(DIRECTIONS, reports, strict=False):
        if error := report.get("error"):
            raise UnreadableError(f"{direction}: {error if isinstance(error, str) else 'error'}")
    if len(reports) < len(DIRECTIONS):
        problem = printed.problem_of(Output(text, 0)) if not reports else "it ended before"
        raise UnreadableError(f"{DIRECTIONS[len(reports)]}: no whole report of iperf3: {problem}")
    there, back = (_direction(name, report) for name, report in zip(DIRECTIONS, reports, strict=True))
    return there, back


def _program(settings: MeterSettings) -> str:
    return meters.exports(settings.environment) + meters.finding_program("iperf3", settings.program, (), REMEDY)


def _documents(text: str, most: int) -> list[Mapping[str, Any]]:
    """The JSON objects that begin a line, in order; truncated ones are omitted."""
    decoder = json.JSONDecoder(parse_constant=_refused)
    documents: list[Mapping[str, Any]] = []
    at = 0 if text.startswith("{") else text.find("\n{") + 1 or -1
    while at >= 0 and len(documents) < most:
        try:
            document, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return documents
        if isinstance(document, dict):
            documents.append(document)
        at = text.find("{", at)
    return documents


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _direction(name: str, report: Mapping[str, Any]) -> Direction:
    start, total = _table(report, "start", "test_start"), _table(report, "end", "sum_received")
    is_reverse = start.get("reverse")
    if start.get("protocol") != "TCP" or is_reverse not in (0, 1) or is_reverse != DIRECTIONS.index(name):
        raise UnreadableError(
            f"{name}: {start.get('protocol')!r:.20}, reverse {is_reverse!r:.20}; expected a run of TCP"
        )
    seconds = total.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < LONGEST_SECONDS:
        raise UnreadableError(f"{name}: it took {seconds!r:.40} seconds; expected a number above 0")
    read = Direction(_whole(total, "bytes", name), float(seconds), _whole(start, "blksize", name))
    if not is_believable(read.gb_per_s):
        raise UnreadableError(f"{name}: {read.gb_per_s:g} GB/s; expected more than 0, and what a network can do")
    return read


def _table(report: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    value: Any = report
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        raise UnreadableError(f"its report has no {'.'.join(names)}; expected a whole run of iperf3")
    return value


def _whole(table: Mapping[str, Any], key: str, name: str) -> int:
    value = table.get(key)
    if type(value) is not int or not 0 <= value < 2**63:
        raise UnreadableError(f"{name}: {key} is {value!r:.40}; expected a whole number")
    return value
