"""The shell text that meters have in common: plain POSIX sh, run on the nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from clusterproof.plugins.benchmarks.meters.meter import MeterSettings
from clusterproof.plugins.evidence.pairs import NO_PROGRAM, NOT_INSTALLED

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
