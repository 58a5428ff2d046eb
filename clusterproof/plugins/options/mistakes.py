"""Reports a usage error in one line: what was observed, and what was probably meant.

The message may quote another user's file, so it is escaped. Pytest would print its usage before the error and paths
after it; runs without a cluster keep that.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Generator, Sequence
from typing import Any, NoReturn

import pytest

from clusterproof.plugins.core.kinds import NO_CLUSTER
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.strict import nearest

_UNKNOWN = "unrecognized arguments: "
_ARGUMENT = re.compile(r"argument (?:\S+/)?(?P<flag>-[^\s:]+): (?P<wrong>.*)", re.S)
_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']{0,200})' \(choose from (?P<known>[^()]{0,2000})\)")
_VALUE = re.compile(r"invalid (?P<kind>int|float|parse_numprocesses) value: (?P<word>.*)", re.S)
_KINDS = {"int": "a whole number", "float": "a number", "parse_numprocesses": "a whole number, auto or logical"}
_FLAGS = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make pytest's parser report errors in one line, and print help as this command."""
    optparser: ArgumentParser = parser.optparser

    def refuse(message: str) -> NoReturn:
        raise pytest.UsageError(in_one_line(printable(message, len(message)), optparser))

    optparser.error = refuse  # type: ignore[method-assign]
    optparser.prog = "clusterproof"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_parse() -> Generator[None, Any, Any]:
    """Parse the options; escape errors. Raises pytest.UsageError."""
    return (yield from _shown())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main() -> Generator[None, Any, Any]:
    """Run; escape errors that only occur then. Raises pytest.UsageError."""
    return (yield from _shown())


def _shown() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except pytest.UsageError as wrong:
        raise pytest.UsageError(*(printable(str(argument), len(str(argument))) for argument in wrong.args)) from None


def in_one_line(message: str, parser: ArgumentParser) -> str:
    """Reword argparse's error."""
    if message.startswith(_UNKNOWN):
        word = message.removeprefix(_UNKNOWN).split()[0].partition("=")[0]
        near = nearest(word, dict.fromkeys(_FLAGS.findall(parser.format_help())))
        return f"{word:.80} is not an option{near}; clusterproof --help-all lists them"
    match = _ARGUMENT.fullmatch(message)
    if not match:
        return message
    flag, wrong = match["flag"], match["wrong"]
    if flag == "--cluster":
        return NO_CLUSTER
    if choice := _CHOICE.fullmatch(wrong):
        known = re.findall(r"[\w.+-]+", choice["known"])
        return f"{flag} is {choice['word']!r:.80}{nearest(choice['word'], known)}; expected {_either(known)}"
    if value := _VALUE.fullmatch(wrong):
        return f"{flag} is {value['word']:.80}; expected {_KINDS[value['kind']]}"
    if wrong.startswith("expected"):
        return f"{flag} has no value; {wrong}"
    return f"{flag}: {wrong}"


def _either(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
