"""The command that asks for the same cluster in the same way as this run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.suite import flags, flags_of_perf
from clusterproof.plugins.suite.flags import Option

_NOT_REPEATED = ("--nodes", "--exclude", "--log-cursor", "--resume", "--save-baseline")
_REPEATED = tuple(
    option
    for title, options in {**flags.GROUPS, **flags_of_perf.GROUPS}.items()
    if not title.endswith(("records", "the catalogue"))
    for option in options
    if option.flag not in _NOT_REPEATED
)


def command_of(config: pytest.Config) -> tuple[str, ...]:
    """The words that ask for the same cluster in the same way: program, options, `-m`, and the tests named."""
    program = Path(sys.argv[0]).name
    words = [program if program in ("pytest", "clusterproof") else "pytest"]
    for option in _REPEATED:
        value = getattr(config.option, option.flag[2:].replace("-", "_"), None)
        for one in value if isinstance(value, list) else [value]:
            words += _words(option, one)
    if config.option.redact:
        words[1:] = ["--cluster", "X"]
    if config.option.markexpr:
        words += ["-m", config.option.markexpr]
    if config.args_source is config.ArgsSource.ARGS:
        words += [str(argument) for argument in config.args]
    redaction = getattr(config.pluginmanager.get_plugin("clusterproof-session"), "redaction", None)
    return tuple(word for word in words if not redaction or redaction.text(word) == word)


def _words(option: Option, value: Any) -> list[str]:
    if not option.has_value:
        return [option.flag] if value else []
    if value is None or value == option.more.get("default"):
        return []
    data = f"{value:g}" if isinstance(value, float) else str(value)
    names_file = str(option.more.get("metavar", "")).startswith(("FILE", "DIR", "PATH"))
    misleads = names_file or data.startswith("-")  # pytest takes the one for a test, the other for an option
    return [f"{option.flag}={data}"] if misleads else [option.flag, data]
