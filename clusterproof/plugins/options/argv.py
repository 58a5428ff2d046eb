"""Rewrites a command line: `--opt WORD` becomes `--opt=WORD` where pytest would misinterpret the separate word.

Pytest looks for its configuration before it knows our options: the folder of an existing path would become the run's
root, with other people's configuration and conftest.py. A word that begins with a dash would be an option, and `@gpu`
a file of further words, which may be anybody's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.options.table import Option

if TYPE_CHECKING:
    import pytest


def restart_joined(arguments: Sequence[str]) -> None:
    """Restart the program with rewritten arguments if pytest would misinterpret them.

    Only if these are the process's own arguments: those passed to `pytest.main` are not changed.
    """
    own_arguments = list(arguments)
    joined = joined_options(own_arguments)
    before = len(sys.orig_argv) - len(own_arguments)
    if joined == own_arguments or sys.argv[1:] != own_arguments or sys.orig_argv[before:] != own_arguments:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [*sys.orig_argv[:before], *joined])  # noqa: S606 - the same program


def joined_options(arguments: Sequence[str]) -> list[str]:
    """The arguments, with an option of ours and its value joined where needed: `--opt=WORD`."""
    groups = (*table.GROUPS.values(), *perf_table.GROUPS.values())
    valued = {option.flag: option for group in groups for option in group if option.has_value}
    joined: list[str] = []
    for word in arguments:
        option = valued.get(joined[-1]) if joined and "--" not in joined else None
        if option and (misleads(word) or _is_misread(option, word[:1])):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _is_misread(option: Option, first: str) -> bool:
    """Whether pytest would not take a word with this first character for the option's value."""
    names_nodes = option.more.get("metavar") in ("X", "NODESET")  # of which ClusterShell has groups: `@gpu`
    return (option.takes_dashes and first == "-") or (names_nodes and first == "@")


def misleads(word: str) -> bool:
    """Whether pytest would use the folder of this word: an existing path, other than a file in this folder."""
    try:
        return os.path.exists(word) and not (os.path.isfile(word) and os.path.dirname(word) in ("", "."))  # noqa: PTH110, PTH113, PTH120 - Path costs every run more
    except ValueError:  # a null byte
        return False


_NOT_REPEATED = ("--nodes", "--exclude", "--log-cursor", "--resume", "--save-baseline")
_REPEATED = tuple(
    option
    for title, options in {**table.GROUPS, **perf_table.GROUPS}.items()
    if not title.endswith(("records", "the catalogue"))
    for option in options
    if option.flag not in _NOT_REPEATED
)


def command_of(config: pytest.Config) -> tuple[str, ...]:
    """The words that select the same cluster in the same way: program, options, `-m`, and named tests."""
    program = Path(sys.argv[0]).name
    arguments = [program if program in ("pytest", "clusterproof") else "pytest"]
    for option in _REPEATED:
        value = getattr(config.option, option.flag[2:].replace("-", "_"), None)
        for entry in value if isinstance(value, list) else [value]:
            arguments += _words(option, entry)
    redaction = getattr(config.pluginmanager.get_plugin("clusterproof-session"), "redaction", None)
    shown = redaction.text if redaction else str
    if config.option.redact:
        arguments[1:] = ["--cluster", "X"]
    if config.option.markexpr:
        arguments += ["-m", shown(config.option.markexpr)]
    if config.args_source is config.ArgsSource.ARGS:
        arguments += [text for argument in config.args if (text := str(argument)) == shown(text)]
    return tuple(arguments)


def _words(option: Option, value: Any) -> list[str]:
    if not option.has_value:
        return [option.flag] if value else []
    if value is None or value == option.more.get("default"):
        return []
    text = f"{value:g}" if isinstance(value, float) else str(value)
    names_file = str(option.more.get("metavar", "")).startswith(("FILE", "DIR", "PATH"))
    misleads = names_file or text.startswith("-")  # pytest takes the former for a test, the latter for an option
    return [f"{option.flag}={text}"] if misleads else [option.flag, text]
