"""What a meter's program printed: why it failed, which node it names, and the network that it used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusterproof.plugins.benchmarks.meters import NO_PROGRAM, OURS, MeterSettings, Output
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.evidence.pairs import Failure, Reading, is_believable

EFA = "efa"
LONGEST = 300
LONGEST_LINE = 1000
MAX_LINES = 200_000

_HOST = r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,252})"
_OURS = re.compile(rf"(?:{OURS}|{NO_PROGRAM}): ({_HOST}: .{{1,{LONGEST}}})", re.ASCII)
_NO_PROGRAM = re.compile(rf"{NO_PROGRAM}: {_HOST}: .", re.ASCII)
_LIBRARY = re.compile(r"error while loading shared libraries: ")
_WHERE_LIBRARIES_ARE = "expected its folder in LD_LIBRARY_PATH: by a module that is loaded first, or --meter-env"
_TELLING = re.compile(
    r"\b(?:error|failed|failure|refused|denied|cannot|could not|unable to|not found|no such|killed|aborted|timed out"
    r"|exited on signal|has lost communication)\b",
    re.IGNORECASE,
)
_OWN_FAULT = re.compile(  # of the node's own GPUs and libraries; messages about a peer are about the peer
    r"\bcuda (?:failure|error)|\bECC\b|CUDA-capable|out of memory|illegal memory|\bNVML\b|libcuda|Xid", re.IGNORECASE
)
_NAMES_ONE = (  # the most reliable first; each names one node
    re.compile(rf"^(?:{OURS}|{NO_PROGRAM}): {_HOST}: ", re.ASCII),
    re.compile(rf"{_HOST}: Test CUDA failure\b", re.ASCII),
    re.compile(rf"\bon node {_HOST} exited on signal", re.ASCII),
    re.compile(rf"\bRemote daemon: \S{{1,60}} on node {_HOST}", re.ASCII),
    re.compile(rf"\btarget node:\s{{1,20}}{_HOST}", re.ASCII),
    re.compile(rf"\bNode failure on {_HOST}", re.ASCII),
    re.compile(rf"\b[Nn]ode {_HOST} (?:has )?failed\b", re.ASCII),
    re.compile(rf"\bTask launch for \S{{1,60}} failed on node {_HOST}", re.ASCII),
    re.compile(rf"^ssh: connect to host {_HOST} port", re.ASCII),
    re.compile(rf"^ssh: Could not resolve hostname {_HOST}", re.ASCII),
    re.compile(rf"\bsrun: error: {_HOST}: tasks? [\d,-]{{1,200}}: ", re.ASCII),
)
_WARNS = re.compile(rf"{_HOST}:\d{{1,10}}:\d{{1,10}} \[\d{{1,4}}\] .{{0,300}}?NCCL WARN (.*)", re.ASCII)


def one_line(text: str) -> str:
    """A node's text as one short line that is safe on a terminal."""
    return printable(" ".join(text[: LONGEST * 4].split()))[:LONGEST]


def problem_of(output: Output, problems: Iterable[str] = ()) -> str:
    """Why it failed: how it ended, and the most informative line. `problems` are those that a parser found."""
    if output.exit is None:
        ended = "it did not end in its time"
    elif output.exit < 0:
        ended = f"signal {-output.exit} ended it"
    else:
        ended = f"it ended with {output.exit}" if output.exit else ""
    return one_line("; ".join(part for part in (ended, _telling_line(output.text, problems)) if part))


def client_and_server(outputs: Sequence[Output]) -> tuple[Output, Output]:
    """The outputs of both ends; a server that is missing has nothing to say."""
    ours = outputs[0] if outputs else Output("", None)
    return ours, outputs[1] if len(outputs) > 1 else Output("", 0)


def with_server(problem: str, server: Output) -> str:
    """A client's problem, and what the server says if it failed too."""
    return f"{problem}; the server: {problem_of(server)}" if server.exit else problem


def failed(problem: str, outputs: Sequence[Output], has_not_met: bool = False) -> Reading:
    """A measurement that failed, with the node and the kind of failure that its programs named; as in `failure_in`."""
    text = "\n".join(output.text for output in outputs)
    seconds = max((output.seconds for output in outputs), default=0.0)
    failure = failure_in(text, has_not_met)
    return Reading(problem=one_line(problem), culprit=culprit_in(text), seconds=seconds, failure=failure)


def of_largest(settings: MeterSettings, busbw_gb_per_s: float | None, size_bytes: int, problems: Sequence[str]) -> str:
    """What is wrong with the bandwidth of the largest size; empty: nothing. `problems` as in `problem_of`."""
    if busbw_gb_per_s is None:
        return one_line("; ".join(["no row of its table has a bandwidth", *problems[:1]]))
    if settings.size_bytes and size_bytes != settings.size_bytes:
        return f"its largest size is {size_bytes} bytes; expected {settings.size_bytes}"
    if not is_believable(busbw_gb_per_s):
        return f"its busbw is {busbw_gb_per_s:g} GB/s; expected more than 0, and what a network can do"
    return ""


def failure_in(text: str, has_not_met: bool = False) -> Failure | None:
    """The kind of failure that a program's output shows.

    `has_not_met`: the server did not serve its client. It serves the first one, and any user may be that.
    """
    if any(map(_NO_PROGRAM.search, _lines(text))):
        return Failure.NO_PROGRAM
    return Failure.NOT_AT_FAULT if has_not_met else None


def culprit_in(text: str) -> str:
    """The one node that the text names as the cause; empty if it names none, or several equally."""
    lines = _lines(text)
    named = [_named(pattern, lines) for pattern in _NAMES_ONE[:2]]
    named.append({match[1] for match in map(_WARNS.search, lines) if match and _OWN_FAULT.search(match[2])})
    named += [_named(pattern, lines) for pattern in _NAMES_ONE[2:]]
    nodes = next(filter(None, named), set())
    return nodes.pop().rstrip(".") if len(nodes) == 1 else ""


def _named(pattern: re.Pattern[str], lines: Sequence[str]) -> set[str]:
    return {match[1] for match in map(pattern.search, lines) if match}


def _telling_line(text: str, problems: Iterable[str]) -> str:
    lines = [line for line in _lines(text) if any(char.isalnum() for char in line)]
    missing = next((f"{OURS}: {match[1]}" for match in map(_OURS.search, lines) if match), "")
    library = next(filter(_LIBRARY.search, lines), "")
    if library and not missing:
        return f"{library}; {_WHERE_LIBRARIES_ARE}"
    first = missing or next(iter(problems), "") or next(filter(_TELLING.search, lines), "")
    return first or (lines[-1] if lines else "it printed nothing")


def _lines(text: str) -> list[str]:
    return [line[:LONGEST_LINE].strip() for line in text.split("\n", MAX_LINES)[:MAX_LINES]]


def object_in(text: str) -> dict[str, Any] | None:
    """The JSON object that our program printed on one line, the last one; None if there is none."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    try:
        document = json.loads(lines[-1])
    except (IndexError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def efa_devices(count: int | str) -> str:
    """`efa, 32 devices`."""
    return f"{EFA}, {count} device{'' if str(count) == '1' else 's'}"


def proven_network(sent_bytes: Mapping[str, int], carried_bytes: int) -> str:
    """The network whose devices sent at least the run's data; empty if the counters do not account for it.

    The device that sent most determines it: an Ethernet device by its name, EFA devices by their number.
    """
    if carried_bytes <= 0 or not sent_bytes:
        return ""
    most = max(sent_bytes, key=lambda name: sent_bytes[name])
    kind, _, device = most.partition(":")
    of_kind = {name: sent for name, sent in sent_bytes.items() if name.partition(":")[0] == kind and sent > 0}
    if kind != EFA and sent_bytes[most] >= carried_bytes:
        return device or most
    if sum(of_kind.values()) < carried_bytes:
        return ""
    share = sent_bytes[most] // 10  # a device that sent far less than the busiest carried something else
    carrying = sorted(name.partition(":")[2] for name, sent in of_kind.items() if sent >= share)
    return efa_devices(len(carrying)) if kind == EFA else ", ".join(carrying)


def proven_by_ends(sent_by: Iterable[tuple[Output, int]]) -> str:
    """The networks that carried what each end sent, for ends with counters; empty if those of one do not show it."""
    proven = [proven_network(end.sent_bytes, carried_bytes) for end, carried_bytes in sent_by if end.sent_bytes]
    return " and ".join(dict.fromkeys(proven)) if all(proven) else ""
