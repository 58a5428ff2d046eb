"""Command lines of the repository's scripts; an argument that selects nothing is an error that suggests names."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from clusterproof.plugins.core.strict import nearest

WRONG = 4  # exit code


class Arguments(argparse.ArgumentParser):
    """The command line of one script, described by its module's docstring."""

    def __init__(self, script: str, described: str | None) -> None:
        super().__init__(prog=script, description=described, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit."""
        self.exit(WRONG, f"{self.prog}: {message}\n")

    def chosen(self, word: str, names: Iterable[str], described: str) -> list[str]:
        """The names that contain this word; an error if there are none."""
        known = list(names)
        matching = [name for name in known if word in name]
        if not matching:
            self.error(f"{word!r} chooses none of {len(known)}{near(word, known)}; expected {described}")
        return matching


def near(word: str, names: Sequence[str]) -> str:
    """` (did you mean …?)` from whole names, else from the words in them, else empty."""
    parts = dict.fromkeys(part for name in names for part in re.findall(r"\w+", name))
    return nearest(word, names) or nearest(word, parts)


def share_asked(script: str, described: str | None, arguments: Sequence[str]) -> float:
    """The share of the cases that a simulation should run."""
    parser = Arguments(script, described)
    parser.add_argument(
        "share", type=share, nargs="?", default=1.0, help="0.1: a tenth of the cases, 3: three times as many"
    )
    chosen: float = parser.parse_args(arguments).share
    return chosen


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number from 1 on")
    return int(text)


def share(text: str) -> float:
    """A number above 0."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", text) or not float(text):
        meant = nearest(text, ["stragglers", "real_runs", "pauses", "exact", "cases", "acceptance"])
        raise argparse.ArgumentTypeError(f"{text!r}{meant}; expected a number above 0")
    return float(text)
