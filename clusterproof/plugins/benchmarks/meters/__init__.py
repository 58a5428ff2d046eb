"""Meters: programs that measure the bandwidth between two nodes, their command lines, and parsers of their output.

This module: the interface of meters, and the shell lines that they share: plain POSIX sh, run on the nodes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.evidence.pairs import Reading


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
