"""An argument parser whose errors are one line, with the word that was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from clusterproof.plugins.core.strict import nearest

BAD_COMMAND_LINE = 4  # as pytest has it; argparse's own 2 is an interruption here
_UNKNOWN = "unrecognized arguments: "


class OneLineParser(argparse.ArgumentParser):
    """argparse's parser, without the usage before each error."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse has it; an option's empty value, as of a variable that is not set, is a mistake."""
        options, further = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(options, action.dest, None)
            is_empty = "" in value if isinstance(value, list) else value == ""
            if is_empty and action.option_strings and action.default != "":
                self.error(f"{action.option_strings[-1]} is empty")
        return options, further

    def error(self, message: str) -> NoReturn:
        """End with the mistake, what was probably meant, and where the options are listed."""
        unknown = message.removeprefix(_UNKNOWN).split()[0] if message.startswith(_UNKNOWN) else ""
        self.exit(2, f"{self.prog}: {message}{self._meant(unknown)}; {self.prog} --help lists what there is\n")

    def _meant(self, word: str) -> str:
        if word.startswith("-"):
            return nearest(word.partition("=")[0], self._option_string_actions)
        named = bool(word) and "--cluster" in self._option_string_actions
        return f" (did you mean --cluster {word}?)" if named else ""
