"""The subcommands of `clusterproof`: one table, by which they are called, completed and described; and their help."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterproof.plugins.core.kinds import FILE, HYPERPOD, KINDS, forms
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.options import perf_table, table
from clusterproof.plugins.options.table import Option


@dataclass(frozen=True, slots=True)
class Subcommand:
    """What it is called, where its parser is made, and what answers it; that is empty where pytest runs.

    Both are written as entry points are: `package.module:function`. Nothing of them is imported before it is needed.
    """

    name: str
    makes_parser: str
    answers: str = ""

    @property
    def parser(self) -> argparse.ArgumentParser:
        """Its command line."""
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
SUBCOMMANDS = (  # in the order in which help has them
    Subcommand("check", f"{__name__}:check_parser"),
    Subcommand("checks", f"{_HERE}.explain:checks_parser", f"{_HERE}.explain:checks"),
    Subcommand("explain", f"{_HERE}.explain:explain_parser", f"{_HERE}.explain:explain"),
    Subcommand("doctor", f"{_HERE}.doctor:parser", f"{_HERE}.doctor:doctor"),
    Subcommand("init", f"{_HERE}.init:parser", f"{_HERE}.init:init"),
    Subcommand("case", "clusterproof.plugins.case.command:parser", "clusterproof.plugins.case.command:case"),
    Subcommand("accept", "clusterproof.plugins.accept.command:parser", "clusterproof.plugins.accept.command:accept"),
    Subcommand(
        "return",
        "clusterproof.plugins.accept.return_to_service:parser",
        "clusterproof.plugins.accept.return_to_service:return_nodes",
    ),
    Subcommand(
        "history", "clusterproof.reports.history.command:parser", "clusterproof.reports.history.command:history"
    ),
    Subcommand(
        "watch",
        "clusterproof.plugins.watch.command:parser",
        "clusterproof.plugins.watch.command:watch",
    ),
    Subcommand("gate", f"{_HERE}.gate:parser", f"{_HERE}.gate:gate"),
    Subcommand("manifest", f"{_HERE}.manifest:parser"),
    Subcommand("completion", f"{_HERE}.subcommands:completion_parser", f"{_HERE}.subcommands:completion"),
    Subcommand("help", f"{__name__}:help_parser"),
    Subcommand("version", f"{__name__}:version_parser"),
)
NAMES = tuple(subcommand.name for subcommand in SUBCOMMANDS)
ANSWERED = {subcommand.name: subcommand for subcommand in SUBCOMMANDS if subcommand.answers}  # without a run of pytest

# Pytest's own options that are of use with ours.
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
    """`clusterproof check`: pytest reads it, and this describes it."""
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
    """`clusterproof help`."""
    parser = OneLineParser(prog="clusterproof help", description="The options of a command.", add_help=False)
    names = sorted(set(NAMES) - {"help"})
    parser.add_argument(
        "command", nargs="?", choices=names, metavar="COMMAND", help="which command (default: an overview)"
    )
    return parser


def version_parser() -> argparse.ArgumentParser:
    """`clusterproof version`."""
    return OneLineParser(prog="clusterproof version", description="The version.", add_help=False)


def whole() -> argparse.ArgumentParser:
    """`clusterproof` with all its commands."""
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


_WHAT = {
    "local": "this machine",
    "demo": "a recorded cluster of 16 nodes, most of them sick: to see what reports look like",
    "replay:": "what --record DIR kept: the same verdicts, offline",
    "capture:": "outputs of commands that a person collected",
    "ssh:": "by ssh: 'ssh:ubuntu@gpu[001-016,020]'; ~/.ssh/config, agent and known_hosts hold",
    "slurm:": "nodes of Slurm, by one srun",
    "k8s:": "nodes of Kubernetes with accelerators, by a pod each; also k8s:in-cluster",
    "eks:": "the same of an EKS cluster, without a kubeconfig",
    "ec2:": "instances of EC2 through Systems Manager; also ec2:i-…,i-…",
    "asg:": "the instances of an Auto Scaling group",
    HYPERPOD.form: "a SageMaker HyperPod cluster, through Systems Manager",
    FILE.form: "an inventory: clusterproof init writes one to begin with",
}
_HEAD = """\
clusterproof: proves a GPU cluster fit for training. Nothing on a node is changed, and nothing passes without evidence.

  clusterproof check X [OPTION...]     validate the nodes of X; pytest --cluster X is the same
  clusterproof --run PATH              evaluate a training run by its traces, logs or dumps (docs/training-runs.md)
  clusterproof checks [-m MARKS]       the packaged checks, a line for each
  clusterproof explain CHECK...        what a check means, or an Xid (xid:79), and what to do then: offline
  clusterproof doctor                  what can be reached from here, and what is missing for the rest
  clusterproof init [DIR]              an inventory and a policy to begin with
  clusterproof case JOB                why a job ended, and whose node it was, from what it left (docs/case.md)
  clusterproof accept X                take a cluster into service: stages, and a report to sign (docs/accept.md)
  clusterproof return X NODES          prove repaired nodes fit to have jobs again (docs/accept.md)
  clusterproof history                 what is new, what flaps, which hardware fails again
  clusterproof watch X                 watch the nodes while they work, and say what changes (docs/watch.md)
  clusterproof gate wait X             wait until a Kubernetes gate has proven a node just now
  clusterproof gate remove X           take a Kubernetes gate's condition and taints from all nodes
  clusterproof completion SHELL        words completed by bash, zsh or fish: eval "$(clusterproof completion bash)"
  clusterproof manifest --from X       the golden manifest of a machine known to be good
  clusterproof help [COMMAND]          this page, or the options of a command
  clusterproof version                 the version

X is one of
"""
_TAIL = """
often used options
  --nodes NODESET, --exclude NODESET   only these nodes of X; but not these
  -m prolog | gpu | perf | …           by occasion, subsystem or owner; perf loads the hardware: only when named
  -k NAME                              checks by name
  --expect gpus=8,efa=32               what every node must have, where nothing else reports it
  --policy FILE                        a site's thresholds, expectations and exceptions; ./clusterproof.toml by itself
  --since 24h                          what counts of the kernel log (default: all of this boot)
  --sudo                               ask sudo -n for what only root may read
  --report DIR, --no-report            where the reports go
  --record DIR                         keep the evidence, for replay:DIR
  --redact                             write nothing that names nodes, people or accounts
  --since-last, --notify URL           what is new; notify Slack, e-mail, SNS or a webhook
  --help-all                           every option, pytest's own too

exit codes: 0 nothing failed · 1 a check failed · 2 interrupted · 3 internal error · 4 bad command line or inventory
            5 nothing was checked · 10 nothing failed, but something could not be measured (see --incomplete)
            11 --k8s-gate could not write all that it had to
"""


_SHORTEST = """\
clusterproof checks that a GPU cluster is fit for training. It changes nothing.

  clusterproof check local                 check this machine
  clusterproof check 'ssh:gpu[001-016]'    check nodes over ssh
  clusterproof check slurm:PARTITION       ... nodes of Slurm, by one srun
  clusterproof check k8s:CONTEXT           ... nodes of Kubernetes, by pods
  clusterproof check NAME                  ... a HyperPod cluster
  clusterproof check demo                  ... a recorded cluster, to try it

  clusterproof --run PATH      evaluate a training run from its traces or logs
  clusterproof watch X         watch nodes while they work; report what changes
  clusterproof checks          list the checks
  clusterproof explain CHECK   what a check or an Xid means, and what to do
  clusterproof case JOB        why a job ended, and whose node it was
  clusterproof accept X        prove a new cluster fit; write a report to sign
  clusterproof return X NODES  prove repaired nodes fit to have jobs again
  clusterproof history         what is new, what comes and goes
  clusterproof gate            what runs as a gate in Kubernetes; its removal
  clusterproof doctor          what can be reached from here
  clusterproof init            write an inventory and a policy to begin with
  clusterproof manifest        write the golden manifest of a good machine
  clusterproof completion      complete words in bash, zsh or fish
clusterproof help [COMMAND] says more; --help-all lists every option.
"""


def shortest_help() -> str:
    """What `clusterproof` alone answers: it fits a terminal of 24 lines of 80 columns."""
    return _SHORTEST


def short_help(columns: int = 0) -> str:
    """The text, of at most 60 lines of 120 columns; what is too long for the terminal goes on under its own column."""
    rows = [(kind.form, _WHAT[kind.word or kind.form]) for kind in (*KINDS, HYPERPOD, FILE)]
    text = _HEAD + "".join(f"  {form:<36} {words}\n" for form, words in rows) + _TAIL
    width = columns or shutil.get_terminal_size().columns
    return "".join(f"{_folded(line, width)}\n" for line in text.splitlines())


def _folded(line: str, width: int) -> str:
    column = re.match(r" *(?:exit codes: |\S.*?\S {2,})?", line)
    further = " " * (len(column[0]) if column else 0)
    return textwrap.fill(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


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
