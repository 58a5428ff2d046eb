"""What every meter has: command lines for the ends of a pair, and a reader of what they print.

The text of these lines that meters have in common is plain POSIX sh, run on the nodes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from clusterproof.plugins.evidence.pairwise.model import NO_PROGRAM, NOT_INSTALLED, Reading


@dataclass(frozen=True, slots=True)
class MeterSettings:
    """What a user may choose of a meter; 0 and empty mean the meter's own choice."""

    collective: str = "all_reduce"  # of nccl-tests and nccom-test
    size_bytes: int = 0
    ranks_per_node: int = 0
    program: str = ""  # a path on the nodes, where the meter does not find its program itself
    options: str = ""  # further words for its command line
    environment: Mapping[str, str] = field(default_factory=dict)  # for the program, on the nodes


@dataclass(frozen=True, slots=True)
class Output:
    """What one end printed (standard output and error as they came, bounded), and how it ended.

    `exit` is None where it did not end in its time. `sent_bytes` is how much each network device of that end sent
    meanwhile, by the device's name ("efa:rdmap79s0", "net:eth0"); empty where nobody could look.
    """

    text: str
    exit: int | None
    sent_bytes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Meter:
    """One program.

    A collective one has `ranks`: the shell command of every rank, which a launcher starts on both nodes; where it
    `starts_ranks` itself, only the first of them does anything. One of two ends has `server` and `client` (shell
    commands, from the port, and from the server's address and the port); the server serves one client and ends. `read`
    takes the ranks' merged output, or the client's and then the server's. `command` is what a person types for it, from
    the launcher's words for ranks and the names of both nodes; `by_hand` likewise where no settings are known. Some
    of two ends start a rank for each of their GPUs.
    """

    name: str
    read: Callable[[MeterSettings, tuple[Output, ...]], Reading]
    ranks: Callable[[MeterSettings], str] | None = None
    server: Callable[[MeterSettings, int], str] | None = None
    client: Callable[[MeterSettings, str, int], str] | None = None
    starts_ranks: bool = False
    command: Callable[[MeterSettings, str, str, str], str] | None = None
    by_hand: Callable[[str, str, str], str] | None = None
    has_a_rank_for_each_gpu: bool = False

    @property
    def is_collective(self) -> bool:
        """Whether a launcher of ranks starts it on both nodes at once."""
        return self.ranks is not None


NOT_FOUND = 127
SERVES_AT_MOST_SECONDS = 600  # a server whose client never comes ends by itself
TRIES = 50  # of a client whose server does not listen yet, 0.2 s apart
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")


def words(options: str) -> str:
    """A user's further options, each quoted for a shell. Raises ValueError."""
    try:
        return " ".join(map(shlex.quote, shlex.split(options)))
    except ValueError as problem:
        raise ValueError(f"meter options {options!r:.80}: {problem}; expected words as in a shell") from None


def exports(environment: Mapping[str, str]) -> str:
    """Lines that set a program's environment; LC_ALL=C first, so that numbers have points. Raises ValueError."""
    wrong = next((name for name in environment if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r:.80} is not the name of a variable; expected letters, digits and _")
    data = {"LC_ALL": "C", **environment}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in data.items())


def typed(program: str, settings: MeterSettings, environment: Mapping[str, str], options: str) -> str:
    """A program with its variables and options as a person types it."""
    data = {"LC_ALL": "C", **environment, **settings.environment}
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in data.items())
    return f"env {variables} {shlex.quote(settings.program or program)} {options} {words(settings.options)}".strip()


def found(name: str, chosen: str, places: Sequence[str], remedy: str) -> str:
    """Lines that leave a program's path in $program, or end with 127 and one line that says what was looked for.

    `chosen` stands for `name` and for all its places. A place may be a pattern: the first match in it is taken.
    """
    places = () if chosen else places
    looked = ", in ".join(["on PATH", *places])
    missing = f"{chosen} {NO_PROGRAM}" if chosen else f"{name} {NOT_INSTALLED} {looked}"
    lines = [f"program=$(command -v {shlex.quote(chosen or name)} 2>/dev/null) || program="]
    if places:
        tried = " ".join(f"{place}/{name}" for place in places)
        lines.append(f'for each in {tried}; do [ -z "$program" ] && [ -x "$each" ] && program=$each; done')
    said = shlex.quote(f"{missing}; {remedy}")
    lines.append(
        f'[ -n "$program" ] || {{ printf \'clusterproof: %s: %s\\n\' "$(uname -n)" {said} >&2; exit {NOT_FOUND}; }}'
    )
    return "\n".join(lines) + "\n"


def serving(command: str) -> str:
    """A line that runs a server which ends by itself where nobody comes."""
    return f"timeout {SERVES_AT_MOST_SECONDS} {command}\n"


def retried_until_accepted(command: str, refusals: Sequence[str]) -> str:
    """Lines that run a client again while it says one of these words; $printed is what it said, $ended how it ended."""
    said = " | ".join(f"*{shlex.quote(words)}*" for words in refusals)
    return f"""\
tries=0
while :; do
  printed=$({command} 2>&1); ended=$?
  case $printed in
    {said}) tries=$((tries + 1)); [ "$tries" -lt {TRIES} ] || break; sleep 0.2 || sleep 1 ;;
    *) break ;;
  esac
done
printf '%s\\n' "$printed"
"""
