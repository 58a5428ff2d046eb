"""Meters: programs that measure the bandwidth between two nodes, their command lines, and parsers of their output.

This module: the interface of meters, command lines for the ends of a pair, and a parser. The shell lines that meters
share are plain POSIX sh, run on the nodes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.evidence.pairs import Failure, Reading, is_believable


class UnreadableError(ClusterproofError, ValueError):
    """A program's output does not contain the measurement."""


@dataclass(frozen=True, slots=True)
class MeterSettings:
    """The user's options for a meter; 0 and empty mean the meter's default."""

    collective: str = "all_reduce"  # for nccl-tests and nccom-test
    size_bytes: int = 0
    ranks_per_node: int = 0
    program: str = ""  # a path on the nodes, if the meter does not find its program itself
    options: str = ""  # further arguments
    environment: Mapping[str, str] = field(default_factory=dict)  # for the program, on the nodes
    is_brief: bool = False  # for many ranks: no library log, which would fill the stored output


@dataclass(frozen=True, slots=True)
class Output:
    """One end's output (standard output and error, bounded), and how it ended.

    `exit` is None if it exceeded its time. `sent_bytes` is how much each network device of that end sent meanwhile, by
    the device's name ("efa:rdmap79s0", "net:eth0"); empty if unknown.
    """

    text: str
    exit: int | None
    sent_bytes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Meter:
    """One program.

    A collective meter has `ranks`: the shell command of every rank, which a launcher starts on all nodes; if it
    `starts_ranks` itself, only the first of them does anything. A two-ended meter has `server` and `client` (shell
    commands, from the port, and from the server's address and the port); the server serves one client and exits. `read`
    parses the ranks' merged output, or the client's and then the server's. `command` is what a person types for it,
    from the launcher's command for ranks and the names of the nodes; `by_hand` is the same without known settings.
    Some two-ended meters start a rank for each of their GPUs.
    """

    name: str
    read: Callable[[MeterSettings, tuple[Output, ...]], Reading]
    ranks: Callable[[MeterSettings], str] | None = None
    server: Callable[[MeterSettings, int], str] | None = None
    client: Callable[[MeterSettings, str, int], str] | None = None
    starts_ranks: bool = False
    command: Callable[[MeterSettings, str, Sequence[str]], str] | None = None
    by_hand: Callable[[str, str, str], str] | None = None
    has_a_rank_for_each_gpu: bool = False

    @property
    def is_collective(self) -> bool:
        """Whether a launcher of ranks starts it on all nodes at once."""
        return self.ranks is not None


NOT_FOUND = 127
OURS, NO_PROGRAM = "clusterproof", "clusterproof-no-program"  # prefixes of our own lines in a program's output
PASSED_OVER = "CLUSTERPROOF_PASSED_OVER"  # as in launchers/search_path.py
SERVES_AT_MOST_SECONDS = 600  # a server without a client exits after this
TRIES = 50  # by a client whose server does not listen yet, 0.2 s apart
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")


def quoted_options(options: str) -> str:
    """A user's further options, each quoted for a shell. Raises ValueError."""
    try:
        return " ".join(map(shlex.quote, shlex.split(options)))
    except ValueError as problem:
        raise ValueError(f"meter options {options!r:.80}: {problem}; expected words as in a shell") from None


def exports(environment: Mapping[str, str]) -> str:
    """Lines that set a program's environment; LC_ALL=C first, for decimal points. Raises ValueError."""
    wrong = next((name for name in environment if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r:.80} is not the name of a variable; expected letters, digits and _")
    variables = {"LC_ALL": "C", **environment}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def typed(program: str, settings: MeterSettings, environment: Mapping[str, str], options: str) -> str:
    """A program with its variables and options as a person types it."""
    values = {"LC_ALL": "C", **environment, **settings.environment}
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    command = f"env {variables} {shlex.quote(settings.program or program)} {options}"
    return f"{command} {quoted_options(settings.options)}".strip()


def finding_program(name: str, chosen: str, folders: Sequence[str], remedy: str) -> str:
    """Lines that set $program to a program's path, or exit with 127 and a line that says what was looked for.

    `chosen` replaces `name` and all its folders. A folder may be a pattern: its first match is used.
    """
    folders = () if chosen else folders
    looked = ", in ".join(["on PATH", *folders])
    missing = f"{chosen} is not a program here" if chosen else f"{name} is not installed: looked {looked}"
    lines = [f"program=$(command -v {shlex.quote(chosen or name)} 2>/dev/null) || program="]
    if folders:
        tried = " ".join(f"{folder}/{name}" for folder in folders)
        lines.append(f'for each in {tried}; do [ -z "$program" ] && [ -x "$each" ] && program=$each; done')
    return "\n".join([*lines, unless_found(f"{missing}; {remedy}")]) + "\n"


def unless_found(missing: str) -> str:
    """A line that exits with 127 if $program is empty, after printing what is missing, and where nobody looked."""
    message = f'printf \'{NO_PROGRAM}: %s: %s%s\\n\' "$(uname -n)" {shlex.quote(missing)} "${PASSED_OVER}"'
    return f'[ -n "$program" ] || {{ {message} >&2; exit {NOT_FOUND}; }}'


def serving(command: str) -> str:
    """A line that runs a server which exits by itself if no client comes."""
    return f"timeout {SERVES_AT_MOST_SECONDS} {command}\n"


def retried_until_accepted(command: str, refusals: Sequence[str]) -> str:
    """Lines that retry a client while it prints one of these words; $printed is its output, $ended its status."""
    patterns = " | ".join(f"*{shlex.quote(refusal)}*" for refusal in refusals)
    return f"""\
tries=0
while :; do
  printed=$({command} 2>&1); ended=$?
  case $printed in
    {patterns}) tries=$((tries + 1)); [ "$tries" -lt {TRIES} ] || break; sleep 0.2 || sleep 1 ;;
    *) break ;;
  esac
done
printf '%s\\n' "$printed"
"""


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
EFA = "efa"


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
