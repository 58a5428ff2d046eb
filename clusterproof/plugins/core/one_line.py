"""An argument parser that reports a mistake in one line, with the word that was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from clusterproof.plugins.core.strict import nearest

BAD_COMMAND_LINE = 4  # as in pytest; argparse's own 2 means interrupted here
_UNKNOWN = "unrecognized arguments: "


class OneLineParser(argparse.ArgumentParser):
    """argparse's parser, but without printing the usage of all options before each error."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As in argparse, but an empty option value, as from an unset variable, is an error."""
        options, further = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(options, action.dest, None)
            is_empty = "" in value if isinstance(value, list) else value == ""
            if is_empty and action.option_strings and action.default != "":
                self.error(f"{action.option_strings[-1]} is empty")
        return options, further

    def convert_arg_line_to_args(self, arg_line: str) -> list[str]:
        """A line of a file of options: one option, unless it is blank or a comment."""
        option = arg_line.strip()
        return [option] if option and not option.startswith("#") else []

    def error(self, message: str) -> NoReturn:
        """Exit with the mistake, what was probably meant, and where the options are listed."""
        message = f"{message}''" if message == _UNKNOWN else message  # an empty word
        unknown = message.removeprefix(_UNKNOWN).partition(" ")[0] if message.startswith(_UNKNOWN) else ""
        self.exit(2, f"{self.prog}: {message}{self._meant(unknown)}; {self.prog} --help lists what there is\n")

    def _meant(self, word: str) -> str:
        if word.startswith("-"):
            return nearest(word.partition("=")[0], self._option_string_actions)
        named = word.strip("'") and "--cluster" in self._option_string_actions
        return f" (did you mean --cluster {word}?)" if named else ""
