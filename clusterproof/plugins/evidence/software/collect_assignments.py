"""The variables that a script sets, parsed without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from clusterproof.plugins.agent.pattern import Pattern

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    Assignment = tuple[int, str, str, bool]  # line, name, value, whether it is set only under a condition


MAX_CHARACTERS = 256 * 1024
MAX_LINE = 2000
_ASSIGNED = Pattern(r"([A-Za-z_]\w{0,99})=(.*)", re.DOTALL)
_PRINTED = Pattern(r"(?:echo|print|printf)\s+(?:-\w+\s+)*(['\"]?)export\s+([A-Za-z_]\w{0,99})=(.*)")
_EXPORTED = Pattern(r"export\s+([A-Za-z_]\w{0,99})=(.*)")
_HERE = Pattern(r"(?<!<)<<(?!<)-?\s*(['\"]?)([A-Za-z_]\w{0,40})\1")
_OPENS = ("if", "case", "for", "while", "until", "select")
_CLOSES = ("fi", "esac", "done", "}")
_BEFORE_COMMANDS = ("then", "else", "do")


def plain(text: str) -> Iterator[Assignment]:
    """The variables in a file of NAME=value lines: /etc/environment, nccl.conf."""
    for number, line in _lines(text):
        match = _ASSIGNED.fullmatch(line.partition("export ")[2].strip() if line.startswith("export ") else line)
        if match:
            yield number, match[1], _unquoted(match[2]), False


def exported(text: str) -> Iterator[Assignment]:
    """The variables that a shell script exports to programs started later."""
    assigned: dict[str, Assignment] = {}
    for number, line, depth, is_here_document in _script(text):
        commands = [] if is_here_document else _commands(line)
        for argv, is_conditional in commands:
            is_export = argv[0] == "export"
            pairs = [_ASSIGNED.fullmatch(word) for word in argv[is_export:]]
            if not is_export and None in pairs:
                continue  # a command, at most with variables of its own
            for word, match in zip(argv[is_export:], pairs):
                if match:
                    assigned[match[1]] = (number, match[1], match[2], depth > 0 or is_conditional)
                if is_export and (match[1] if match else word) in assigned:
                    yield assigned[match[1] if match else word]


def printed(text: str) -> Iterator[Assignment]:
    """The variables that a Slurm task prolog sets by printing `export NAME=value`, with echo or a here-document."""
    for number, line, depth, is_here_document in _script(text):
        match = _EXPORTED.match(line) if is_here_document else _PRINTED.match(line)
        if match:
            *quote, name, value = match.groups()
            if any(quote):
                value = value.partition(quote[0])[0]
            yield number, name, _unquoted(value), depth > 0


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text[:MAX_CHARACTERS].splitlines(), start=1):
        line = line.strip()
        if line and len(line) <= MAX_LINE and not line.startswith("#"):
            yield number, line


def _script(text: str) -> Iterator[tuple[int, str, int, bool]]:
    """Each line, the depth of conditions and loops around it, and whether it is part of a here-document."""
    depth, terminator = 0, ""
    for number, line in _lines(text):
        if terminator:
            if line == terminator:
                terminator = ""
            else:
                yield number, line, depth, True
            continue
        parts = line.replace(";", " ; ").split()
        opens = (parts[0] in _OPENS) + line.endswith("{")
        closes = sum(word in _CLOSES for word in parts)
        yield number, line, depth + opens, False
        depth = max(0, depth + opens - closes)
        match = _HERE.search(line)
        terminator = match[2] if match else ""


def _commands(line: str) -> Iterator[tuple[list[str], bool]]:
    """The simple commands of a line, and whether each follows `&&` or `||`; none if the line is not understood."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        tokens = [*lexer, ";"]
    except ValueError:
        return
    argv: list[str] = []
    is_conditional = False
    for token in tokens:
        if token.strip(";&|"):
            argv.append(token)
            continue
        if argv and argv[0] in _BEFORE_COMMANDS:
            argv = argv[1:]
        if argv:
            yield argv, is_conditional
        argv, is_conditional = [], token in ("&&", "||")


def _unquoted(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
