"""The table of `clusterproof` subcommands, used to call, complete and describe them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.kinds import forms
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.options.table import Option


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand: usage, summary, and entry points of its parser and its answer (empty if pytest runs).

    `usage` begins with its name; `summary` has at most 45 characters. `makes_parser` and `answers` are entry points,
    `package.module:function`, imported only when needed.
    """

    usage: str
    summary: str
    makes_parser: str
    answers: str = ""
    page: str = ""  # the document that says more

    @property
    def name(self) -> str:
        """The subcommand's name."""
        return self.usage.partition(" ")[0]

    @property
    def parser(self) -> argparse.ArgumentParser:
        """The parser of its command line."""
        parser: argparse.ArgumentParser = _resolved(self.makes_parser)()
        return parser

    def answer(self, arguments: Sequence[str]) -> tuple[int, str]:
        """The exit code and the text. Raises SystemExit after its help, or a usage error."""
        answer: tuple[int, str] = _resolved(self.answers)(arguments)
        return answer


def _resolved(name: str) -> Any:
    from pkgutil import resolve_name

    return resolve_name(name)


_HERE = __package__
_PLUGINS = "clusterproof.plugins"
SUBCOMMANDS = (  # in the order shown by help
    Subcommand(
        "check X [OPTION...]", "validate the nodes of X; pytest --cluster X is the same", f"{__name__}:check_parser"
    ),
    Subcommand(
        "checks [-m MARKS]",
        "list the packaged checks, a line for each",
        f"{_HERE}.explain:checks_parser",
        f"{_HERE}.explain:checks",
    ),
    Subcommand(
        "explain CHECK...",
        "what a check or an Xid means, and what to do",
        f"{_HERE}.explain:explain_parser",
        f"{_HERE}.explain:explain",
    ),
    Subcommand(
        "doctor", "what can be reached from here, and what not", f"{_HERE}.doctor:parser", f"{_HERE}.doctor:doctor"
    ),
    Subcommand(
        "init [DIR]", "write an inventory and a policy to begin with", f"{_HERE}.init:parser", f"{_HERE}.init:init"
    ),
    Subcommand(
        "case JOB",
        "why a job ended, and whose node it was",
        f"{_PLUGINS}.case.command:parser",
        f"{_PLUGINS}.case.command:case",
        page="docs/case.md",
    ),
    Subcommand(
        "accept X",
        "prove a cluster fit; write a report to sign",
        f"{_PLUGINS}.accept.command:parser",
        f"{_PLUGINS}.accept.command:accept",
        page="docs/accept.md",
    ),
    Subcommand(
        "return X NODES",
        "prove repaired nodes fit to have jobs again",
        f"{_PLUGINS}.accept.return_to_service:parser",
        f"{_PLUGINS}.accept.return_to_service:return_nodes",
        page="docs/accept.md",
    ),
    Subcommand(
        "history",
        "what is new, what flaps, what fails again",
        "clusterproof.reports.history.command:parser",
        "clusterproof.reports.history.command:history",
    ),
    Subcommand(
        "watch X",
        "watch nodes during jobs; report what changes",
        f"{_PLUGINS}.watch.options:parser",
        f"{_PLUGINS}.watch.command:watch",
        page="docs/watch.md",
    ),
    Subcommand(
        "gate wait|remove X",
        "wait for a Kubernetes gate, or remove it",
        f"{_HERE}.gate:parser",
        f"{_HERE}.gate:gate",
        page="docs/kubernetes-gate.md",
    ),
    Subcommand("manifest --from X", "write the golden manifest of a good machine", f"{_HERE}.manifest:parser"),
    Subcommand(
        "completion SHELL",
        "complete words in bash, zsh or fish",
        f"{__name__}:completion_parser",
        f"{__name__}:completion",
    ),
    Subcommand("help [COMMAND]", "this page, or the options of a command", f"{__name__}:help_parser"),
    Subcommand("version", "the version", f"{__name__}:version_parser"),
)
NAMES = tuple(subcommand.name for subcommand in SUBCOMMANDS)
ANSWERED = {subcommand.name: subcommand for subcommand in SUBCOMMANDS if subcommand.answers}  # those that run no checks

# Pytest's own options that are useful with ours.
OF_PYTEST = (
    Option("-m", "checks by occasion, subsystem or owner: prolog, gpu, 'gpu and not perf', …", {"metavar": "MARKS"}),
    Option("-k", "checks by name", {"metavar": "NAME"}),
    Option("-x", "stop at the first failure", {"action": "store_true"}),
    Option("-n", "processes to run the checks in (pytest-xdist)", {"metavar": "N"}),
    Option("-q", "say less", {"action": "store_true"}),
    Option("-v", "say more", {"action": "store_true"}),
    Option("--lf", "only what failed in the last run", {"action": "store_true"}),
    Option("--collect-only", "list the checks, and run none", {"action": "store_true"}),
    Option("--junitxml", "a JUnit file with a case for each check and node", {"metavar": "FILE"}),
    Option("--html", "a page of pytest-html", {"metavar": "FILE"}),
)


def check_parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof check`, for help and completion only: pytest parses it."""
    parser = OneLineParser(
        prog="clusterproof check",
        usage="clusterproof check X [OPTION...]",
        description="Validates the nodes of X; pytest --cluster X is the same.",
        add_help=False,
    )
    parser.add_argument("cluster", metavar="X", help=f"what to validate: {forms()}")
    _add(parser, "often used options of pytest", OF_PYTEST)
    for title, options in {**table.GROUPS, **perf_table.GROUPS}.items():
        of_run = [option for option in options if option.flag not in ("--cluster", "--run")]
        if of_run:
            _add(parser, title.removeprefix("clusterproof: "), of_run)
    return parser


def help_parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof help`."""
    parser = OneLineParser(prog="clusterproof help", description="The options of a command.", add_help=False)
    names = sorted(set(NAMES) - {"help"})
    parser.add_argument(
        "command", nargs="?", choices=names, metavar="COMMAND", help="which command (default: an overview)"
    )
    return parser


def version_parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof version`."""
    return OneLineParser(prog="clusterproof version", description="The version.", add_help=False)


def build_parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof` with all its subcommands."""
    parser = argparse.ArgumentParser(
        prog="clusterproof",
        description="Proves a GPU cluster fit for training. Nothing on a node is changed, and nothing passes without "
        "evidence.",
        epilog="exit codes: 0 nothing failed, 1 a check failed, 2 interrupted, 3 internal error, 4 bad command line or "
        "inventory, 5 nothing was checked, 10 nothing failed, but something could not be measured, 11 --k8s-gate "
        "could not write all that it had to",
    )
    parser.add_argument("--help-all", action="store_true", help="every option, pytest's own too")
    parser.add_argument("--version", action="store_true", help="the version")
    parser.add_argument("--run", metavar="PATH", help="evaluate a training run by its traces, logs or dumps")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=argparse.ArgumentParser)
    for subcommand in SUBCOMMANDS:
        parser_of_command = subcommand.parser
        commands.add_parser(
            subcommand.name,
            parents=[parser_of_command],
            add_help=not parser_of_command.add_help,
            usage=parser_of_command.usage,
            help=parser_of_command.description,
        )
    return parser


def _add(parser: argparse.ArgumentParser, title: str, options: Sequence[Option]) -> None:
    group = parser.add_argument_group(title)
    for option in options:
        group.add_argument(option.flag, help=option.words.replace("%", "%%"), **option.more)


FILES = {"bash": "clusterproof.bash", "zsh": "_clusterproof", "fish": "clusterproof.fish"}
MAN_PAGE = "clusterproof.1"


def completion_parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof completion`."""
    parser = OneLineParser(
        prog="clusterproof completion",
        description='Prints what completes words of clusterproof in a shell: eval "$(clusterproof completion bash)".',
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=tuple(FILES), help="which shell")
    return parser


def completion(arguments: list[str]) -> tuple[int, str]:
    """The exit code and the script. Raises SystemExit after its help, or a usage error."""
    shell = completion_parser().parse_args(arguments).shell
    return 0, (Path(__file__).with_name("shell") / FILES[shell]).read_text(encoding="utf-8")
