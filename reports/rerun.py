"""The command that runs once more what failed, or what could not be measured."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite import flags, flags_of_perf
from clusterproof.plugins.suite.flags import Option
from clusterproof.plugins.suite.state import is_named

MOST_CHECKS = 40  # by name; more of them are run all
_NOT_REPEATED = ("--nodes", "--exclude", "--log-cursor", "--resume", "--save-baseline")
_REPEATED = tuple(
    option
    for title, options in {**flags.GROUPS, **flags_of_perf.GROUPS}.items()
    if not title.endswith(("records", "the catalogue"))
    for option in options
    if option.flag not in _NOT_REPEATED
)
_IS_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}").fullmatch


def command_of(config: pytest.Config) -> tuple[str, ...]:
    """The words that ask for the same cluster in the same way: program, options, `-m`, and the tests named."""
    program = Path(sys.argv[0]).name
    words = [program if program in ("pytest", "clusterproof") else "pytest"]
    for option in _REPEATED:
        words += _words(option, getattr(config.option, option.flag[2:].replace("-", "_"), None))
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
    told = f"{value:g}" if isinstance(value, float) else str(value)
    names_file = str(option.more.get("metavar", "")).startswith(("FILE", "DIR", "PATH"))
    misleads = names_file or told.startswith("-")  # pytest takes the one for a test, the other for an option
    return [f"{option.flag}={told}"] if misleads else [option.flag, told]


def again(command: Sequence[str], results: Iterable[Result], verdict: Verdict) -> str:
    """What a shell takes to run once more the checks that have this verdict, on the nodes that do; empty: none."""
    found = [result for result in results if result.verdict is verdict]
    if not found:
        return ""
    nodes = {result.node for result in found if _IS_NODE(result.node)}
    checks = list(dict.fromkeys(result.check.rpartition(".")[2] for result in found))
    words = list(command)
    if nodes and all(result.is_of_node for result in found) and not _measures_pairs(command, found):
        words += ["--nodes", fold(nodes)]
    if len(checks) <= MOST_CHECKS:
        words += ["-k", " or ".join(f"test_{name}" for name in checks)]
    return shlex.join(words)


def _measures_pairs(command: Sequence[str], found: Iterable[Result]) -> bool:
    """Whether one of them is judged by its pairs: what is normal for those the other nodes tell."""
    if not is_named(" ".join(command), "perf"):
        return False
    from clusterproof.plugins.suite.all_checks import all_checks  # no run but one of load needs it

    checks = all_checks()
    return any(result.check in checks and checks[result.check].needs_pairs for result in found)
